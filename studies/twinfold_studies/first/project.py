"""The projects of the study: a record, the physics that is known of it, and ten designs.

The first design is the first attempt: the settings of `twinfold new`, with the columns of the record. The others change
one setting each. A single record is cut into five blocks, of which the last is the test record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from twinfold.workspace import Workspace, new_project, open_workspace
from twinfold_studies.first import drive
from twinfold_studies.real.loaders import building_thermal, emps, schmidt_lipson
from twinfold_studies.real.location import find_real
from twinfold_studies.real.table import Records, write_records

FIRST = "first attempt"
COMMON = {
    FIRST: (),
    "width 6": ("model.width=6",),
    "width 24": ("model.width=24",),
    "no l2": ("loss.l2=0.0",),
    "l2 1e-5": ("loss.l2=1e-5",),
    "l2 1e-3": ("loss.l2=1e-3",),
    "Adam before LM": ("fit.adam_epochs=300", "fit.learning_rate=1e-2"),
    "4 substeps": ("model.substeps=4",),
}


@dataclass(frozen=True)
class Project:
    """A record and what its user does with it.

    `load(folder)` returns the records, from the folder of measurements that the user gave ("" for none); `settings` of
    twinfold.toml beyond those of the template; `own` designs, beside those in `COMMON`; `warmup`, the samples at the
    start of a held-out run that do not count; `physics`, the folder of its system.py, if it has not the same name.
    """

    name: str
    title: str
    load: Callable[[str], Records]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    settings: tuple[str, ...]
    own: dict[str, tuple[str, ...]]
    warmup: int
    unit: str = ""
    physics: str = ""
    designs: dict[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "designs", COMMON | self.own)

    def write(self, folder: Path, measurements: str = "") -> None:
        """Make the project: `twinfold new`, then its own system.py, data files and settings."""
        new_project(str(folder), template="motor")
        (folder / "data" / "sample.csv").unlink()
        written = write_records(self.load(measurements), folder / "data")
        system = files("twinfold_studies.first.projects") / (self.physics or self.name) / "system.py"
        (folder / "system.py").write_text(system.read_text(encoding="utf-8"), encoding="utf-8")
        names = [path.relative_to(folder).as_posix() for path in written]
        own = [
            f"data.files={names}",
            'data.run=""',
            f"data.inputs={list(self.inputs)}",
            f"data.outputs={list(self.outputs)}",
        ]
        workspace = open_workspace(folder, [*own, f"data.warmup={self.warmup}", "data.blocks=5", *self.settings])
        (folder / "twinfold.toml").write_text(workspace.config.toml(), encoding="utf-8")

    def open(self, folder: Path, design: str, further: Sequence[str] = ()) -> Workspace:
        """The workspace of a design, one of `designs`, with further settings."""
        return open_workspace(folder, [*self.designs[design], *further])


PROJECTS = {
    each.name: each
    for each in (
        Project(
            "drive",
            "synthetic drive: motor, elastic shaft, load; two hidden states, 1000 samples, 2 % noise",
            lambda folder: drive.record(),
            ("speed",),
            ("torque",),
            ('data.test=["drive[4]"]',),
            {"sees both speeds": ('model.sees="both speeds"',), "linear inputs": ('model.inputs="linear"',)},
            warmup=20,
            unit="rad/s",
        ),
        Project(
            "pendulum",
            "Schmidt and Lipson's pendulum, last fifth as test; both states measured, unknown friction",
            lambda folder: schmidt_lipson.load(find_real("schmidt_lipson", folder)),
            ("theta", "omega"),
            (),
            ('data.test=["swing[4]"]',),
            {
                "sees the angle too": ('model.sees="angle and velocity"',),
                "adds to both rates": ("model.adds_to=[0, 1]", 'model.sees="angle and velocity"'),
            },
            warmup=20,
        ),
        Project(
            "test_cell",
            "Rouchier's test cell, 180 samples, last fifth as test; hidden envelope, unknown effect of the sun",
            lambda folder: building_thermal.load(find_real("building_thermal", folder)),
            ("T_in",),
            ("T_out", "heat", "sun"),
            ('data.test=["cell[4]"]',),
            {"linear inputs": ('model.inputs="linear"',), "sees the weather": ('model.sees="weather"',)},
            warmup=5,
            unit="degC",
        ),
        Project(
            "emps",
            "EMPS positioning drive at 100 Hz, official test record; hidden velocity, unknown friction",
            lambda folder: emps.load(find_real("emps", folder), every=10),
            ("position",),
            ("voltage",),
            ('data.test=["test"]',),
            {
                "sees the position too": ('model.sees="position and velocity"',),
                "windows of 100 samples": ("fit.window=100",),
            },
            warmup=20,
            unit="m",
        ),
    )
}
