"""Sources to pandas tables: paths and patterns, and tables of pandas, polars and xarray."""

import glob
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from twinfold.data._readers.files import Format, read_file
from twinfold.data._readers.table import Place, pandas_module, row_place

SINGLE_RUN = "0"  # the name of a run that has no file, or several


class Table(NamedTuple):
    """A pandas table; `run` names its run unless a column does. For messages: its path, and where its rows are."""

    label: str
    run: str
    frame: Any
    place: Place = row_place


def read_tables(
    source: Any, *, time: str, run: str = "", group: str = "", format: Format, folder: Path, join: bool = False
) -> list[Table]:
    """The tables of a source; `time`, `run` and `group` are the names of the columns ("" if there is none).

    **Arguments:** see `load_dataset`. If `join`, files of the same name belong to the same run.

    **Raises:** `ValueError`, or `FileNotFoundError` for a path or pattern without a file.
    """
    if isinstance(source, Mapping) and not hasattr(source, "data_vars"):
        if not source:
            raise ValueError("source is empty; give a table for each run, by name.")
        return [Table(f"run '{name}'", str(name), _as_frame(table, time, run)) for name, table in source.items()]
    if not isinstance(source, str | os.PathLike | list | tuple):
        return [Table("", SINGLE_RUN, _as_frame(source, time, run))]
    patterns = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not patterns:
        raise ValueError("files is empty; name at least one file.")
    matches = [matching_files(os.fspath(pattern), folder) for pattern in patterns]
    paths = list(dict.fromkeys(path for found in matches for path in found))
    joined = len(paths) > 1 and join and all(len(found) == 1 for found in matches)
    single = joined or len(paths) == 1
    names = dict.fromkeys(paths, SINGLE_RUN) if joined else names_of_files(paths, folder, distinct=not join)
    tables = []
    for path in paths:
        frames, place = read_file(path, format, time=time, text_columns=[column for column in (run, group) if column])
        prefix = "" if single else f"{names[path]} "
        tables += [
            Table(str(path), f"{prefix}{element}" if element else names[path], frame, place)
            for element, frame in frames.items()
        ]
    return tables


def matching_files(pattern: str, folder: Path) -> list[Path]:
    """The files that a path or pattern names; a `FileNotFoundError` if there is none."""
    if "\0" in pattern:
        raise ValueError(f"files: {pattern!r} is not a file name.")
    path = folder / pattern
    if path.exists():  # also if its name contains brackets
        return [path]
    found = sorted(Path(match) for match in glob.glob(str(path), recursive=True) if os.path.isfile(match))
    if not found:
        raise FileNotFoundError(f"files: there is no file '{pattern}' in {folder.resolve()}.")
    return found


def names_of_files(paths: Sequence[Path], folder: Path, *, distinct: bool = True) -> dict[Path, str]:
    """Names after the files, without their ending; with their place in `folder` if two have the same name."""
    stems = {path: path.name.split(".")[0] or path.name for path in paths}
    if distinct and len(set(stems.values())) < len(paths):
        # Not the path as it was given: a run has the same name from wherever its file is read.
        return {path: Path(os.path.relpath(path.with_name(stem), folder)).as_posix() for path, stem in stems.items()}
    return stems


def _as_frame(table: Any, time: str, run: str) -> Any:
    """A table of pandas, polars (also lazy) or xarray as a pandas table whose times are a column."""
    pd = pandas_module()
    library = type(table).__module__.partition(".")[0]
    if isinstance(table, pd.DataFrame):
        if time in table.columns:
            return table
        indexed = table.reset_index()
        return indexed if time in indexed.columns else table
    if library == "polars" and hasattr(table, "collect"):
        table = table.collect()
    if library == "polars" and hasattr(table, "get_columns"):
        # Column by column: `to_pandas` needs pyarrow.
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
    # Runs of different length share one array, padded with NaN.
    return frame[frame[names].notna().any(axis=1)].reset_index(drop=True) if run in table.dims else frame
