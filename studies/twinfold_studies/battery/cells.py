"""Which cells there are, which of their discharges are used, and as what runs."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from twinfold.data import Dataset, Run
from twinfold_studies.battery.fleet import synthetic_fleet
from twinfold_studies.nasa import Collection, Discharge, find, load, to_dataset

GROUPS = ("2A_RT", "4A_RT", "43C", "4C_1A", "4C_2A")
JUMP = 0.05  # A; a larger change of the current is a change of load
EVERY = 18.0  # s between the samples of a discharge at constant current that is trained on


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """The measurements of an experiment; `synthetic` where there are none and a fleet was made up."""

    collection: Collection
    synthetic: bool

    @property
    def source(self) -> str:
        """What tables and figures say of where the numbers come from."""
        return "SYNTHETIC fleet, not measured" if self.synthetic else "NASA PCoE data sets #5 and #11"


def open_cells(where: str = "") -> Cells:
    """NASA's cells, from `where` or where they are found; a synthetic fleet where there are none."""
    try:
        folder = find(where or None)
    except FileNotFoundError:
        if where:
            raise
        return Cells(synthetic_fleet(), synthetic=True)
    return Cells(load(os.fspath(folder)), synthetic=False)


def group_of(discharge: Discharge) -> str:
    """The group that a discharge is counted in, by ambient temperature and load; empty for the few outside of all."""
    load, warm = round(discharge.load_current), discharge.ambient
    if 20 <= warm <= 26 and load in (2, 4):
        return f"{load}A_RT"
    if warm > 40 and load == 4:
        return "43C"
    return f"4C_{load}A" if warm < 10 and load in (1, 2) else ""


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """A cell, its first clean discharge and its next one."""

    cell: str
    group: str
    first: Discharge
    next: Discharge


def first_two(collection: Collection, group: Callable[[Discharge], str]) -> list[Pair]:
    """The first two discharges of every cell that has so many; `group` names that of its first."""
    return [
        Pair(cell, group(each[0]), each[0], each[1]) for cell, each in collection.by_cell().items() if len(each) > 1
    ]


def pairs(cells: Cells) -> list[Pair]:
    """The first two clean discharges of every cell at constant current."""
    return first_two(cells.collection.select(kind="cycle", clean=True), group_of)


def taken_out(ts: np.ndarray, current: np.ndarray) -> np.ndarray:
    """The charge taken out at each time, C, by currents [..., T] that are held until the next one."""
    steps = np.diff(ts) * current[..., :-1]
    return np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, axis=-1)], axis=-1)


def runs_of(discharges: Iterable[Discharge], *, every: float = 0.0) -> Dataset:
    """Discharges from their first row until the load is cut; thinned to `every` seconds, each change of load kept."""
    data = to_dataset(discharges, rows="start")
    return data if every == 0 else dataclasses.replace(data, runs=tuple(thinned(run, every) for run in data.runs))


def thinned(run: Run, every: float) -> Run:
    """Samples at least `every` apart, with those on both sides of a change of load (the current is held between)."""
    assert run.w is not None
    change = np.abs(np.diff(run.w[:, 0])) > JUMP
    needed = np.concatenate([[True], change]) | np.concatenate([change, [True]])
    kept = [0]
    for index in range(1, len(run.ts)):
        if needed[index] or run.ts[index] - run.ts[kept[-1]] >= every - 1e-9:
            kept.append(index)
    return dataclasses.replace(run, ts=run.ts[kept], y=run.y[kept], w=run.w[kept])


def folds(found: Sequence[Pair], count: int) -> list[tuple[list[Pair], list[Pair]]]:
    """(others, these) `count` times: every cell is among `these` once, each group spread over the folds."""
    ordered = sorted(found, key=lambda pair: (pair.group, pair.cell))
    return [
        ([pair for index, pair in enumerate(ordered) if index % count != fold], ordered[fold::count])
        for fold in range(count)
    ]
