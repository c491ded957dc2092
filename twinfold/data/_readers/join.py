"""Tables of one recording put together, and one recording cut into runs."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinfold.data._readers.table import check_order, pandas_module, rows_by_run, times_of

SAME = 1e-6  # of a sampling step: times that are as close as this are one


def join_on_time(tables: Sequence[Any], *, time: str, run: str, sort: bool) -> Any:
    """One table with the rows of all of them: those of the same run and time become one row, the others have gaps.

    **Arguments:** `tables`, data frames whose column `time` is seconds or timestamps, and whose column `run` names
    runs; `sort`: rows may come in any order.
    """
    pd = pandas_module()
    if len({table[time].dtype.kind for table in tables}) > 1:
        raise ValueError(f"time: column '{time}' holds numbers in one file and timestamps in another.")
    parts: dict[str, list[Any]] = {}
    for table in tables:
        times = times_of(pd, table[time], time)
        for name, rows in rows_by_run(table, run).items():
            if sort:
                rows = rows[np.argsort(times[rows], kind="stable")]
            check_order(times[rows], rows, table[time], name)
            parts.setdefault(name, []).append(table.iloc[rows].drop(columns=run).set_index(time))
    joined = []
    for name, frames in parts.items():
        whole = _outer(_snapped(frames))
        joined.append(whole.rename_axis(time).reset_index().assign(**{run: name}))
    return pd.concat(joined, ignore_index=True)


def _outer(frames: list[Any]) -> Any:
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.combine_first(frame)
    return whole.sort_index()


def _snapped(frames: list[Any]) -> list[Any]:
    """The same frames, with times that differ by rounding alone (0.1 + 0.2 and 0.3) made equal."""
    if len(frames) == 1 or frames[0].index.dtype.kind != "f":
        return frames
    steps = [np.median(np.diff(frame.index)) for frame in frames if len(frame) > 1]
    close = SAME * min(steps, default=0.0)
    times = np.sort(np.concatenate([frame.index.to_numpy() for frame in frames]))
    first = times[np.r_[True, np.diff(times) > close]]
    return [frame.set_axis(first[np.searchsorted(first, frame.index.to_numpy(), "right") - 1]) for frame in frames]


def cut_runs(
    frame: Any, *, time: str, run: str, group: str | None, gap: float | None, pieces: int | None, sort: bool
) -> tuple[Any, str | None]:
    """The table with its runs cut where more than `gap` seconds lie between two rows, and then each into `pieces`.

    **Returns:** the table, and the column of groups: where there was none, the pieces of a run are a group.
    """
    pd = pandas_module()
    times = times_of(pd, frame[time], time)
    widest = np.inf if gap is None else gap * (1e9 if times.dtype == np.int64 else 1.0)
    names = frame[run].astype(str).to_numpy(dtype=object)
    kept, order = np.ones(len(frame), bool), []
    for name, rows in rows_by_run(frame, run).items():
        if sort:
            rows = rows[np.argsort(times[rows], kind="stable")]
        check_order(times[rows], rows, frame[time], name)
        order.append(rows)
        between = np.split(rows, np.flatnonzero(np.diff(times[rows]) > widest) + 1)
        parts = [part for whole in between for part in (np.array_split(whole, pieces) if pieces else [whole])]
        short = [part for part in parts if len(part) < 2]
        if len(short) == len(parts):
            raise ValueError(f"run '{name}' has {len(rows)} rows; cut with gap={gap}, pieces={pieces} none is left.")
        if short:
            lost = sum(map(len, short))
            warnings.warn(f"run '{name}': {lost} rows stand alone between two cuts; left out.", stacklevel=2)
        for index, part in enumerate(parts):
            names[part] = name if len(parts) == 1 else f"{name}/{index + 1}"
            kept[part] = len(part) > 1
    frame = frame.assign(**{run: names} | ({"run before cut": frame[run]} if group is None else {}))
    rows = np.concatenate(order)
    return frame.iloc[rows[kept[rows]]].reset_index(drop=True), group or "run before cut"
