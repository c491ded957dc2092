"""Columns of pandas tables: presence, numbers and times, each error with its column and row."""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinfold.io import unknown_name

MAX_SPAN_DAYS = 36525  # of the timestamps of a run: their nanoseconds must fit into 64 bits
WITHOUT_TIME = "If the times are not in the data, give the time step: dt (data.dt in twinfold.toml)."
MAX_SHOWN = 60  # characters of a cell in a message
# The place of a row, whose number is counted from 0, in its source.
Place = Callable[[int], str]
# A timestamp that ends in Z or an offset: after the hour, so that -01 of the date 2024-01-01 is none.
OFFSET = r"[T ]\d{2}.*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)\s*$"
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*")


def pandas_module() -> Any:
    """pandas, or an `ImportError` that names the extra."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise ImportError("Tables are read with pandas: pip install 'twinfold[table]'.") from None


def row_place(row: int) -> str:
    """The place of a row in a table without lines."""
    return f"row {row}"


def check_columns(frame: Any, argument: str, columns: Sequence[str]) -> None:
    """Raise a `ValueError` that names the argument unless the table has each of the columns exactly once."""
    known = [str(column) for column in frame.columns]
    for column in columns:
        if column not in frame.columns:
            raise ValueError(f"{argument}: there is no column {unknown_name(column, known)}")
        if known.count(column) > 1:
            raise ValueError(f"{argument}: the table has {known.count(column)} columns '{column}'; rename them.")


def to_numbers(cells: Any, where: str, place: Place) -> np.ndarray:
    """A column as float64, NaN for an empty cell; `where` begins the message about a cell that is no number."""
    values = _coerced(cells)
    _refuse(np.isnan(values) & ~cells.isna().to_numpy(), cells, where, place, "a number")
    _refuse(np.isinf(values), cells, where, place, "a finite number")
    return values


def to_times(cells: Any, where: str, place: Place) -> tuple[np.ndarray, bool]:
    """A column of times as float64 seconds, or as datetime64 if it holds timestamps; and whether these are in UTC."""
    pd = pandas_module()
    refuse_empty(cells, where, place, "time")
    if cells.dtype.kind == "m":
        return cells.dt.total_seconds().to_numpy(np.float64), False
    values = _coerced(cells)
    if not np.isnan(values).all():
        _refuse(~np.isfinite(values), cells, where, place, "a finite number")
        return values, False
    parsed = cells.dtype.kind == "M"
    stamps = pd.to_datetime(cells, format=None if parsed else "ISO8601", utc=True, errors="coerce")
    expected = "a number or an ISO 8601 timestamp (for another format, convert the column with pandas.to_datetime)"
    _refuse(stamps.isna().to_numpy(), cells, where, place, expected)
    if parsed:
        in_utc = np.array([cells.dt.tz is not None])
    else:
        in_utc = cells.astype(str).str.contains(OFFSET, regex=True).to_numpy(bool)
    if in_utc.any() and not in_utc.all():
        one, other = int(in_utc.argmax()), int(in_utc.argmin())
        raise ValueError(
            f"{where} has timestamps with an offset from UTC ({_shown(cells, one)} in {place(one)}) and without "
            f"({_shown(cells, other)} in {place(other)}); write all of them with an offset, or none."
        )
    times = stamps.dt.tz_localize(None).to_numpy()
    check_span(times, where)
    return times, bool(in_utc.all())


def to_names(cells: Any) -> np.ndarray:
    """A column as texts, "" for an empty cell. Rows of the same name share one object."""
    codes, values = pandas_module().factorize(cells)  # -1 for an empty cell
    names = map(str, values) if values.dtype == object else values.astype(str)  # pandas refuses lone surrogates
    return np.array([*names, ""], object)[codes]


def check_span(times: np.ndarray, where: str) -> None:
    """Raise a `ValueError` if timestamps span more than a century."""
    first, last = times.min(), times.max()
    if (last - first).astype("timedelta64[D]").astype(int) > MAX_SPAN_DAYS:
        raise ValueError(f"{where} spans more than a century, from {first} to {last}.")


def refuse_empty(cells: Any, where: str, place: Place, kind: str) -> None:
    """Raise a `ValueError` that names the first row whose cell is empty."""
    empty = cells.isna().to_numpy()
    if empty.any():
        raise ValueError(f"{where} is empty in {place(int(empty.argmax()))}; every row needs a {kind}.")


def _coerced(cells: Any) -> np.ndarray:
    if cells.dtype.kind == "O":
        cells = pandas_module().to_numeric(cells.astype(object), errors="coerce")
    elif cells.dtype.kind not in "biuf":  # pandas would convert timestamps to nanoseconds
        return np.full(len(cells), np.nan)
    return cells.to_numpy(np.float64, na_value=np.nan)


def _refuse(bad: np.ndarray, cells: Any, where: str, place: Place, expected: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        comma = DECIMAL_COMMA.fullmatch(str(cells.iloc[row]))
        hint = " Write numbers with points, not with decimal commas." if comma else ""
        raise ValueError(f"{where} has {_shown(cells, row)} in {place(row)}, which is not {expected}.{hint}")


def _shown(cells: Any, row: int) -> str:
    """A cell in a message: control characters are escaped, a long text is cut."""
    text = str(cells.iloc[row])
    return repr(text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}...")
