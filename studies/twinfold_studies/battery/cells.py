"""The cells of the experiment, the discharges that are used, and the runs they become."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from twinfold.data import Dataset, Run
from twinfold_studies.battery.fleet import synthetic_fleet
from twinfold_studies.nasa import Collection, Discharge, find_data, load, to_dataset

GROUPS = ("2A_RT", "4A_RT", "43C", "4C_1A", "4C_2A")
MIN_LOAD_CHANGE = 0.05  # A; a smaller change of the current is noise
SAMPLE_INTERVAL = 18.0  # s between training samples of a discharge at constant current


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """The cells of an experiment; `synthetic`: simulated, because there are no measurements."""

    collection: Collection
    synthetic: bool

    @property
    def source(self) -> str:
        """The source of the data, for tables and figures."""
        return "SYNTHETIC fleet, not measured" if self.synthetic else "NASA PCoE data sets #5 and #11"


def open_cells(where: str = "") -> Cells:
    """NASA's cells, from the folder `where` or the default folders; a synthetic fleet if there are none."""
    try:
        folder = find_data(where or None)
    except FileNotFoundError:
        if where:
            raise
        return Cells(synthetic_fleet(), synthetic=True)
    return Cells(load(os.fspath(folder)), synthetic=False)


def load_group(discharge: Discharge) -> str:
    """The group of a discharge by ambient temperature and load; empty if it belongs to none of `GROUPS`."""
    load, ambient = round(discharge.load_current), discharge.ambient
    if 20 <= ambient <= 26 and load in (2, 4):
        return f"{load}A_RT"
    if ambient > 40 and load == 4:
        return "43C"
    return f"4C_{load}A" if ambient < 10 and load in (1, 2) else ""


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
    """A cell, its first clean discharge and the next one."""

    cell: str
    group: str
    first: Discharge
    next: Discharge


def first_two(collection: Collection, group: Callable[[Discharge], str]) -> list[Pair]:
    """The first two discharges of every cell that has two; `group(first)` names its group."""
    return [
        Pair(cell, group(each[0]), each[0], each[1]) for cell, each in collection.by_cell().items() if len(each) > 1
    ]


def pairs(cells: Cells) -> list[Pair]:
    """The first two clean discharges of every cell at constant current."""
    return first_two(cells.collection.select(kind="cycle", clean=True), load_group)


def discharged(ts: np.ndarray, current: np.ndarray) -> np.ndarray:
    """The discharged charge at each time, in C, for piecewise constant currents [..., T]."""
    steps = np.diff(ts) * current[..., :-1]
    return np.concatenate([np.zeros((*steps.shape[:-1], 1)), np.cumsum(steps, axis=-1)], axis=-1)


def runs_of(discharges: Iterable[Discharge], *, interval: float = 0.0) -> Dataset:
    """Discharges as runs, from the first row to the end of the load; thinned to samples `interval` seconds apart."""
    data = to_dataset(discharges, rows="start")
    return data if interval == 0 else dataclasses.replace(data, runs=tuple(thinned(run, interval) for run in data.runs))


def with_ambient(data: Dataset, discharges: Iterable[Discharge]) -> Dataset:
    """The same runs with the temperature as second output, and that of the surroundings in its place as an input.

    A row that was inserted for the switch of the load has neither voltage nor temperature.
    """
    ambient = {each.name: each.ambient for each in discharges}
    runs = []
    for run in data.runs:
        assert run.w is not None
        celsius = np.where(np.isnan(run.y[:, 0]), np.nan, run.w[:, 1])
        w = np.stack([run.w[:, 0], np.full(len(run.ts), ambient[run.name])], axis=1)
        runs.append(dataclasses.replace(run, y=np.stack([run.y[:, 0], celsius], axis=1), w=w))
    return Dataset(tuple(runs), ("voltage", "temperature"), ("current", "ambient"))


def thinned(run: Run, interval: float) -> Run:
    """Samples at least `interval` apart, and those before and after each change of load (the current is held)."""
    assert run.w is not None
    change = np.abs(np.diff(run.w[:, 0])) > MIN_LOAD_CHANGE
    required = np.concatenate([[True], change]) | np.concatenate([change, [True]])
    rows = [0]
    for index in range(1, len(run.ts)):
        if required[index] or run.ts[index] - run.ts[rows[-1]] >= interval - 1e-9:
            rows.append(index)
    return dataclasses.replace(run, ts=run.ts[rows], y=run.y[rows], w=run.w[rows])


def folds(pairs: Sequence[Pair], count: int) -> list[tuple[list[Pair], list[Pair]]]:
    """Training and test cells of each fold: every cell is tested once, each group is spread over the folds."""
    ordered = sorted(pairs, key=lambda pair: (pair.group, pair.cell))
    return [
        ([pair for index, pair in enumerate(ordered) if index % count != fold], ordered[fold::count])
        for fold in range(count)
    ]
