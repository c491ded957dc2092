"""Tables of other libraries as pandas data frames: polars, xarray, and pandas with its times in the index."""

from typing import Any

from twinfold.data._readers.table import pandas_module


def as_frame(table: Any, *, time: str, run: str) -> Any:
    """`table` as a pandas data frame whose times are a column.

    **Arguments:** `table`, of pandas, polars (also lazy) or xarray; `time`, the column, index or dimension of times;
    `run`, the column or dimension that tells runs apart ("" where there is none).

    **Raises:** `ValueError` for anything else.
    """
    pd = pandas_module()
    library = type(table).__module__.partition(".")[0]
    if isinstance(table, pd.DataFrame):
        return table if time in table.columns else table.reset_index()
    if library == "polars" and hasattr(table, "collect"):
        table = table.collect()
    if library == "polars" and hasattr(table, "get_columns"):
        # Column by column: polars' own way needs pyarrow.
        return pd.DataFrame({column.name: column.to_numpy() for column in table.get_columns()})
    if library == "xarray" and hasattr(table, "data_vars"):
        return _from_xarray(table, time, run)
    raise ValueError(
        f"source is a {type(table).__name__}; give paths, or a table of pandas, polars or xarray (a Dataset)."
    )


def _from_xarray(table: Any, time: str, run: str) -> Any:
    for name in table.dims:
        if name not in (time, run):
            raise ValueError(
                f"the dimension '{name}' is neither the time '{time}' nor the run '{run}'; select along it first, "
                f"as in dataset.isel({name}=0)."
            )
    if time not in table.coords:
        raise ValueError(f"time: there is no coordinate '{time}'; there are: {', '.join(map(str, table.coords))}.")
    names = [str(name) for name in table.data_vars]
    frame = table.to_dataframe(dim_order=[name for name in (run, time) if name in table.dims]).reset_index()
    # Runs of different length lie in one array, filled up with NaN.
    return frame[frame[names].notna().any(axis=1)].reset_index(drop=True) if run in table.dims else frame
