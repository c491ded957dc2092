"""Tables to data sets: a row for each time, a column for each channel, and a column that tells runs apart.

Channels measured at different times are rows with empty cells: an output is then missing, an input is filled.
"""

import gzip
import importlib
import os
import warnings
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from twinfold.io import unknown_name

Fill = Literal["hold", "linear", "refuse"]
LONGEST = 36525  # days between timestamps of one table, whose nanoseconds are counted


def frame_arrays(
    frame: Any,
    *,
    time: str,
    outputs: Sequence[str],
    run: str | None = None,
    inputs: Sequence[str] = (),
    x0: Sequence[str] | None = None,
    group: str | None = None,
    fill: Fill = "hold",
    sort: bool = False,
) -> dict[str, Any]:
    """The arguments of `Dataset.from_arrays` for a pandas data frame; see `Dataset.from_frame`."""
    pd = pandas_module()
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"frame is a {type(frame).__name__}; give a pandas.DataFrame.")
    if fill not in ("hold", "linear", "refuse"):
        raise ValueError(f'fill={fill!r}: give "hold", "linear" or "refuse".')
    single = {name: [column] for name, column in (("time", time), ("run", run), ("group", group)) if column is not None}
    for argument, columns in (single | {"outputs": outputs, "inputs": inputs, "x0": x0 or ()}).items():
        check_columns(frame, argument, columns)
    if not outputs:
        raise ValueError("outputs is empty; name at least one column.")
    if not len(frame):
        raise ValueError("the table has no rows.")
    times = times_of(pd, frame[time], time)
    measured = numbers(pd, frame, outputs, "outputs")
    given = numbers(pd, frame, inputs, "inputs")
    initial = numbers(pd, frame, x0 or (), "x0")
    ts, ys, ws, x0s, names, groups = [], [], [], [], [], []
    for name, rows in rows_by_run(frame, run).items():
        if sort:
            rows = rows[np.argsort(times[rows], kind="stable")]
        t = times[rows]
        check_order(t, rows, frame[time], name)
        if t.dtype == np.int64:  # nanoseconds, from timestamps
            t = (t - t[0]) / 1e9
        names.append(name)
        groups.append("" if group is None else _group(frame[group].iloc[rows], group, name))
        ts.append(t)
        ys.append(measured[rows])
        ws.append(_filled(t, given[rows], rows, inputs, name, fill))
        x0s.append(initial[rows[0]])
    return {
        "ts": ts,
        "ys": ys,
        "inputs": ws if inputs else None,
        "x0": x0s if x0 else None,
        "names": names,
        "groups": groups,
        "output_names": outputs,
        "input_names": inputs,
    }


def _group(values: Any, column: str, run: str) -> str:
    named = sorted({str(value) for value in values.dropna()})
    if len(named) != 1:
        raise ValueError(
            f"group: run '{run}' has {len(named)} names in column '{column}' ({', '.join(named[:3]) or 'none'}); "
            "a run belongs to one group."
        )
    return named[0]


def read_csv(path: str | os.PathLike[str], texts: Sequence[str] = ()) -> Any:
    """A comma-separated file with a header as a pandas data frame; the columns `texts` are kept as they are written."""
    pd = pandas_module()
    if not os.path.isfile(path):
        raise FileNotFoundError(f"path: there is no file '{path}'.")
    try:
        with warnings.catch_warnings():
            # pandas only warns when it drops what a row has beyond the header.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                dtype=dict.fromkeys(texts, str),
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
                **_exact(pd),
            )
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: the file is empty; it must have a header and rows.") from None
    # A damaged compressed file fails in its own ways; OverflowError is a number of thousands of digits.
    except (ValueError, OverflowError, EOFError, zlib.error, gzip.BadGzipFile, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path}: the file is not a comma-separated table: {str(error).strip()}") from None
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(frame.columns) == 1 and separator in str(frame.columns[0]):
            raise ValueError(f"{path}: the columns are separated by {name}; write the file with commas.")
    return frame


