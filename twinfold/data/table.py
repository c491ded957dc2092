"""Tables to data sets: a row for each time, a column for each channel, and a column that tells runs apart.

Channels measured at different times are rows with empty cells: an output is then missing, an input is filled.
"""

import importlib
import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from twinfold.data.dataset import Dataset
from twinfold.names import unknown_name

Fill = Literal["hold", "linear", "refuse"]


def from_frame(
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
) -> Dataset:
    """A data set from a pandas data frame.

    **Arguments:**

    - `time`: the column of times: numbers (seconds), or timestamps, which become seconds since the run's
      first row.
    - `outputs`: the columns of outputs; an empty cell was not measured.
    - `run`: the column that names the run of a row; all rows are one run, "0", when left out.
    - `inputs`: the columns of inputs.
    - `x0`: the columns whose first row in a run is its initial state.
    - `group`: the column that names what a run is of (its machine, its cell): runs of a group share its parameters.
    - `fill`: what an empty input cell holds: the last value (before the first one, the first), a value linear
      in time, or nothing: `"refuse"`.
    - `sort`: put the rows of each run in order of time; when False, times that go backwards are an error.

    **Raises:** `ValueError` that names the column, and the row (counted from 0, without the header).
    """
    pd = _pandas()
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"frame is a {type(frame).__name__}; give a pandas.DataFrame.")
    if fill not in ("hold", "linear", "refuse"):
        raise ValueError(f'fill={fill!r}: give "hold", "linear" or "refuse".')
    single = {name: [column] for name, column in (("time", time), ("run", run), ("group", group)) if column is not None}
    for argument, columns in (single | {"outputs": outputs, "inputs": inputs, "x0": x0 or ()}).items():
        _check_columns(frame, argument, columns)
    if not outputs:
        raise ValueError("outputs is empty; name at least one column.")
    if not len(frame):
        raise ValueError("the table has no rows.")
    times = _times(pd, frame[time], time)
    measured = _numbers(pd, frame, outputs, "outputs")
    given = _numbers(pd, frame, inputs, "inputs")
    initial = _numbers(pd, frame, x0 or (), "x0")
    ts, ys, ws, x0s, names, groups = [], [], [], [], [], []
    for name, rows in _rows_by_run(frame, run).items():
        if sort:
            rows = rows[np.argsort(times[rows], kind="stable")]
        t = times[rows]
        _check_order(t, rows, frame[time], name)
        if t.dtype == np.int64:  # nanoseconds, from timestamps
            t = (t - t[0]) / 1e9
        names.append(name)
        groups.append("" if group is None else _group(frame[group].iloc[rows], group, name))
        ts.append(t)
        ys.append(measured[rows])
        ws.append(_filled(t, given[rows], rows, inputs, name, fill))
        x0s.append(initial[rows[0]])
    return Dataset.from_arrays(
        ts,
        ys,
        inputs=ws if inputs else None,
        x0=x0s if x0 else None,
        names=names,
        groups=groups,
        output_names=outputs,
        input_names=inputs,
    )


def _group(values: Any, column: str, run: str) -> str:
    named = sorted({str(value) for value in values.dropna()})
    if len(named) != 1:
        raise ValueError(
            f"group: run '{run}' has {len(named)} names in column '{column}' ({', '.join(named[:3]) or 'none'}); "
            "a run belongs to one group."
        )
    return named[0]


def from_csv(
    path: str | os.PathLike[str],
    *,
    time: str,
    outputs: Sequence[str],
    run: str | None = None,
    inputs: Sequence[str] = (),
    x0: Sequence[str] | None = None,
    group: str | None = None,
    fill: Fill = "hold",
    sort: bool = False,
) -> Dataset:
    """A data set from a comma-separated file with a header; the arguments are those of `from_frame`.

    Times that are not numbers must be ISO 8601 timestamps. Run names are kept as they are written.
    """
    pd = _pandas()
    if not os.path.isfile(path):
        raise FileNotFoundError(f"path: there is no file '{path}'.")
    try:
        with warnings.catch_warnings():
            # pandas only warns when it drops what a row has beyond the header.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                dtype={column: str for column in (run, group) if column is not None},
                index_col=False,
                skipinitialspace=True,
                low_memory=False,
                **_exact(pd),
            )
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: the file is empty; it must have a header and rows.") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: the file is not a comma-separated table: {str(error).strip()}") from None
    try:
        return from_frame(
            frame, time=time, outputs=outputs, run=run, inputs=inputs, x0=x0, group=group, fill=fill, sort=sort
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise ImportError("Tables are read with pandas: pip install twinfold[table].") from None


def _exact(pd: Any) -> dict[str, str]:
    # Up to 3.0 pandas may miss the last bit of a number unless told; from 3.1 on, telling it is deprecated.
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    return {"float_precision": "round_trip"} if version < (3, 1) else {}


def _check_columns(frame: Any, argument: str, columns: Sequence[str]) -> None:
    if isinstance(columns, str):
        raise ValueError(f"{argument}={columns!r}: give a list of columns.")
    known = [str(column) for column in frame.columns]
    for column in columns:
        if column not in frame.columns:
            raise ValueError(f"{argument}: there is no column {unknown_name(column, known)}")
        if known.count(column) > 1:
            raise ValueError(f"{argument}: the table has {known.count(column)} columns '{column}'; rename them.")


def _numbers(pd: Any, frame: Any, columns: Sequence[str], argument: str) -> np.ndarray:
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


def _times(pd: Any, cells: Any, column: str) -> np.ndarray:
    """Times in seconds; of timestamps, whole nanoseconds since the first row: their differences are exact."""
    _refuse_empty(cells, f"time: column '{column}'", "time")
    if cells.dtype.kind == "m":
        return cells.dt.total_seconds().to_numpy(np.float64)
    values = _as_numbers(pd, cells)
    if not np.isnan(values).all():
        _refuse(~np.isfinite(values), cells, f"time: column '{column}'", "a finite number")
        return values
    form = None if cells.dtype.kind == "M" else "ISO8601"
    stamps = pd.to_datetime(cells, format=form, utc=True, errors="coerce")
    _refuse(
        stamps.isna().to_numpy(),
        cells,
        f"time: column '{column}'",
        "a number or an ISO 8601 timestamp (for another form, convert the column with pandas.to_datetime)",
    )
    return (stamps - stamps.iloc[0]).to_numpy("timedelta64[ns]").astype(np.int64)


def _refuse(bad: np.ndarray, cells: Any, where: str, wanted: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(f"{where} has '{cells.iloc[row]}' in row {row}, which is not {wanted}.")


def _refuse_empty(cells: Any, where: str, what: str) -> None:
    empty = cells.isna().to_numpy()
    if empty.any():
        raise ValueError(f"{where} is empty in row {int(empty.argmax())}; every row needs a {what}.")


def _rows_by_run(frame: Any, run: str | None) -> dict[str, np.ndarray]:
    if run is None:
        return {"0": np.arange(len(frame))}
    _refuse_empty(frame[run], f"run: column '{run}'", "run")
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(frame[run].astype(str)):
        rows.setdefault(name, []).append(row)
    return {name: np.array(indices) for name, indices in rows.items()}


def _check_order(times: np.ndarray, rows: np.ndarray, cells: Any, name: str) -> None:
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
