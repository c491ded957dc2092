"""From files and tables of many kinds to a data set: which column is what, in which unit, and what is one run.

data = load_dataset("logs/*.csv", time="t", inputs=["u"], outputs=["current"], columns={"u": "U [V]"})
"""

import contextlib
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from twinfold.data._dataset import Dataset
from twinfold.data._readers.frames import as_frame
from twinfold.data._readers.join import cut_runs, join_on_time
from twinfold.data._readers.mat import read_mat
from twinfold.data._readers.table import Fill, check_columns, clock_of, numbers, pandas_module, read_csv
from twinfold.io import unknown_name

RUN = "run of the row"  # the column of run names in a prepared table
NOTHING = "nothing measured"  # the output of a table that has none
ONE = "0"  # the run of a table that is the only one
ENDINGS = {".csv": "csv", ".csv.gz": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".mat": "mat"}
Format = Literal["auto", "csv", "parquet", "mat"]


def load_dataset(
    source: Any,
    *,
    time: str = "t",
    outputs: Sequence[str],
    inputs: Sequence[str] = (),
    run: str = "",
    group: str = "",
    x0: Sequence[str] = (),
    format: Format = "auto",
    fill: Fill = "hold",
    sort: bool = False,
    join: bool = False,
    columns: Mapping[str, str] | None = None,
    scale: Mapping[str, float] | None = None,
    offset: Mapping[str, float] | None = None,
    missing: Sequence[float | int | str] = (),
    gap: float | None = None,
    pieces: int | None = None,
    folder: str | os.PathLike[str] = ".",
) -> Dataset:
    """A data set from files or tables.

    **Arguments:**

    - `outputs` may be empty where there is nothing but inputs, to simulate: each run then has one output, of zeros.
    - `source`: a path or pattern, several of them, a table of pandas, polars or xarray, or a table for each run, by
      name. Paths are CSV, Parquet or MATLAB files, relative to `folder`; `format` says which where the ending does not.
    - `time`, `outputs`, `inputs`, `run`, `group`, `x0`, `fill`, `sort`: as for `twinfold.data.table.from_frame`.
      Without `run`, each of several files is a run named after it.
    - `columns`: for a name used here, the column it has in the files.
    - `scale`, `offset`: by name; a value becomes value * scale + offset.
    - `missing`: values that stand for "not measured", as they are in the file.
    - `join`: each path or pattern has other channels of the same runs, at times of its own; rows of the same run and
      time become one. A file's run is its `run` column, or its name; one file for each pattern is one run.
    - `gap`: cut a run where more than that many seconds lie between two rows; `pieces`: cut each into so many. The
      pieces of a run are a group unless `group` names another.

    **Returns:** a `Dataset`. **Raises:** `ValueError` that names the file, the column and the row; `FileNotFoundError`.
    """
    meaning = Meaning(time, tuple(outputs), tuple(inputs), run, group, tuple(x0), dict(columns or {}))
    units = Units(dict(scale or {}), dict(offset or {}), tuple(missing))
    units.check(meaning)
    tables = _tables(source, Path(folder), format, meaning, several=join)
    prepared = [_prepared(table, meaning, units, partial=join) for table in tables]
    if join:
        prepared = [_Table("", "", join_on_time([each.frame for each in prepared], time=time, run=RUN, sort=sort))]
    elif _runs_in_several(prepared):
        prepared = [_Table("", "", pandas_module().concat([each.frame for each in prepared], ignore_index=True))]
    parts = [_dataset(table, meaning, fill=fill, sort=sort, gap=gap, pieces=pieces) for table in prepared]
    return Dataset(tuple(run for part in parts for run in part.runs), parts[0].output_names, parts[0].input_names)


def columns_of(source: Any, *, time: str, format: Format = "auto", folder: str | os.PathLike[str] = ".") -> set[str]:
    """The columns that every file or table of a source has."""
    tables = _tables(source, Path(folder), format, Meaning(time, (), (), "", "", (), {}), several=False)
    return set.intersection(*({str(column) for column in table.frame.columns} for table in tables))


