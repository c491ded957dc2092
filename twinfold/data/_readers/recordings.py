"""Recordings to runs: the tables of each run are merged, ordered by time, cut into pieces, and filled."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data._readers.files import Format
from twinfold.data._readers.layout import GROUP, Layout
from twinfold.data._readers.sources import read_tables
from twinfold.data._readers.table import check_span, pandas_module
from twinfold.data._run import Run

TIME_TOLERANCE = 1e-6  # in sampling steps: rows of joined tables that are closer in time become one row
NANOSECONDS = 1e9


def read_runs(source: Any, layout: Layout, *, format: Format, folder: Path) -> tuple[Run, ...]:
    """The runs of a source; see `load_dataset`."""
    time, run, group = (layout.column(name) for name in (layout.time, layout.run, layout.group))
    tables = read_tables(source, time=time, run=run, group=group, format=format, folder=folder, join=layout.join)
    parts: dict[str, list[tuple[str, Any]]] = {}
    for table in tables:
        with _prefixed(table.label):
            for name, frame in layout.standard_tables(table.frame, table.run).items():
                parts.setdefault(name, []).append((table.label, frame))
    if layout.join:
        layout.check_joined({column for labelled in parts.values() for _, frame in labelled for column in frame})
    runs = []
    for name, labelled in parts.items():
        labels, frames = zip(*labelled, strict=True)
        with _prefixed(labels[0] if len(set(labels)) == 1 else ""):
            merged = _merged(name, frames, layout)
            runs += [_run(piece, frame, layout) for piece, frame in _pieces(name, merged, layout)]
    return tuple(runs)


@contextlib.contextmanager
def _prefixed(label: str) -> Iterator[None]:
    """Begin the message of a `ValueError` with `label`."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{label}: {error}" if label else str(error)) from None


def _merged(name: str, frames: tuple[Any, ...], layout: Layout) -> Any:
    """The standard tables of one run as one, ordered by time."""
    if len({frame[layout.time].dtype.kind for frame in frames}) > 1:
        raise ValueError(f"time: column '{layout.time}' holds numbers in one file and timestamps in another.")
    if layout.join:
        return layout.completed(_joined([_ordered(name, frame, layout) for frame in frames], layout.time))
    return _ordered(name, frames[0] if len(frames) == 1 else pandas_module().concat(frames), layout)


def _ordered(name: str, frame: Any, layout: Layout) -> Any:
    """The table sorted by time if `layout.sort`; a `ValueError` names the rows whose times do not increase."""
    if layout.sort:
        frame = frame.sort_values(layout.time, kind="stable")
    times = frame[layout.time].to_numpy()
    increasing = times[1:] > times[:-1]
    if increasing.all():
        return frame
    index = int(np.argmin(increasing))
    rows = f"row {frame.index[index + 1]} ({times[index + 1]}) after row {frame.index[index]} ({times[index]})"
    if times[index + 1] == times[index]:
        raise ValueError(f"time: run '{name}' has the same time twice: {rows}; merge or drop one of the rows.")
    raise ValueError(f"time: run '{name}' goes backwards: {rows}; pass sort=True to sort the rows.")


def _joined(frames: list[Any], time: str) -> Any:
    """An outer join on time: rows of the same time become one, the others have gaps."""
    frames = [frame.set_index(time) for frame in frames]
    if len(frames) > 1 and frames[0].index.dtype.kind == "f":
        # Times that differ by rounding only (0.1 + 0.2 and 0.3) are made equal.
        steps = [np.median(np.diff(frame.index)) for frame in frames if len(frame) > 1]
        times = np.sort(np.concatenate([frame.index.to_numpy() for frame in frames]))
        distinct = times[np.r_[True, np.diff(times) > TIME_TOLERANCE * min(steps, default=0.0)]]
        frames = [frame.set_axis(distinct[np.searchsorted(distinct, frame.index, "right") - 1]) for frame in frames]
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.combine_first(frame)
    return joined.sort_index().rename_axis(time).reset_index()


def _pieces(name: str, frame: Any, layout: Layout) -> list[tuple[str, Any]]:
    """The run cut at every gap of more than `layout.gap` seconds, and each part into `layout.pieces`, by name."""
    if layout.gap is None and layout.pieces is None:
        return [(name, frame)]
    if not layout.group:
        frame = frame.assign(**{GROUP: name})
    ticks, per_second = _ticks(frame[layout.time].to_numpy(), layout)
    gap = np.inf if layout.gap is None else layout.gap * per_second
    stretches = np.split(np.arange(len(frame)), np.flatnonzero(np.diff(ticks) > gap) + 1)
    pieces = [piece for stretch in stretches for piece in np.array_split(stretch, layout.pieces or 1)]
    dropped = sum(len(piece) for piece in pieces if len(piece) < 2)
    if dropped == len(frame):
        raise ValueError(
            f"run '{name}' has {len(frame)} rows; no piece of gap={layout.gap}, pieces={layout.pieces} has two."
        )
    if dropped:
        warnings.warn(f"run '{name}': {dropped} isolated rows between two cuts are dropped.", stacklevel=2)
    names = [name] if len(pieces) == 1 else [f"{name}/{index + 1}" for index in range(len(pieces))]
    return [(each, frame.iloc[piece]) for each, piece in zip(names, pieces, strict=True) if len(piece) > 1]


def _ticks(times: np.ndarray, layout: Layout) -> tuple[np.ndarray, float]:
    """Seconds, or nanoseconds since the first timestamp (their differences are exact); and the ticks per second."""
    if times.dtype.kind == "f":
        return times, 1.0
    check_span(times, f"time: column '{layout.column(layout.time)}'")
    return (times - times[0]).astype("timedelta64[ns]").astype(np.int64), NANOSECONDS


def _run(name: str, frame: Any, layout: Layout) -> Run:
    ticks, per_second = _ticks(frame[layout.time].to_numpy(), layout)
    ts = ticks / per_second
    numbers = {name: frame[name].to_numpy() for name in layout.numeric}
    y = [numbers[column] for column in layout.outputs] or [np.zeros(len(ts))]
    w = [_filled(ts, numbers[column], frame.index, column, name, layout.fill) for column in layout.inputs]
    return Run(
        name,
        ts,
        np.stack(y, axis=1),
        np.stack(w, axis=1) if w else None,
        np.array([numbers[column][0] for column in layout.x0]) if layout.x0 else None,
        _group(name, frame, layout),
    )


def _group(name: str, frame: Any, layout: Layout) -> str:
    if GROUP not in frame:
        return ""
    groups = sorted({str(value) for value in frame[GROUP].dropna()})
    if len(groups) != 1:
        raise ValueError(
            f"group: run '{name}' has {len(groups)} names in column '{layout.column(layout.group)}' "
            f"({', '.join(groups[:3]) or 'none'}); a run belongs to one group."
        )
    return groups[0]


def _filled(ts: np.ndarray, values: np.ndarray, rows: Any, column: str, name: str, fill: str) -> np.ndarray:
    """An input without gaps."""
    known = ~np.isnan(values)
    if not known.any():
        raise ValueError(f"inputs: column '{column}' has no value in run '{name}'; remove the run or the input.")
    if fill == "refuse" and not known.all():
        raise ValueError(
            f"inputs: column '{column}' is empty in row {rows[int(known.argmin())]} of run '{name}'; "
            'pass fill="hold" or fill="linear".'
        )
    if fill == "linear":
        return np.interp(ts, ts[known], values[known])
    # The index of the last known value up to each row; before the first, the first.
    return values[known][np.maximum(np.cumsum(known) - 1, 0)]
