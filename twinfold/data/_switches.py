"""Logs of a switched load: the moment of a switch that no row has, and the rows after the load.

A logger writes a row every few seconds; a load that is switched between two of them has, with inputs that are held, its
old value until the next row. For a cell whose voltage drops within a second, the missing moment costs more than all
else. The logger of most test benches restarts with the load: the switch is one regular interval before the first row
that shows it.
"""

import dataclasses

import numpy as np

from twinfold.data._dataset import Dataset
from twinfold.data._run import Run
from twinfold.io import unknown_name

SOONEST = 0.02  # of the interval, between the row before a switch and the switch
LOGGED = 0.1  # of the regular interval: the rows around a switch that the logger has written itself are closer


def with_switches(data: Dataset, load: str, *, change: float) -> tuple[Dataset, tuple[str, ...]]:
    """Insert a row, without outputs, at each moment at which a load was switched between two rows.

    It is one regular interval (that after the row) before the first row with the new value, or right after the row
    before. Rows that are already closer than a tenth of it have the moment themselves.

    **Arguments:** `data`, whose inputs are held between samples; `load`, the name of the input; `change`, the least
    difference between two rows that is a switch, in its unit.

    **Returns:** the data, and a sentence for each run that was changed. **Raises:** `ValueError` for an unknown input.

    **Example:**

    ```python
    ts = np.array([0.0, 10.0, 20.7, 30.7])
    log = tw.Run("a", ts, y=np.array([4.2, 4.2, 4.0, 3.9]), w=np.array([0.0, 0.0, 2.0, 2.0]))
    data, notes = tw.data.with_switches(tw.Dataset((log,), ("V",), ("I",)), "I", change=0.1)
    data.runs[0].ts  # [0., 10., 10.7, 20.7, 30.7]
    ```
    """
    column = _column(data, load)
    if not change > 0:
        raise ValueError(f"with_switches(change={change}): must be positive.")
    runs, notes = [], []
    for run in data.runs:
        assert run.w is not None
        gaps = np.diff(run.ts)
        regular = np.append(gaps[1:], np.inf)  # the interval after the row with the new value
        switched = (np.abs(np.diff(run.w[:, column])) > change) & (gaps > LOGGED * np.minimum(regular, np.median(gaps)))
        after = np.flatnonzero(switched) + 1
        moments = run.ts[after] - np.minimum(regular[after - 1], (1 - SOONEST) * gaps[after - 1])
        inputs = run.w[after - 1].copy()
        inputs[:, column] = run.w[after, column]
        if len(after):
            notes.append(
                f"{run.name}: {_count(len(after), 'row')} inserted, where {load} was switched between two rows "
                f"(the first at t = {moments[0]:g})."
            )
        runs.append(
            dataclasses.replace(
                run,
                ts=np.insert(run.ts, after, moments),
                y=np.insert(run.y, after, np.nan, axis=0),
                w=np.insert(run.w, after, inputs, axis=0),
            )
        )
    return dataclasses.replace(data, runs=tuple(runs)), tuple(notes)


def without_tail(data: Dataset, load: str, *, idle: float) -> tuple[Dataset, tuple[str, ...]]:
    """Leave out the rows after the last one under load, in which a system recovers.

    **Arguments:** `data`; `load`, the name of the input; `idle`, the largest absolute value that is no load.

    **Returns:** the data, and a sentence for each run that was changed. **Raises:** `ValueError` for an unknown input,
    and for a run with fewer than two rows until the end of its load.

    **Example:**

    ```python
    log = tw.Run("a", np.arange(4.0), y=np.array([4.2, 4.0, 3.9, 4.1]), w=np.array([0.0, 2.0, 2.0, 0.0]))
    data, notes = tw.data.without_tail(tw.Dataset((log,), ("V",), ("I",)), "I", idle=0.1)
    notes  # ("a: 1 row left out after the end of the load at t = 2.",)
    ```
    """
    column = _column(data, load)
    if not idle >= 0:
        raise ValueError(f"without_tail(idle={idle}): cannot be negative.")
    runs, notes = [], []
    for run in data.runs:
        assert run.w is not None
        loaded = np.flatnonzero(np.abs(run.w[:, column]) > idle)
        if not len(loaded) or loaded[-1] < 1:
            raise ValueError(
                f"without_tail(idle={idle:g}): run '{run.name}' has no two rows until the end of a load; {load} is at "
                f"most {np.abs(run.w[:, column]).max():g}. Leave the run out, or choose a smaller idle."
            )
        rows = int(loaded[-1]) + 1
        if rows < len(run.ts):
            notes.append(
                f"{run.name}: {_count(len(run.ts) - rows, 'row')} left out after the end of the load at "
                f"t = {run.ts[rows - 1]:g}."
            )
        runs.append(_until(run, rows))
    return dataclasses.replace(data, runs=tuple(runs)), tuple(notes)


def _until(run: Run, rows: int) -> Run:
    assert run.w is not None
    return dataclasses.replace(run, ts=run.ts[:rows], y=run.y[:rows], w=run.w[:rows])


def _column(data: Dataset, load: str) -> int:
    names = data.input_names or ()
    if load not in names:
        raise ValueError(f"load: there is no input {unknown_name(load, dict.fromkeys(names))}")
    return names.index(load)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