@dataclass(frozen=True)
class Meaning:
    """What the columns are: the names that the twin uses, and what the files call them."""

    time: str
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    run: str
    group: str
    x0: tuple[str, ...]
    columns: dict[str, str]

    @property
    def numeric(self) -> dict[str, str]:
        """The columns of numbers, each with the argument that names it."""
        return {
            name: argument
            for argument in ("x0", "inputs", "outputs")
            for name in dict.fromkeys(getattr(self, argument))
        }

    def column(self, name: str) -> str:
        """What the files call `name`."""
        return self.columns.get(name, name)


@dataclass(frozen=True)
class Units:
    """How numbers in the files become those of the twin."""

    scale: dict[str, float]
    offset: dict[str, float]
    missing: tuple[float | int | str, ...]

    def check(self, meaning: Meaning) -> None:
        """A `ValueError` for a name that is not in use, or a factor that is not a number."""
        known = [meaning.time, *meaning.numeric]
        for argument, table in (("scale", self.scale), ("offset", self.offset)):
            for name, value in table.items():
                if name not in known:
                    raise ValueError(f"{argument}: there is no column in use called {unknown_name(name, known)}")
                if not np.isfinite(value) or (argument == "scale" and value == 0):
                    raise ValueError(f"{argument}: that of '{name}' is {value}; give a finite number that is not zero.")
        used = [*known, *filter(None, (meaning.run, meaning.group))]
        for name in meaning.columns:
            if name not in used:
                raise ValueError(f"columns: there is no column in use called {unknown_name(name, used)}")

    def apply(self, name: str, values: Any) -> Any:
        """value * scale + offset."""
        return values * self.scale.get(name, 1.0) + self.offset.get(name, 0.0)

    def changes(self, name: str) -> bool:
        """Whether `apply` does anything."""
        return name in self.scale or name in self.offset


@dataclass(frozen=True)
class _Table:
    label: str  # for messages: the path
    name: str  # of its run, where no column names it
    frame: Any


@contextlib.contextmanager
def _about(label: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{label}: {error}" if label else str(error)) from None


def _tables(source: Any, folder: Path, format: str, meaning: Meaning, *, several: bool) -> list[_Table]:
    time, run = meaning.column(meaning.time), meaning.column(meaning.run)
    if isinstance(source, Mapping) and not hasattr(source, "data_vars"):
        if not source:
            raise ValueError("source is empty; give a table for each run, by name.")
        return [
            _Table(f"run '{name}'", str(name), as_frame(table, time=time, run=run)) for name, table in source.items()
        ]
    if not isinstance(source, str | os.PathLike | list | tuple):
        return [_Table("", ONE, as_frame(source, time=time, run=run))]
    patterns = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not patterns:
        raise ValueError("files is empty; name at least one file.")
    matches = [_matching(os.fspath(pattern), folder) for pattern in patterns]
    paths = list(dict.fromkeys(path for found in matches for path in found))
    alone = len(paths) == 1 or (several and all(len(found) == 1 for found in matches))
    names = dict.fromkeys(paths, "0") if alone else _names(paths, distinct=not several)
    return [table for path in paths for table in _read(path, names[path], format, meaning)]


def _matching(pattern: str, folder: Path) -> list[Path]:
    if "\0" in pattern:
        raise ValueError(f"files: {pattern!r} is not the name of a file.")
    whole = folder / pattern
    if whole.exists():  # also where its name has brackets in it
        return [whole]
    found = sorted(Path(path) for path in glob.glob(str(whole), recursive=True) if os.path.isfile(path))
    if not found:
        raise FileNotFoundError(f"files: there is no file '{pattern}' in {folder.resolve()}.")
    return found


def _names(paths: Sequence[Path], *, distinct: bool) -> dict[Path, str]:
    """Runs named after their files; with the folder where two files have the same name."""
    stems = {path: path.name.split(".")[0] for path in paths}
    if distinct and len(set(stems.values())) < len(paths):
        return {path: path.with_name(path.name.split(".")[0]).as_posix() for path in paths}
    return stems


def _read(path: Path, name: str, format: str, meaning: Meaning) -> list[_Table]:
    if not path.is_file():
        raise ValueError(f"files: {path} is a folder; name the files in it, as in '{path}/*.csv'.")
    kind = format
    if kind == "auto":
        kind = next((kind for ending, kind in ENDINGS.items() if path.name.lower().endswith(ending)), "")
    if kind == "csv":
        texts = [meaning.column(each) for each in (meaning.run, meaning.group) if each]
        return [_Table(str(path), name, read_csv(path, texts))]
    if kind == "parquet":
        return [_Table(str(path), name, _parquet(path, meaning.column(meaning.time)))]
    if kind == "mat":
        tables = read_mat(path, meaning.column(meaning.time))
        before = "" if name == ONE else f"{name} "
        return [
            _Table(str(path), f"{before}{element}" if element else name, frame) for element, frame in tables.items()
        ]
    raise ValueError(
        f'files: the ending of {path} is not one of {", ".join(ENDINGS)}; say what it is with format="csv".'
    )


def _parquet(path: Path, time: str) -> Any:
    pd = pandas_module()
    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise ImportError("Parquet files are read with pyarrow: pip install 'twinfold[parquet]'.") from None
    # A damaged file makes the reader fail in ways of its own.
    except Exception as error:
        raise ValueError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]}).") from None
    return as_frame(frame, time=time, run="")


