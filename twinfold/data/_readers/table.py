"""Columns of pandas tables: presence, numbers and times, each error with its column and row."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from twinfold.io import unknown_name

MAX_SPAN_DAYS = 36525  # of the timestamps of a run: their nanoseconds must fit into 64 bits


def pandas_module() -> Any:
    """pandas, or an `ImportError` that names the extra."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise ImportError("Tables are read with pandas: pip install 'twinfold[table]'.") from None


def check_columns(frame: Any, argument: str, columns: Sequence[str]) -> None:
    """Raise a `ValueError` that names the argument unless the table has each of the columns exactly once."""
    known = [str(column) for column in frame.columns]
    for column in columns:
        if column not in frame.columns:
            raise ValueError(f"{argument}: there is no column {unknown_name(column, known)}")
        if known.count(column) > 1:
            raise ValueError(f"{argument}: the table has {known.count(column)} columns '{column}'; rename them.")


def to_numbers(cells: Any, where: str) -> np.ndarray:
    """A column as float64, NaN for an empty cell; `where` begins the message about a cell that is no number."""
    values = _coerced(cells)
    _refuse(np.isnan(values) & ~cells.isna().to_numpy(), cells, where, "a number")
    _refuse(np.isinf(values), cells, where, "a finite number")
    return values


def to_times(cells: Any, where: str) -> np.ndarray:
    """A column of times as float64 seconds, or as datetime64 in UTC if it holds timestamps."""
    pd = pandas_module()
    refuse_empty(cells, where, "time")
    if cells.dtype.kind == "m":
        return cells.dt.total_seconds().to_numpy(np.float64)
    values = _coerced(cells)
    if not np.isnan(values).all():
        _refuse(~np.isfinite(values), cells, where, "a finite number")
        return values
    form = None if cells.dtype.kind == "M" else "ISO8601"
    stamps = pd.to_datetime(cells, format=form, utc=True, errors="coerce")
    expected = "a number or an ISO 8601 timestamp (for another format, convert the column with pandas.to_datetime)"
    _refuse(stamps.isna().to_numpy(), cells, where, expected)
    times = stamps.dt.tz_localize(None).to_numpy()
    check_span(times, where)
    return times


def check_span(times: np.ndarray, where: str) -> None:
    """Raise a `ValueError` if timestamps span more than a century."""
    first, last = times.min(), times.max()
    if (last - first).astype("timedelta64[D]").astype(int) > MAX_SPAN_DAYS:
        raise ValueError(f"{where} spans more than a century, from {first} to {last}.")


def refuse_empty(cells: Any, where: str, kind: str) -> None:
    """Raise a `ValueError` that names the first row whose cell is empty."""
    empty = cells.isna().to_numpy()
    if empty.any():
        raise ValueError(f"{where} is empty in row {int(empty.argmax())}; every row needs a {kind}.")


def _coerced(cells: Any) -> np.ndarray:
    if cells.dtype.kind == "O":
        cells = pandas_module().to_numeric(cells.astype(object), errors="coerce")
    elif cells.dtype.kind not in "biuf":  # pandas would convert timestamps to nanoseconds
        return np.full(len(cells), np.nan)
    return cells.to_numpy(np.float64, na_value=np.nan)


def _refuse(bad: np.ndarray, cells: Any, where: str, expected: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"{where} has '{cells.iloc[row]}' in row {row}, which is not {expected}.")
