"""Load a data set from files or tables: CSV, Parquet, MATLAB, pandas, polars, xarray."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from twinfold.data._dataset import Dataset
from twinfold.data._readers.files import Format
from twinfold.data._readers.layout import Layout
from twinfold.data._readers.recordings import read_runs
from twinfold.data._readers.sources import read_tables


def load_dataset(
    source: Any,
    *,
    outputs: Sequence[str],
    time: str = "t",
    inputs: Sequence[str] = (),
    run: str = "",
    group: str = "",
    x0: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    scale: Mapping[str, float] | None = None,
    offset: Mapping[str, float] | None = None,
    missing: Sequence[float | int | str] = (),
    fill: Literal["hold", "linear", "refuse"] = "hold",
    sort: bool = False,
    join: bool = False,
    max_step: float | None = None,
    blocks: int | None = None,
    block_gap: int | None = None,
    whole: Sequence[str] = (),
    dt: float | None = None,
    records: Mapping[str, Mapping[str, str]] | None = None,
    taps: Mapping[str, Sequence[float]] | None = None,
    format: Format = "auto",
    folder: str | os.PathLike[str] = ".",
) -> Dataset:
    """Load a data set from files or tables.

    **Arguments:**

    - `source`: a path or pattern, a list of them, a table of pandas, polars or xarray, or a table for each run by name.
      Paths are CSV, Parquet or MATLAB files, relative to `folder`; give the `format` if the ending does not.
    - `outputs`: the columns of outputs; an empty cell is a missing value. May be empty if the source has inputs only,
      to simulate: each run then has one output, of zeros.
    - `time`: the column of times: numbers (seconds), or timestamps, which become seconds since the first row of the
      run.
    - `inputs`: the columns of inputs.
    - `dt`: the time step, where there is no column of times: the rows of a run are this far apart, and `time` is not
      read.
    - `run`: the column that names the run of a row. Default: each file is a run named after it, a table is the run "0".
    - `records`: runs whose columns are side by side in one table: for the name of each run, the columns that it has,
      by the names used here, as in `{"est": {"u": "uEst", "y": "yEst"}, "val": {"u": "uVal", "y": "yVal"}}`. Empty
      cells at the end of a shorter record are left out.
    - `group`: the column that names the group of a run (its machine, its cell); runs of a group share parameters.
    - `x0`: the columns whose first row in a run is its initial state.
    - `columns`: for a name used here, the name of its column in the source.
    - `scale`, `offset`: by name; a value becomes value * scale + offset.
    - `missing`: values in the source that mark a missing value.
    - `fill`: the value of an empty input cell: `"hold"`, the last value (before the first one, the first);
      `"linear"`, interpolated in time; `"refuse"`, an error.
    - `sort`: sort the rows of each run by time; if False, decreasing times are an error.
    - `join`: each path or pattern contains other channels of the same runs, sampled at other times; rows of the same
      run and time become one. The run of a file is its `run` column, or its name; if every pattern is one file, they
      are one run.
    - `max_step`: cut a run wherever two rows are more than this many seconds apart. What a run is cut into is named
      `run[0]`, `run[1]`, ... and forms a group unless `group` is given.
    - `taps`: delayed copies of inputs, as further inputs: for the name of an input its delays, see
      `Dataset.with_taps`. Between samples an input is held, or with `fill="linear"` interpolated.
    - `blocks`, `block_gap`: cut each run into that many blocks, see `Dataset.blocks`. With `x0`, the initial state of a
      block is that of its first row. Runs named in `whole` are not cut.

    **Returns:** a `Dataset`.

    **Raises:** `ValueError` that names the file, the column, and the line of a CSV file, or the row of another source
    (counted from 0); `FileNotFoundError`.

    **Example:**

    ```python
    import pandas as pd

    log = pd.DataFrame({"t": [0, 500, 1000], "U [V]": [12.0, 12.0, 6.0], "I [mA]": [0.0, 950.0, -999.0]})
    data = tw.load_dataset(
        log,
        inputs=["voltage"],
        outputs=["current"],
        columns={"voltage": "U [V]", "current": "I [mA]"},
        scale={"t": 1e-3, "current": 1e-3},
        missing=[-999],
    )
    data.runs[0].y[:, 0]  # [0., 0.95, nan]
    ```
    """
    layout = Layout(
        outputs=outputs,
        time=time,
        inputs=inputs,
        run=run,
        group=group,
        x0=x0,
        columns=columns or {},
        scale=scale or {},
        offset=offset or {},
        missing=missing,
        fill=fill,
        sort=sort,
        join=join,
        max_step=max_step,
        blocks=blocks,
        block_gap=block_gap,
        whole=whole,
        dt=dt,
        records=records or {},
        taps=taps or {},
    )
    runs = read_runs(source, layout, format=format, folder=Path(folder))
    return Dataset(runs, layout.output_names, layout.input_names)


def columns_of(source: Any, *, time: str, format: Format = "auto", folder: str | os.PathLike[str] = ".") -> set[str]:
    """The columns that every table of a source has."""
    tables = read_tables(source, time=time, format=format, folder=Path(folder))
    return set.intersection(*({str(column) for column in table.frame.columns} for table in tables))
