"""Recordings to runs: those of each run are merged, ordered by time, cut, and filled."""

import bisect
import contextlib
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data._blocks import cut_blocks
from twinfold.data._readers.files import Format
from twinfold.data._readers.layout import Layout, Recording
from twinfold.data._readers.sources import Table, read_tables
from twinfold.data._readers.table import Place, check_span
from twinfold.data._run import Run
from twinfold.data._taps import tapped
from twinfold.io._names import check_name

TIME_TOLERANCE = 1e-6  # in sampling steps: rows of joined tables that are closer in time become one row
NANOSECONDS = 1e9
JOINED = -1  # the number of a row that is in no table


def read_runs(source: Any, layout: Layout, *, format: Format, folder: Path) -> tuple[Run, ...]:
    """The runs of a source; see `load_dataset`."""
    run, group = (layout.column(name) for name in (layout.run, layout.group))
    tables = read_tables(
        source, time=layout.time_column, run=run, group=group, format=format, folder=folder, join=layout.join
    )
    first_rows = list(itertools.accumulate((len(table.frame) for table in tables), initial=0))
    parts: dict[str, list[tuple[str, Recording]]] = {}
    for table, first_row in zip(tables, first_rows, strict=False):
        with _prefixed(table.label):
            for name, recording in layout.recordings(table, first_row, alone=len(tables) == 1).items():
                parts.setdefault(name, []).append((table.label, recording))
    if layout.join:
        layout.check_joined(recording for labelled in parts.values() for _, recording in labelled)
    runs = []
    for name, labelled in parts.items():
        labels, recordings = zip(*labelled, strict=True)
        label = labels[0] if len(set(labels)) == 1 else ""
        place = partial(_place, tables, first_rows, not label)
        with _prefixed(label):
            runs += _runs(name, recordings, layout, place)
    return tuple(runs)


