"""The family of synthetic records on which defaults are chosen; each has a test record of its own."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Options
from twinfold_studies.bench.store import Store
from twinfold_studies.first import drive, synthetic
from twinfold_studies.first.fits import fit_design
from twinfold_studies.first.project import FIRST, Project
from twinfold_studies.real.table import Records

Kind = tuple[Callable[[int], Records], tuple[str, ...], tuple[str, ...], int, str]

KINDS: dict[str, Kind] = {  # records of a draw, outputs, inputs, warm-up, folder of system.py
    "room": (synthetic.room, ("T_in",), ("T_out", "heat", "sun"), 5, "test_cell"),
    "slide": (synthetic.slide, ("position",), ("voltage",), 20, "slide"),
    "worn slide": (lambda draw: synthetic.slide(draw + 10, wear=0.15), ("position",), ("voltage",), 20, "slide"),
    "tanks": (synthetic.tanks, ("level",), ("pump",), 20, "tanks"),
    "short tanks": (lambda draw: synthetic.tanks(draw + 10, samples=200), ("level",), ("pump",), 20, "tanks"),
    "drifting tanks": (lambda draw: synthetic.tanks(draw + 20, drift=0.1), ("level",), ("pump",), 20, "tanks"),
    "drive": (drive.pair, ("speed",), ("torque",), 20, "drive"),
    "swing": (synthetic.swing, ("theta", "omega"), (), 20, "pendulum"),
}


def projects(draw: int, designs: dict[str, tuple[str, ...]]) -> Iterator[Project]:
    """A draw of each kind, with these designs beside the common ones."""
    for name, (load, outputs, inputs, warmup, physics) in KINDS.items():
        made = partial(lambda load, folder: load(draw), load)
        settings = ('data.test=["test"]',)
        yield Project(f"{name} {draw}", "", made, outputs, inputs, settings, designs, warmup, physics=physics)


def fit_each(
    project: Project,
    experiment: str,
    designs: dict[str, tuple[str, ...]],
    store: Store,
    options: Options,
    log: Callable[[str], None],
    *,
    refit: bool = False,
) -> dict[str, dict[str, Any]]:
    """The errors of each design on a record, by the name of the design; stored under the name of the experiment."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "project"
        project.write(folder)
        system = project.open(folder, FIRST).load_system()
        for name, changes in designs.items():
            log(f"{experiment}: {project.name}, {name}")
            fitted = partial(fit_design, project, folder, name, system, refit=refit, quick=options.quick)
            found[name] = cached(store, f"{experiment}-records", [project.name, changes, options.quick], fitted)
    return found
