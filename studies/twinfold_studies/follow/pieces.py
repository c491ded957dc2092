"""The parts of the experiment `follow`, each computed and stored by itself, by one process or by several."""

from collections.abc import Callable
from typing import Any, NamedTuple

from twinfold_studies.battery.cells import open_cells
from twinfold_studies.bench.experiment import Options
from twinfold_studies.bench.fingerprint import LIBRARY, STUDIES, fingerprint_of
from twinfold_studies.follow.cells import CELL_SETTINGS, NASA_CELLS, WALKING, cell_results
from twinfold_studies.follow.consistency import exact_results, learned_results
from twinfold_studies.follow.emps import EMPS_SETTINGS, emps_results
from twinfold_studies.follow.learned import TRAINING_SETTINGS
from twinfold_studies.follow.peers import differences
from twinfold_studies.follow.plants import PLANT_SETTINGS, RUNS, SAMPLES
from twinfold_studies.follow.tracking import TRACKING_SETTINGS, tracked
from twinfold_studies.real.loaders.emps import load
from twinfold_studies.real.location import find_real

QUICK_SYSTEMS = ("mass_spring", "rigid_body")
OWN_CODE = (LIBRARY / "estimate", STUDIES / "follow")  # decides the numbers beside the code that all studies share


class Piece(NamedTuple):
    """A part: its `key` in the findings, `name` and `settings` in the store, and how it is computed.

    `system`, if it belongs to one; it then adds rows of models.
    """

    key: str
    title: str
    name: str
    settings: list[Any]
    compute: Callable[[], Any]
    system: str = ""


def size(quick: bool) -> tuple[int, int]:
    """Runs of a plant, and their samples."""
    return (20, 20) if quick else (RUNS, SAMPLES)


def pieces(options: Options) -> list[Piece]:
    """All parts, those first that take longest."""
    quick, where = options.quick, options.data
    runs, samples = size(quick)
    whole = [runs, samples, PLANT_SETTINGS]
    found = [
        Piece(
            "emps",
            "EMPS: coverage of its test record",
            "follow-emps",
            [quick, EMPS_SETTINGS],
            lambda: emps_results(load(find_real("emps", where)), quick=quick),
        )
    ]
    found += [
        Piece(
            name,
            f"consistency of the learned twin: {name}",
            "follow-learned",
            [name, quick, whole, TRAINING_SETTINGS],
            lambda name=name: learned_results(name, runs, samples, quick=quick),
            system=name,
        )
        for name in options.systems
    ]
    found += [
        Piece(
            cell,
            f"state of charge: {cell}",
            "follow-cell",
            [cell, quick, CELL_SETTINGS],
            lambda cell=cell: cell_results(open_cells(where), cell, quick=quick),
        )
        for cell in (WALKING, *NASA_CELLS)
    ]
    found.append(
        Piece(
            "tracking",
            "tracking of a parameter",
            "follow-tracking",
            [quick, TRACKING_SETTINGS],
            lambda: tracked(quick=quick),
        )
    )
    found += [
        Piece(
            name,
            f"consistency: {name}",
            "follow-exact",
            [name, whole],
            lambda name=name: exact_results(name, runs, samples),
            system=name,
        )
        for name in options.systems
    ]
    found.append(Piece("dynamax", "dynamax", "follow-dynamax", [], differences))
    own = fingerprint_of(*OWN_CODE)
    return [piece._replace(settings=[*piece.settings, own]) for piece in found]
