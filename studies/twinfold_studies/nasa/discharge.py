"""One logged discharge of a cell, with a positive current, and quantities derived from it."""

import dataclasses
from datetime import datetime
from typing import Literal

import numpy as np

Kind = Literal["cycle", "reference", "walk"]

MIN_LOAD = 0.1  # A; smaller currents are the offset of the sensor


@dataclasses.dataclass(frozen=True)
class Flag:
    """An anomaly of a discharge.

    **Arguments:** `name`, one of `FLAGS`; `reason`, with numbers; `remark`: whether it is normal in these logs and
    handled by `to_dataset`, so that the discharge still counts as clean.
    """

    name: str
    reason: str
    remark: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Discharge:
    """One complete discharge, with the rows before and after the load.

    **Arguments:**

    - `cell`: its name, "B0005" or "RW9".
    - `index`: the number of earlier discharges of this kind, including unreadable ones.
    - `kind`: `"cycle"` (set #5), `"reference"` (set #11, 1 A) or `"walk"` (set #11, random loads).
    - `time` [s], `voltage` [V], `current` [A, positive on discharge], `temperature` [deg C, NaN if not measured].
    - `ambient`: nominal temperature of the room or chamber, deg C; NaN if unknown.
    - `published`: the capacity published by NASA, Ah; NaN if there is none.
    - `start`: date and time, if known.
    - `file`, `cycle`: the source, for messages; `cycle` is the index of the operation (set #5) or step (set #11) in the
      .mat file.
    - `notes`: repairs made while reading.
    - `flags`: see `quality_flags`.

    **Attributes:** `first` and `last`, the first and last row under load (|current| > 0.1 A); 0 and -1 without load.
    """

    cell: str
    index: int
    kind: Kind
    time: np.ndarray
    voltage: np.ndarray
    current: np.ndarray
    temperature: np.ndarray
    ambient: float
    published: float
    start: datetime | None
    file: str
    cycle: int | None
    notes: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    first: int = dataclasses.field(init=False)
    last: int = dataclasses.field(init=False)

    def __post_init__(self):
        for name in ("time", "voltage", "current", "temperature"):
            array = np.array(getattr(self, name), np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        rows = np.flatnonzero(self.under_load)
        object.__setattr__(self, "first", int(rows[0]) if len(rows) else 0)
        object.__setattr__(self, "last", int(rows[-1]) if len(rows) else -1)

    def __repr__(self) -> str:
        return f"Discharge({self.name}, {len(self.time)} rows, {self.charge:.4g} Ah)"

    @property
    def name(self) -> str:
        """The name of its run in a data set: "B0005/0", "RW9/0", "RW26/walk0"."""
        return f"{self.cell}/{'walk' if self.kind == 'walk' else ''}{self.index}"

    @property
    def where(self) -> str:
        """File, cell and cycle, for messages."""
        return location(self.file, self.cell, self.cycle)

    @property
    def under_load(self) -> np.ndarray:
        """Whether each row is under load."""
        return np.abs(self.current) > MIN_LOAD

    @property
    def loaded(self) -> slice:
        """The rows from the first to the last under load, including the unloaded half periods of a square wave."""
        return slice(self.first, self.last + 1)

    @property
    def tail(self) -> slice:
        """The rows after the end of the load, in which the voltage recovers."""
        return slice(self.last + 1, len(self.time)) if self.carries_load else slice(0, 0)

    @property
    def carries_load(self) -> bool:
        """Whether any row is under load."""
        return self.last >= self.first

    @property
    def charge(self) -> float:
        """The discharged charge, Ah: trapezoidal rule over all rows, with 0 A without load.

        The load is switched at an unknown time between two rows, so these steps count by half.
        """
        return float(np.trapezoid(np.where(self.under_load, self.current, 0.0), self.time) / 3600)

    @property
    def capacity(self) -> float:
        """The published capacity, or else `charge`; Ah."""
        return self.charge if np.isnan(self.published) else self.published

    @property
    def load_current(self) -> float:
        """The median current of the rows under load, A; NaN without load."""
        return float(np.median(self.current[self.under_load])) if self.carries_load else float("nan")

    @property
    def rest_voltage(self) -> float:
        """The voltage at the last row before the load, V; NaN if the log begins under load or has none."""
        return float(self.voltage[self.first - 1]) if self.carries_load and self.first > 0 else float("nan")

    @property
    def end_voltage(self) -> float:
        """The voltage at the last row under load, V; NaN without load."""
        return float(self.voltage[self.last]) if self.carries_load else float("nan")

    @property
    def known_temperature(self) -> np.ndarray:
        """The temperature at every row, deg C: interpolated linearly, or the ambient if none was measured."""
        measured = ~np.isnan(self.temperature)
        if not measured.any():
            return np.full(len(self.time), self.ambient)
        return np.interp(self.time, self.time[measured], self.temperature[measured])

    @property
    def clean(self) -> bool:
        """Whether it has no flags other than remarks."""
        return all(flag.remark for flag in self.flags)

    def has(self, name: str) -> bool:
        """Whether it has the flag with this name."""
        return any(flag.name == name for flag in self.flags)


def location(file: str, cell: str, cycle: int | None) -> str:
    """File, cell and cycle as text, as far as they are known."""
    parts = [file, f"cell {cell}" if cell else "", "" if cycle is None else f"cycle {cycle}"]
    return ", ".join(part for part in parts if part)
