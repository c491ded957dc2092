"""The layout of a source: which columns it has, in which units, and how its rows form runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from twinfold.data._blocks import check_blocks
from twinfold.data._readers.sources import Table
from twinfold.data._readers.table import (
    WITHOUT_TIME,
    Place,
    check_columns,
    pandas_module,
    refuse_empty,
    to_names,
    to_numbers,
    to_times,
)
from twinfold.data._taps import Taps, check_taps, tap_names
from twinfold.io import unknown_name
from twinfold.io._names import check_name

NO_OUTPUT = "nothing measured"  # the output of a source that has inputs only


@dataclass(frozen=True, eq=False)
class Recording:
    """The rows of a run: only the columns in use, under the names and in the units of the twin.

    `time` is float64 seconds or datetime64, `in_utc` if these had offsets; `numbers` is float64, NaN for a missing
    value; `groups` are names, "" for an empty cell, or None; `rows` are numbers among the rows of all tables.
    """

    time: np.ndarray
    numbers: dict[str, np.ndarray]
    groups: np.ndarray | None
    rows: np.ndarray
    in_utc: bool

    def take(self, rows: np.ndarray | slice) -> "Recording":
        """Some of the rows."""
        numbers = {name: values[rows] for name, values in self.numbers.items()}
        groups = None if self.groups is None else self.groups[rows]
        return Recording(self.time[rows], numbers, groups, self.rows[rows], self.in_utc)


@dataclass(frozen=True)
class Layout:
    """How to read a source; the fields are the arguments of `load_dataset`."""

    outputs: Sequence[str]
    time: str = "t"
    inputs: Sequence[str] = ()
    run: str = ""
    group: str = ""
    x0: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    offset: Mapping[str, float] = field(default_factory=dict)
    missing: Sequence[float | int | str] = ()
    fill: str = "hold"
    sort: bool = False
    join: bool = False
    max_step: float | None = None
    blocks: int | None = None
    block_gap: int | None = None
    whole: Sequence[str] = ()
    dt: float | None = None
    records: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    taps: Taps = field(default_factory=dict)

    def __post_init__(self):
        if self.dt is not None and not (np.isfinite(self.dt) and self.dt > 0):
            raise ValueError(f"dt={self.dt}: give a positive time step.")
        for argument, excluded in (("dt", ("join", "max_step")), ("records", ("run", "join"))):
            for other in excluded:
                if getattr(self, argument) and getattr(self, other):
                    raise ValueError(f"{argument} and {other} exclude each other; leave one of them out.")
        for argument in ("outputs", "inputs", "x0"):
            if isinstance(names := getattr(self, argument), str):
                raise ValueError(f"{argument}={names!r}: give a list of columns.")
        for argument in ("time", "outputs", "inputs", "x0", "run", "group"):
            names = getattr(self, argument)
            for name in filter(None, [names]) if isinstance(names, str) else names:
                check_name(self.column(check_name(name, argument)), argument)
        check_taps(self.taps, self.inputs, self.outputs)
        if self.fill not in ("hold", "linear", "refuse"):
            raise ValueError(f'fill={self.fill!r}: give "hold", "linear" or "refuse".')
        if self.blocks is not None:
            check_blocks(self.blocks, self.block_gap, ("blocks", "block_gap"))
        elif self.block_gap is not None:
            raise ValueError(f"block_gap={self.block_gap}: it separates blocks; give `blocks` as well.")
        if self.time in self.numeric and self.dt is None:
            raise ValueError(f"{self.numeric[self.time]}: '{self.time}' is the column of times.")
        numbers = [*([self.time] if self.dt is None else []), *self.numeric]
        used = [*numbers, *filter(None, (self.run, self.group))]
        for argument, known in (("scale", numbers), ("offset", numbers), ("columns", used)):
            for name in getattr(self, argument):
                if name not in known:
                    raise ValueError(f"{argument}: there is no column in use called {unknown_name(name, known)}")
        for argument, factors in (("scale", self.scale), ("offset", self.offset)):
            for name, value in factors.items():
                if not np.isfinite(value) or (argument == "scale" and value == 0):
                    raise ValueError(f"{argument}: that of '{name}' is {value}; give a finite number that is not zero.")
        for name, columns in self.records.items():
            check_name(name, "records")
            for each in columns:
                if each not in used:
                    raise ValueError(f"records.{name}: there is no column in use called {unknown_name(each, used)}")

    @property
    def numeric(self) -> dict[str, str]:
        """The columns of numbers, each with the argument that names it."""
        return {name: argument for argument in ("x0", "inputs", "outputs") for name in getattr(self, argument)}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs of a run."""
        return tuple(self.outputs) or (NO_OUTPUT,)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs of a run: the columns, then their taps."""
        return (*self.inputs, *tap_names(self.taps))

    def column(self, name: str) -> str:
        """The name of a column in the source."""
        return self.columns.get(name, name)

    @property
    def time_column(self) -> str:
        """The column of times that all rows of a source share; "" if there is none."""
        return "" if self.dt is not None or self.records else self.column(self.time)

    def recordings(self, table: Table, first_row: int, *, alone: bool = True) -> dict[str, Recording]:
        """The recording of each run in a table, in order of appearance.

        **Arguments:** `table`; `first_row`, the number of its first row among the rows of all tables; `alone`: there is
        no other table.

        **Raises:** `ValueError` that names the column and the row. If `join`, a column of numbers may be absent.
        """
        if self.records:
            return self._records(table, first_row, alone)
        frame = table.frame if self.dt is None or self.run else self._without_end(table.frame)
        if not len(frame):
            raise ValueError("the table has no rows.")
        time, in_utc = self._times(frame, table.place)
        numbers = {
            name: self._numbers(frame[self.column(name)], name, argument, table.place)
            for name, argument in self.numeric.items()
            if self._present(frame, name, argument)
        }
        groups = None
        if self.group and self._present(frame, self.group, "group"):
            groups = to_names(frame[self.column(self.group)])
        whole = Recording(time, numbers, groups, first_row + np.arange(len(frame)), in_utc)
        if not self.run:
            return {check_name(table.run, "run"): whole}
        check_columns(frame, "run", [self.column(self.run)])
        where = f"run: column '{self.column(self.run)}'"
        runs = frame[self.column(self.run)]
        refuse_empty(runs, where, table.place, "run")
        codes, names = pandas_module().factorize(to_names(runs))
        # In one block each, so that a recording is a slice.
        whole, ends = whole.take(np.argsort(codes, kind="stable")), np.cumsum(np.bincount(codes))
        spans = zip(names, np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True)
        return {check_name(name, where): whole.take(slice(begin, end)) for name, begin, end in spans}

    def _records(self, table: Table, first_row: int, alone: bool) -> dict[str, Recording]:
        """The recording of each of `records`, whose columns are beside each other in a table."""
        found = {}
        for record, columns in self.records.items():
            own = replace(self, columns={**self.columns, **columns}, records={})
            name = record if alone else f"{table.run} {record}"
            try:
                found |= own.recordings(table._replace(run=name, frame=own._without_end(table.frame)), first_row)
            except ValueError as error:
                raise ValueError(f"records.{record}: {error}") from None
        return found

    def _without_end(self, frame: Any) -> Any:
        """The table up to the last row in which one of the columns of numbers has a value."""
        for name, argument in self.numeric.items():
            check_columns(frame, argument, [self.column(name)])
        measured = [~_with_gaps(frame[self.column(name)], self.missing).isna().to_numpy() for name in self.numeric]
        rows = np.flatnonzero(np.any(measured, axis=0)) if measured else np.arange(len(frame))
        return frame.iloc[: rows[-1] + 1 if rows.size else 0]

    def check_joined(self, recordings: Iterable[Recording]) -> None:
        """Raise a `ValueError` for a column in use that none of the recordings to join has."""
        recordings = list(recordings)
        present = {name for each in recordings for name in each.numbers}
        missing = [(argument, name) for name, argument in self.numeric.items() if name not in present]
        if self.group and all(each.groups is None for each in recordings):
            missing.append(("group", self.group))
        for argument, name in missing:
            raise ValueError(f"{argument}: no file has a column '{self.column(name)}'.")

    def _present(self, frame: Any, name: str, argument: str) -> bool:
        if self.join and self.column(name) not in frame.columns:
            return False
        check_columns(frame, argument, [self.column(name)])
        return True

    def _times(self, frame: Any, place: Place) -> tuple[np.ndarray, bool]:
        if self.dt is not None:
            # Counted within the run, once its rows are together.
            return np.zeros(len(frame)), False
        column = self.column(self.time)
        if column not in frame.columns:
            known = [str(each) for each in frame.columns]
            raise ValueError(f"time: there is no column {unknown_name(column, known)} {WITHOUT_TIME}")
        check_columns(frame, "time", [column])
        times, in_utc = to_times(frame[column], f"time: column '{column}'", place)
        if self.time not in self.scale and self.time not in self.offset:
            return times, in_utc
        if times.dtype.kind != "f":
            raise ValueError(f"scale: column '{column}' holds timestamps, which have no unit to change.")
        return self._converted(times, self.time), False

    def _numbers(self, cells: Any, name: str, argument: str, place: Place) -> np.ndarray:
        where = f"{argument}: column '{self.column(name)}'"
        return self._converted(to_numbers(_with_gaps(cells, self.missing), where, place), name)

    def _converted(self, values: np.ndarray, name: str) -> np.ndarray:
        return values * self.scale.get(name, 1.0) + self.offset.get(name, 0.0)


def _with_gaps(cells: Any, missing: Sequence[float | int | str]) -> Any:
    """The cells, empty where a value marks a missing one."""
    if not missing:
        return cells
    texts = [value for value in missing if isinstance(value, str)]
    values = [value for value in missing if not isinstance(value, str)]
    marked = cells.astype(object).isin(texts).to_numpy()
    coerced = pandas_module().to_numeric(cells.where(~marked), errors="coerce")
    return cells.astype(object).mask(marked | coerced.isin(values).to_numpy(), np.nan)
