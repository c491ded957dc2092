"""One recorded run: times, outputs, inputs and initial state, validated on construction."""

import dataclasses
import hashlib
from typing import Any

import numpy as np

from twinfold._core import check_times
from twinfold.io._names import check_name


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One recorded run, in float64 and read-only.

    **Arguments:**

    - `name`: the name used in messages and for the parameters of a fitted twin.
    - `ts`: [T] increasing times; the steps need not be equal.
    - `y`: [T, k] outputs, NaN for a missing value; a [T] vector means k = 1.
    - `w`: [T, d] inputs, or None; a [T] vector means d = 1.
    - `x0`: [n] the state at `ts[0]`, or None if it is unknown.
    - `group`: the unit that was measured (a machine, a battery cell). Runs of a group share the parameters declared
      with `Unknown(per_group=True)`. Default: the run is a group by itself.

    **Raises:** `ValueError` that names the argument and the run.

    **Example:**

    ```python
    run = tw.Run("a", ts=np.array([0.0, 0.5, 1.5]), y=np.array([1.0, np.nan, 0.2]))
    run.y.shape  # (3, 1)
    ```
    """

    name: str
    ts: np.ndarray
    y: np.ndarray
    w: np.ndarray | None = None
    x0: np.ndarray | None = None
    group: str = ""

    def __post_init__(self):
        suffix = f"of run '{check_name(self.name, 'name of a run')}'"
        ts = as_floats(self.ts, f"ts {suffix}")
        check_times(ts, f"ts {suffix}")
        y = _columns(self.y, f"ys {suffix}", "outputs", len(ts))
        if np.isinf(y).any():
            raise ValueError(f"ys {suffix} is infinite at {_first(np.isinf(y))}; use NaN for a missing value.")
        if np.isnan(y).all():
            raise ValueError(f"ys {suffix} has no measured value; remove the run.")
        w = None if self.w is None else _columns(self.w, f"inputs {suffix}", "inputs", len(ts))
        if w is not None and not np.isfinite(w).all():
            raise ValueError(
                f"inputs {suffix} is not finite at {_first(~np.isfinite(w))}; an input must be known at every sample: "
                "hold or interpolate it."
            )
        x0 = None if self.x0 is None else as_floats(self.x0, f"x0 {suffix}")
        if x0 is not None and (x0.ndim != 1 or x0.shape[0] == 0):
            raise ValueError(f"x0 {suffix} has shape {x0.shape}; it must be a vector of states.")
        if x0 is not None and not np.isfinite(x0).all():
            raise ValueError(
                f"x0 {suffix} is not finite: {x0}; give every state, or omit x0 and let the twin's `initial` "
                "estimate it."
            )
        object.__setattr__(self, "group", check_name(self.group or self.name, f"group {suffix}"))
        for field, value in (("ts", ts), ("y", y), ("w", w), ("x0", x0)):
            if value is not None:
                value.setflags(write=False)
            object.__setattr__(self, field, value)

    def until(self, samples: int) -> "Run":
        """The first samples of the run."""
        w = None if self.w is None else self.w[:samples]
        return dataclasses.replace(self, ts=self.ts[:samples], y=self.y[:samples], w=w)

    def origin(self, samples: int) -> str:
        """A fingerprint of the first samples: two runs of one name that differ in them are not the same."""
        digest = hashlib.sha256()
        for array in (self.ts, self.y, self.w):
            if array is not None:
                digest.update(portable_bytes(array[:samples]))
        return digest.hexdigest()[:16]

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
        """Number of states n if x0 is given, else 0."""
        return 0 if self.x0 is None else self.x0.shape[0]


def portable_bytes(array: np.ndarray) -> bytes:
    """Its contents, the same on every machine: NaN has many bit patterns, and the byte order depends on the machine."""
    return np.ascontiguousarray(np.where(np.isnan(array), np.nan, array), "<f8").tobytes()


def as_floats(value: Any, name: str) -> np.ndarray:
    """A float64 copy of `value`, or a `ValueError` that names the argument."""
    try:
        array = np.array(value)
        if array.dtype.kind not in "bifuOUS":
            raise TypeError(f"its dtype is {array.dtype}")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}.") from None


def _columns(value: Any, name: str, kind: str, samples: int) -> np.ndarray:
    array = as_floats(value, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[0] != samples or array.shape[1] == 0:
        raise ValueError(
            f"{name} has shape {array.shape}; it must be [{samples}, {kind}]: a row for each of the {samples} times."
        )
    return array


def _first(bad: np.ndarray) -> str:
    sample, column = np.argwhere(bad)[0]
    return f"sample {sample}, column {column}"
