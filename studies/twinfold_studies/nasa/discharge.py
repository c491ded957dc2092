"""One discharge of a cell as it was logged, the current positive on discharge, and what is computed from it."""

import dataclasses
from datetime import datetime
from typing import Literal

import numpy as np

Kind = Literal["cycle", "reference", "walk"]

LOADED = 0.1  # A: what is measured below is the offset of the sensor, not a load


@dataclasses.dataclass(frozen=True)
class Flag:
    """Something about a discharge that one should know before using it.

    **Arguments:** `name`, one of `twinfold.data.nasa.FLAGS`; `reason`, in words and numbers; `remark`, True for what
    every log has and `to_dataset` takes care of: such a flag does not make a discharge unclean.
    """

    name: str
    reason: str
    remark: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Discharge:
    """One discharge, complete: with the rows before the load and after it.

    **Arguments:**

    - `cell`: NASA's name of it, "B0005" or "RW9".
    - `index`: how many discharges of this kind the cell had before, whether or not they could be read.
    - `kind`: `"cycle"` (set #5), `"reference"` (set #11, 1 A) or `"walk"` (set #11, random loads).
    - `time` [s], `voltage` [V], `current` [A, positive on discharge], `temperature` [deg C, NaN where not measured].
    - `ambient`: nominal temperature of the room or chamber, deg C; NaN where it is not known.
    - `published`: the capacity that NASA gives, Ah; NaN where it gives none.
    - `start`: when it began, where that is known.
    - `file`, `cycle`: where it comes from, for messages; `cycle` counts the operations (set #5) or steps (set #11) of
      the .mat file from 0.
    - `notes`: what was repaired while reading.
    - `flags`: what `twinfold.data.nasa.quality` found.

    **Attributes:** `first` and `last`, the first and last row under load (|current| > 0.1 A); 0 and -1 without any.
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
        """What its run is called in a data set: "B0005/0", "RW9/0", "RW26/walk0"."""
        return f"{self.cell}/{'walk' if self.kind == 'walk' else ''}{self.index}"

    @property
    def where(self) -> str:
        """File, cell and cycle, to begin a message with."""
        return place(self.file, self.cell, self.cycle)

    @property
    def under_load(self) -> np.ndarray:
        """For each row, whether a load was connected."""
        return np.abs(self.current) > LOADED

    @property
    def loaded(self) -> slice:
        """The rows from the first to the last under load; the unloaded half periods of a square wave are among them."""
        return slice(self.first, self.last + 1)

    @property
    def tail(self) -> slice:
        """The rows after the load was cut, in which the voltage recovers."""
        return slice(self.last + 1, len(self.time)) if self.carries_load else slice(0, 0)

    @property
    def carries_load(self) -> bool:
        """Whether there is any row under load."""
        return self.last >= self.first

    @property
    def charge(self) -> float:
        """The charge taken out, Ah: trapezoid over all rows, with 0 A where there is no load.

        The load is switched somewhere between two rows, so half of each of these two steps counts.
        """
        return float(np.trapezoid(np.where(self.under_load, self.current, 0.0), self.time) / 3600)

    @property
    def capacity(self) -> float:
        """The published capacity where there is one, else `charge`; Ah."""
        return self.charge if np.isnan(self.published) else self.published

    @property
    def load_current(self) -> float:
        """The median current of the rows under load, A; NaN without load."""
        return float(np.median(self.current[self.under_load])) if self.carries_load else float("nan")

    @property
    def rest_voltage(self) -> float:
        """The voltage at the last row before the load, V; NaN where the log begins under load or has none."""
        return float(self.voltage[self.first - 1]) if self.carries_load and self.first > 0 else float("nan")

    @property
    def end_voltage(self) -> float:
        """The voltage at the last row under load, V; NaN without load."""
        return float(self.voltage[self.last]) if self.carries_load else float("nan")

    @property
    def known_temperature(self) -> np.ndarray:
        """The temperature at every row, deg C: between measured rows linear in time, the ambient where none is."""
        measured = ~np.isnan(self.temperature)
        if not measured.any():
            return np.full(len(self.time), self.ambient)
        return np.interp(self.time, self.time[measured], self.temperature[measured])

    @property
    def clean(self) -> bool:
        """Whether it carries no flag other than remarks."""
        return all(flag.remark for flag in self.flags)

    def has(self, name: str) -> bool:
        """Whether it carries the flag of this name."""
        return any(flag.name == name for flag in self.flags)


def place(file: str, cell: str, cycle: int | None) -> str:
    """File, cell and cycle in words, without those that are not known."""
    parts = [file, f"cell {cell}" if cell else "", "" if cycle is None else f"cycle {cycle}"]
    return ", ".join(part for part in parts if part)
