"""One recorded run: its times, what was measured, its inputs and its initial state, checked on the way in."""

import dataclasses
from typing import Any

import numpy as np

from twinfold._core import check_times


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One recorded run, in float64 and read-only.

    **Arguments:**

    - `name`: what the run is called in messages and in a fitted twin's parameters.
    - `ts`: [T] times, increasing; the steps need not be equal.
    - `y`: [T, k] outputs, NaN where one was not measured; a [T] vector means k = 1.
    - `w`: [T, d] inputs, or None; a [T] vector means d = 1.
    - `x0`: [n] the state at `ts[0]`, or None where it is not known.
    - `group`: what it is a run of (a machine, a battery cell), whose own parameters it shares with the other runs of
      that group; a group by itself when left out.
    """

    name: str
    ts: np.ndarray
    y: np.ndarray
    w: np.ndarray | None = None
    x0: np.ndarray | None = None
    group: str = ""

    def __post_init__(self):
        of_run = f"of run '{self.name}'"
        ts = as_floats(self.ts, f"ts {of_run}")
        check_times(ts, f"ts {of_run}")
        y = _columns(self.y, f"ys {of_run}", "outputs", len(ts))
        if np.isinf(y).any():
            raise ValueError(f"ys {of_run} is infinite at {_first(np.isinf(y))}; put NaN where nothing was measured.")
        if np.isnan(y).all():
            raise ValueError(f"ys {of_run} has no measured value at all; leave the run out.")
        w = None if self.w is None else _columns(self.w, f"inputs {of_run}", "inputs", len(ts))
        if w is not None and not np.isfinite(w).all():
            raise ValueError(
                f"inputs {of_run} is not finite at {_first(~np.isfinite(w))}; an input must be known "
                "at every sample: hold or interpolate it there."
            )
        x0 = None if self.x0 is None else as_floats(self.x0, f"x0 {of_run}")
        if x0 is not None and (x0.ndim != 1 or x0.shape[0] == 0):
            raise ValueError(f"x0 {of_run} has shape {x0.shape}; it must be a vector of states.")
        if x0 is not None and not np.isfinite(x0).all():
            raise ValueError(
                f"x0 {of_run} is not finite: {x0}; give every state, or leave x0 out and let the twin's "
                "`initial` estimate it."
            )
        object.__setattr__(self, "group", self.group or self.name)
        for field, value in (("ts", ts), ("y", y), ("w", w), ("x0", x0)):
            if value is not None:
                value.setflags(write=False)
            object.__setattr__(self, field, value)

    @property
    def outputs(self) -> int:
        """Number of outputs k."""
        return self.y.shape[1]

    @property
    def inputs(self) -> int:
        """Number of inputs d."""
        return 0 if self.w is None else self.w.shape[1]

    @property
    def states(self) -> int:
        """Number of states n where x0 is given, else 0."""
        return 0 if self.x0 is None else self.x0.shape[0]


def as_floats(value: Any, name: str) -> np.ndarray:
    """A float64 copy of `value`, or a `ValueError` that names the argument."""
    try:
        array = np.array(value)
        if array.dtype.kind not in "bifuOUS":
            raise TypeError(f"its dtype is {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}.") from None


def _columns(value: Any, name: str, what: str, samples: int) -> np.ndarray:
    array = as_floats(value, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[0] != samples or array.shape[1] == 0:
        raise ValueError(
            f"{name} has shape {array.shape}; it must be [{samples}, {what}]: a row for each of the {samples} times."
        )
    return array


def _first(bad: np.ndarray) -> str:
    sample, column = np.argwhere(bad)[0]
    return f"sample {sample}, column {column}"
