"""The family of synthetic records on which defaults are chosen; each has a test record of its own."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax

from twinfold_studies.bench.cache import Skipped, cached, record_skips, stored
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
    "worn-slide": (lambda draw: synthetic.slide(draw + 10, wear=0.15), ("position",), ("voltage",), 20, "slide"),
    "tanks": (synthetic.tanks, ("level",), ("pump",), 20, "tanks"),
    "short-tanks": (lambda draw: synthetic.tanks(draw + 10, samples=200), ("level",), ("pump",), 20, "tanks"),
    "drifting-tanks": (lambda draw: synthetic.tanks(draw + 20, drift=0.1), ("level",), ("pump",), 20, "tanks"),
    "drive": (drive.pair, ("speed",), ("torque",), 20, "drive"),
    "swing": (synthetic.swing, ("theta", "omega"), (), 20, "pendulum"),
}
DRAWS = (1, 2, 3)
RECORDS = tuple(f"{kind}-{draw}" for draw in DRAWS for kind in KINDS)  # a call may name some of them


def projects(draw: int, designs: dict[str, tuple[str, ...]]) -> Iterator[Project]:
    """A draw of each kind, with these designs beside the common ones."""
    for name, (load, outputs, inputs, warmup, physics) in KINDS.items():
        made = partial(lambda load, folder: load(draw), load)
        settings = ('data.test=["test"]',)
        yield Project(f"{name}-{draw}", "", made, outputs, inputs, settings, designs, warmup, physics=physics)


def each_record(
    experiment: str,
    designs: dict[str, tuple[str, ...]],
    store: Store,
    options: Options,
    log: Callable[[str], None],
    *,
    refit: bool = False,
) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """The name of a record and the errors of all designs on it; stored under the name of the experiment.

    Of the records that a call does not name, those come along whose errors are stored; a record that has not all of
    them is left out.
    """
    for draw in DRAWS[:1] if options.quick else DRAWS:
        for project in projects(draw, designs):
            wanted = project.name in (options.sets or RECORDS)
            with record_skips(store) if wanted else contextlib.suppress(Skipped):
                yield project.name, _fit_all(project, experiment, designs, store, options, log, refit, wanted)
            jax.clear_caches()


def _fit_all(
    project: Project,
    experiment: str,
    designs: dict[str, tuple[str, ...]],
    store: Store,
    options: Options,
    log: Callable[[str], None],
    refit: bool,
    compute: bool,
) -> dict[str, dict[str, Any]]:
    """The errors of each design on a record, by the name of the design; `compute` those that are not stored."""
    name = f"{experiment}-records"
    settings = {design: [project.name, changes, options.quick] for design, changes in designs.items()}
    found = {design: stored(store, name, each) for design, each in settings.items()}
    missing = [design for design, errors in found.items() if errors is None]
    if missing and not compute:
        raise Skipped(f"{name}: {project.name}", "not computed yet")
    with tempfile.TemporaryDirectory() as place:
        folder, system = Path(place) / "project", None
        for design in missing:
            if system is None:
                project.write(folder)
                system = project.open(folder, FIRST).load_system()
            log(f"{experiment}: {project.name}, {design}")
            fitted = partial(fit_design, project, folder, design, system, refit=refit, quick=options.quick)
            found[design] = cached(store, name, settings[design], fitted)
    return found