def pandas_module() -> Any:
    """pandas, or an `ImportError` that names the extra."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise ImportError("Tables are read with pandas: pip install twinfold[table].") from None


def _exact(pd: Any) -> dict[str, str]:
    # Up to 3.0 pandas may miss the last bit of a number unless told; from 3.1 on, telling it is deprecated.
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    return {"float_precision": "round_trip"} if version < (3, 1) else {}


def check_columns(frame: Any, argument: str, columns: Sequence[str]) -> None:
    """A `ValueError` that names the argument unless the table has each of the columns once."""
    if isinstance(columns, str):
        raise ValueError(f"{argument}={columns!r}: give a list of columns.")
    known = [str(column) for column in frame.columns]
    for column in columns:
        if column not in frame.columns:
            raise ValueError(f"{argument}: there is no column {unknown_name(column, known)}")
        if known.count(column) > 1:
            raise ValueError(f"{argument}: the table has {known.count(column)} columns '{column}'; rename them.")


def numbers(pd: Any, frame: Any, columns: Sequence[str], argument: str) -> np.ndarray:
    """The columns as numbers, NaN where a cell is empty; a `ValueError` names the row that holds something else."""
    table = np.full((len(frame), len(columns)), np.nan)
    for index, column in enumerate(columns):
        cells = frame[column]
        values = _as_numbers(pd, cells)
        where = f"{argument}: column '{column}'"
        _refuse(np.isnan(values) & ~cells.isna().to_numpy(), cells, where, "a number")
        _refuse(np.isinf(values), cells, where, "a finite number")
        table[:, index] = values
    return table


def _as_numbers(pd: Any, cells: Any) -> np.ndarray:
    if cells.dtype.kind == "O":
        cells = pd.to_numeric(cells.astype(object), errors="coerce")
    elif cells.dtype.kind not in "biuf":  # timestamps, which pandas would make nanoseconds of
        return np.full(len(cells), np.nan)
    return cells.to_numpy(np.float64, na_value=np.nan)


def times_of(pd: Any, cells: Any, column: str) -> np.ndarray:
    """Times in seconds; of timestamps, whole nanoseconds since the first row: their differences are exact."""
    clock = clock_of(pd, cells, column)
    if clock.dtype.kind == "f":
        return clock.to_numpy()
    return (clock - clock.iloc[0]).to_numpy("timedelta64[ns]").astype(np.int64)


def clock_of(pd: Any, cells: Any, column: str) -> Any:
    """A column of times as seconds, or as timestamps in UTC."""
    where = f"time: column '{column}'"
    _refuse_empty(cells, where, "time")
    if cells.dtype.kind == "m":
        return cells.dt.total_seconds().astype(np.float64)
    values = _as_numbers(pd, cells)
    if not np.isnan(values).all():
        _refuse(~np.isfinite(values), cells, where, "a finite number")
        return pd.Series(values)
    form = None if cells.dtype.kind == "M" else "ISO8601"
    stamps = pd.to_datetime(cells, format=form, utc=True, errors="coerce").reset_index(drop=True)
    _refuse(
        stamps.isna().to_numpy(),
        cells,
        where,
        "a number or an ISO 8601 timestamp (for another form, convert the column with pandas.to_datetime)",
    )
    if (stamps.max() - stamps.min()).days > LONGEST:
        raise ValueError(f"{where} goes from {stamps.min()} to {stamps.max()}, which is more than a century.")
    return stamps


def _refuse(bad: np.ndarray, cells: Any, where: str, wanted: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"{where} has '{cells.iloc[row]}' in row {row}, which is not {wanted}.")


def _refuse_empty(cells: Any, where: str, what: str) -> None:
    empty = cells.isna().to_numpy()
    if empty.any():
        raise ValueError(f"{where} is empty in row {int(empty.argmax())}; every row needs a {what}.")


def rows_by_run(frame: Any, run: str | None) -> dict[str, np.ndarray]:
    """The rows of each run, in the order of the table."""
    if run is None:
        return {"0": np.arange(len(frame))}
    _refuse_empty(frame[run], f"run: column '{run}'", "run")
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(frame[run].astype(str)):
        rows.setdefault(name, []).append(row)
    return {name: np.array(indices) for name, indices in rows.items()}


def check_order(times: np.ndarray, rows: np.ndarray, cells: Any, name: str) -> None:
    """A `ValueError` that names the rows unless the times of a run increase."""
    steps = np.diff(times)
    if (steps > 0).all():
        return
    index = int(np.argmin(steps > 0))
    before, after = rows[index], rows[index + 1]
    values = f"row {after} ({cells.iloc[after]}) after row {before} ({cells.iloc[before]})"
    if steps[index] == 0:
        raise ValueError(f"time: run '{name}' has the same time twice: {values}; merge or drop one of the rows.")
    raise ValueError(f"time: run '{name}' goes backwards: {values}; pass sort=True to put the rows in order.")


def _filled(
    ts: np.ndarray, table: np.ndarray, rows: np.ndarray, columns: Sequence[str], name: str, fill: Fill
) -> np.ndarray:
    filled = table.copy()
    for index, column in enumerate(columns):
        known = ~np.isnan(table[:, index])
        if not known.any():
            raise ValueError(f"inputs: column '{column}' has no value in run '{name}'; leave the run or the input out.")
        if fill == "refuse" and not known.all():
            raise ValueError(
                f"inputs: column '{column}' is empty in row {rows[int(known.argmin())]} of run '{name}'; "
                'pass fill="hold" or fill="linear".'
            )
        if fill == "linear":
            filled[:, index] = np.interp(ts, ts[known], table[known, index])
        else:
            # The place of the last known value up to each row; before the first one, the first.
            last = np.maximum(np.cumsum(known) - 1, 0)
            filled[:, index] = table[known, index][last]
    return filled
