"""The layout of a source: which columns it has, in which units, and how its rows form runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinfold.data._readers.table import check_columns, pandas_module, refuse_empty, to_numbers, to_times
from twinfold.io import unknown_name

GROUP = "group of the row"  # the column of groups in a standard table
NO_OUTPUT = "nothing measured"  # the output of a source that has inputs only


@dataclass(frozen=True)
class Layout:
    """How to read a source; the fields are the arguments of `load_dataset`.

    A *standard table* has the columns in use only, under the names and in the units of the twin: times in float64
    seconds or datetime64, numbers in float64 with NaN for a missing value, and `GROUP` if `group` is given.
    """

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
    gap: float | None = None
    pieces: int | None = None

    def __post_init__(self):
        for argument in ("outputs", "inputs", "x0"):
            if isinstance(names := getattr(self, argument), str):
                raise ValueError(f"{argument}={names!r}: give a list of columns.")
        if self.fill not in ("hold", "linear", "refuse"):
            raise ValueError(f'fill={self.fill!r}: give "hold", "linear" or "refuse".')
        if self.time in self.numeric:
            raise ValueError(f"{self.numeric[self.time]}: '{self.time}' is the column of times.")
        numbers = [self.time, *self.numeric]
        used = [*numbers, *filter(None, (self.run, self.group))]
        for argument, known in (("scale", numbers), ("offset", numbers), ("columns", used)):
            for name in getattr(self, argument):
                if name not in known:
                    raise ValueError(f"{argument}: there is no column in use called {unknown_name(name, known)}")
        for argument, factors in (("scale", self.scale), ("offset", self.offset)):
            for name, value in factors.items():
                if not np.isfinite(value) or (argument == "scale" and value == 0):
                    raise ValueError(f"{argument}: that of '{name}' is {value}; give a finite number that is not zero.")

    @property
    def numeric(self) -> dict[str, str]:
        """The columns of numbers, each with the argument that names it."""
        return {name: argument for argument in ("x0", "inputs", "outputs") for name in getattr(self, argument)}

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs of a run."""
        return tuple(self.outputs) or (NO_OUTPUT,)

    def column(self, name: str) -> str:
        """The name of a column in the source."""
        return self.columns.get(name, name)

    def standard_tables(self, frame: Any, run: str) -> dict[str, Any]:
        """The standard table of each run in a pandas table, in order of appearance; their index is the row number.

        **Arguments:** `frame`; `run`, the name of the run if no column names the runs.

        **Raises:** `ValueError` that names the column and the row. If `join`, a column of numbers may be absent.
        """
        if not len(frame):
            raise ValueError("the table has no rows.")
        check_columns(frame, "time", [self.column(self.time)])
        standard: dict[str, Any] = {self.time: self._times(frame[self.column(self.time)])}
        for name, argument in self.numeric.items():
            if self._present(frame, name, argument):
                standard[name] = self._numbers(frame[self.column(name)], name, argument)
        if self.group and self._present(frame, self.group, "group"):
            standard[GROUP] = frame[self.column(self.group)].to_numpy(object)
        table = pandas_module().DataFrame(standard)
        if not self.run:
            return {run: table}
        check_columns(frame, "run", [self.column(self.run)])
        runs = frame[self.column(self.run)]
        refuse_empty(runs, f"run: column '{self.column(self.run)}'", "run")
        return dict(list(table.groupby(runs.astype(str).to_numpy(object), sort=False)))

    def completed(self, frame: Any) -> Any:
        """A joined standard table with all columns; those that no source has for this run are empty."""
        return frame.reindex(columns=[self.time, *self.numeric, *([GROUP] if self.group else [])])

    def check_joined(self, present: set[str]) -> None:
        """Raise a `ValueError` for a column in use that is not `present` in any of the tables to join."""
        for name, argument in (self.numeric | ({GROUP: "group"} if self.group else {})).items():
            if name not in present:
                column = self.column(self.group if name == GROUP else name)
                raise ValueError(f"{argument}: no file has a column '{column}'.")

    def _present(self, frame: Any, name: str, argument: str) -> bool:
        if self.join and self.column(name) not in frame.columns:
            return False
        check_columns(frame, argument, [self.column(name)])
        return True

    def _times(self, cells: Any) -> np.ndarray:
        column = self.column(self.time)
        times = to_times(cells, f"time: column '{column}'")
        if self.time not in self.scale and self.time not in self.offset:
            return times
        if times.dtype.kind != "f":
            raise ValueError(f"scale: column '{column}' holds timestamps, which have no unit to change.")
        return self._converted(times, self.time)

    def _numbers(self, cells: Any, name: str, argument: str) -> np.ndarray:
        where = f"{argument}: column '{self.column(name)}'"
        return self._converted(to_numbers(_with_gaps(cells, self.missing), where), name)

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