@contextlib.contextmanager
def _prefixed(label: str) -> Iterator[None]:
    """Begin the message of a `ValueError` with `label`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{label}: {error}" if label else str(error)) from None


def _place(tables: Sequence[Table], first_rows: Sequence[int], labelled: bool, row: int) -> str:
    """The place of a row, whose number counts those of all tables."""
    index = bisect.bisect_right(first_rows, row) - 1
    place = tables[index].place(row - first_rows[index])
    return f"{place} of {tables[index].label}" if labelled and tables[index].label else place


def _runs(name: str, recordings: Sequence[Recording], layout: Layout, place: Place) -> list[Run]:
    """The run that has these recordings, or what it is cut into."""
    merged, group = _merged(name, recordings, layout, place), _group(name, recordings, layout)
    if layout.max_step is None:
        return _blocks(name, merged, group, layout, place)
    stretches = _stretches(name, merged, layout, layout.max_step)
    return [run for each, rows in stretches for run in _blocks(each, rows, group or name, layout, place)]


def _merged(name: str, recordings: Sequence[Recording], layout: Layout, place: Place) -> Recording:
    """The recordings of one run as one, ordered by time."""
    first, *others = recordings
    if any(each.time.dtype.kind != first.time.dtype.kind for each in others):
        raise ValueError(f"time: column '{layout.time}' holds numbers in one file and timestamps in another.")
    if any(each.in_utc != first.in_utc for each in others):
        raise ValueError(
            f"time: column '{layout.time}' has timestamps with an offset from UTC in one file and without in another; "
            "write all of them with an offset, or none."
        )
    if layout.dt is not None:
        whole = _concatenated(recordings) if others else first
        return replace(whole, time=layout.dt * np.arange(len(whole.time)))
    if layout.join:
        return _joined([_ordered(name, each, layout, place) for each in recordings], layout)
    return _ordered(name, _concatenated(recordings) if others else first, layout, place)


def _concatenated(recordings: Sequence[Recording]) -> Recording:
    first = recordings[0]
    numbers = {name: np.concatenate([each.numbers[name] for each in recordings]) for name in first.numbers}
    time, rows = (np.concatenate([getattr(each, name) for each in recordings]) for name in ("time", "rows"))
    return Recording(time, numbers, None, rows, first.in_utc)


def _ordered(name: str, recording: Recording, layout: Layout, place: Place) -> Recording:
    """The recording sorted by time if `layout.sort`; a `ValueError` names the rows whose times do not increase."""
    if layout.sort:
        recording = recording.take(np.argsort(recording.time, kind="stable"))
    times, numbers = recording.time, recording.rows
    increasing = times[1:] > times[:-1]
    if increasing.all():
        return recording
    index = int(np.argmin(increasing))
    before, after = (place(int(row)) for row in numbers[index : index + 2])
    rows = f"{after} ({times[index + 1]}) after {before} ({times[index]})"
    if times[index + 1] == times[index]:
        raise ValueError(f"time: run '{name}' has the same time twice: {rows}; merge or drop one of the rows.")
    raise ValueError(f"time: run '{name}' goes backwards: {rows}; pass sort=True to sort the rows.")


def _joined(recordings: list[Recording], layout: Layout) -> Recording:
    """An outer join on time: rows of the same time become one, the others have gaps; the first value counts."""
    times = np.unique(np.concatenate([each.time for each in recordings]))
    if len(recordings) > 1 and times.dtype.kind == "f":
        # Times that differ by rounding only (0.1 + 0.2 and 0.3) are made equal.
        steps = [np.median(np.diff(each.time)) for each in recordings if len(each.time) > 1]
        times = times[np.r_[True, np.diff(times) > TIME_TOLERANCE * min(steps, default=0.0)]]
    numbers = {name: np.full(len(times), np.nan) for name in layout.numeric}
    for each in recordings:
        rows = np.searchsorted(times, each.time, "right") - 1
        for name, values in each.numbers.items():
            numbers[name][rows] = np.where(np.isnan(numbers[name][rows]), values, numbers[name][rows])
    return Recording(times, numbers, None, np.full(len(times), JOINED), recordings[0].in_utc)


def _stretches(name: str, recording: Recording, layout: Layout, max_step: float) -> list[tuple[str, Recording]]:
    """The run cut at every step of more than `max_step` seconds, by name."""
    ticks, per_second = _ticks(recording.time, layout)
    count = len(ticks)
    stretches = np.split(np.arange(count), np.flatnonzero(np.diff(ticks) > max_step * per_second) + 1)
    dropped = sum(len(rows) for rows in stretches if len(rows) < 2)
    if dropped == count:
        raise ValueError(f"run '{name}' has {count} rows, and no two are within max_step={max_step}.")
    if dropped:
        warnings.warn(f"run '{name}': {dropped} isolated rows between two cuts are dropped.", stacklevel=2)
    names = [name] if len(stretches) == 1 else [f"{name}[{index}]" for index in range(len(stretches))]
    return [(each, recording.take(rows)) for each, rows in zip(names, stretches, strict=True) if len(rows) > 1]


def _ticks(times: np.ndarray, layout: Layout) -> tuple[np.ndarray, float]:
    """Seconds, or nanoseconds since the first timestamp (their differences are exact); and the ticks per second."""
    if times.dtype.kind == "f":
        return times, 1.0
    check_span(times, f"time: column '{layout.column(layout.time)}'")
    return (times - times[0]).astype("timedelta64[ns]").astype(np.int64), NANOSECONDS


def _blocks(name: str, recording: Recording, group: str, layout: Layout, place: Place) -> list[Run]:
    """The run, or its blocks: cut after inputs were filled and delayed, so that their values pass across a cut."""
    run = _run(name, recording, group, layout, place)
    run = tapped(run, layout.inputs, layout.taps, "linear" if layout.fill == "linear" else "hold")
    if layout.blocks is None or name in layout.whole:
        return [run]
    states = np.stack([recording.numbers[column] for column in layout.x0], axis=1) if layout.x0 else None
    return cut_blocks(run, layout.blocks, layout.block_gap, states)


def _run(name: str, recording: Recording, group: str, layout: Layout, place: Place) -> Run:
    ticks, per_second = _ticks(recording.time, layout)
    ts, numbers = ticks / per_second, recording.numbers
    y = [numbers[column] for column in layout.outputs] or [np.zeros(len(ts))]
    w = [_filled(ts, recording, column, name, layout.fill, place) for column in layout.inputs]
    x0 = np.array([numbers[column][0] for column in layout.x0]) if layout.x0 else None
    return Run(name, ts, np.stack(y, axis=1), np.stack(w, axis=1) if w else None, x0, group)


def _group(name: str, recordings: Sequence[Recording], layout: Layout) -> str:
    if not layout.group:
        return ""
    groups = sorted({group for each in recordings if each.groups is not None for group in each.groups if group})
    if len(groups) != 1:
        raise ValueError(
            f"group: run '{name}' has {len(groups)} names in column '{layout.column(layout.group)}' "
            f"({', '.join(groups[:3]) or 'none'}); a run belongs to one group."
        )
    return check_name(groups[0], "group")


def _filled(ts: np.ndarray, recording: Recording, column: str, name: str, fill: str, place: Place) -> np.ndarray:
    """An input without gaps."""
    values = recording.numbers[column]
    known = ~np.isnan(values)
    if known.all():
        return values
    if not known.any():
        raise ValueError(f"inputs: column '{column}' has no value in run '{name}'; remove the run or the input.")
    if fill == "refuse":
        index = int(known.argmin())
        row = int(recording.rows[index])
        where = f"at time {ts[index]:g}" if row == JOINED else f"in {place(row)}"
        raise ValueError(
            f"inputs: column '{column}' is empty {where} of run '{name}'; pass fill=\"hold\" or fill=\"linear\"."
        )
    if fill == "linear":
        return np.interp(ts, ts[known], values[known])
    # The index of the last known value up to each row; before the first, the first.
    return values[known][np.maximum(np.cumsum(known) - 1, 0)]