def _prepared(table: _Table, meaning: Meaning, units: Units, *, partial: bool) -> _Table:
    """The columns in use alone, under their names, in the twin's units; empty where a value is missing."""
    with _about(table.label):
        return _Table(table.label, table.name, _in_use(table, meaning, units, partial))


def _in_use(table: _Table, meaning: Meaning, units: Units, partial: bool) -> Any:
    pd, frame = pandas_module(), table.frame
    if not len(frame):
        raise ValueError("the table has no rows.")
    time = meaning.column(meaning.time)
    check_columns(frame, "time", [time])
    clock = clock_of(pd, frame[time], time)
    if units.changes(meaning.time):
        if clock.dtype.kind != "f":
            raise ValueError(f"scale: column '{time}' holds timestamps, which have no unit to change.")
        clock = units.apply(meaning.time, clock)
    found: dict[str, Any] = {meaning.time: clock.to_numpy() if clock.dtype.kind == "f" else clock}
    for name, argument in meaning.numeric.items():
        column = meaning.column(name)
        if partial and column not in frame.columns:
            continue
        check_columns(frame, argument, [column])
        if name == meaning.time:
            raise ValueError(f"{argument}: '{name}' is the column of times.")
        cells = _without(pd, frame[column], units.missing)
        values = numbers(pd, pd.DataFrame({column: cells}), [column], argument)[:, 0]
        found[name] = units.apply(name, values)
    for argument, name in (("run", meaning.run), ("group", meaning.group)):
        if name and not (partial and argument == "group" and meaning.column(name) not in frame.columns):
            check_columns(frame, argument, [meaning.column(name)])
            found[RUN if argument == "run" else name] = frame[meaning.column(name)].reset_index(drop=True)
    if not meaning.run:
        found[RUN] = table.name
    return pd.DataFrame(found)


def _without(pd: Any, cells: Any, missing: tuple[float | int | str, ...]) -> Any:
    """The cells, empty where one holds a value that stands for a missing one."""
    if not missing:
        return cells
    texts = [value for value in missing if isinstance(value, str)]
    values = [value for value in missing if not isinstance(value, str)]
    marked = cells.astype(object).isin(texts).to_numpy()
    coerced = pd.to_numeric(cells.where(~marked), errors="coerce")
    return cells.astype(object).mask(marked | coerced.isin(values).to_numpy(), np.nan)


def _runs_in_several(tables: Sequence[_Table]) -> bool:
    """Whether a run goes on from one table to the next."""
    runs = [set(table.frame[RUN].dropna().astype(str)) for table in tables]
    return sum(map(len, runs)) > len(set().union(*runs))


def _dataset(
    table: _Table, meaning: Meaning, *, fill: Fill, sort: bool, gap: float | None, pieces: int | None
) -> Dataset:
    frame, group = table.frame, meaning.group or None
    if not meaning.outputs:
        frame = frame.assign(**{NOTHING: 0.0})
    with _about(table.label):
        if gap is not None or pieces is not None:
            frame, group = cut_runs(frame, time=meaning.time, run=RUN, group=group, gap=gap, pieces=pieces, sort=sort)
        return Dataset.from_frame(
            frame,
            time=meaning.time,
            outputs=meaning.outputs or (NOTHING,),
            inputs=meaning.inputs,
            run=RUN,
            x0=meaning.x0 or None,
            group=group,
            fill=fill,
            sort=sort,
        )
