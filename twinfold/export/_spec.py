"""The names, step length and ranges of an exported twin."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from twinfold.io._names import check_name

Numbers: TypeAlias = Sequence[float | int] | np.ndarray


@dataclass(frozen=True)
class ExportSpec:
    """Names, step length, initial values and ranges of an exported twin.

    **Arguments:**

    - `name`: an identifier; the prefix of every C symbol and file.
    - `states`, `inputs`, `outputs`: the names of the elements of x, w and y.
    - `dt`: the step length, which is fixed in the export.
    - `x0`, `w0`: initial values; `w0` defaults to the middle of the range.
    - `x_low`, `x_high`, `w_low`, `w_high`: the range of the training data, from which the check samples; by default a
      range around the initial values.
    - `parameters`: values that replace those of the twin, for instance those of one run.
    - `units`: name -> unit, for formats that have units.
    - `t0`: the initial time.

    **Raises:** `ValueError` if names and values do not fit together, if a value is not finite, or if a name or unit is
    too long or has a character that a format cannot hold (a control character, for instance).

    **Example:**

    ```python
    spec = tw.export.ExportSpec(
        "spring", states=["position", "velocity"], inputs=["force"], outputs=["position"], dt=0.01,
        x0=[0.5, 0.0], x_low=[-1, -2], x_high=[1, 2], w_low=[-1], w_high=[1], units={"velocity": "m/s"},
    )
    spec.initial_inputs  # array([0.])
    ```
    """

    name: str
    states: Sequence[str]
    inputs: Sequence[str]
    outputs: Sequence[str]
    dt: float | int
    x0: Numbers
    w0: Numbers = ()
    x_low: Numbers = ()
    x_high: Numbers = ()
    w_low: Numbers = ()
    w_high: Numbers = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    t0: float | int = 0.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", self.name):
            raise ValueError(
                f"ExportSpec(name={self.name!r}): use letters, digits and underscores, beginning with a letter."
            )
        check_name(self.name, "ExportSpec(name=...)")
        if not (np.isfinite(self.dt) and self.dt > 0):
            raise ValueError(f"ExportSpec(dt={self.dt}): the step length must be positive.")
        if len(self.x0) != len(self.states):
            raise ValueError(f"ExportSpec(x0=...): {len(self.x0)} values for {len(self.states)} states.")
        if len(self.w0) not in (0, len(self.inputs)):
            raise ValueError(f"ExportSpec(w0=...): {len(self.w0)} values for {len(self.inputs)} inputs.")
        for role in ("t0", "x0", "w0", "x_low", "x_high", "w_low", "w_high"):
            if not np.isfinite(np.asarray(getattr(self, role), float)).all():
                raise ValueError(f"ExportSpec({role}={getattr(self, role)}): the values must be finite.")
        for role, count in (("x", len(self.states)), ("w", len(self.inputs))):
            low, high = (np.asarray(getattr(self, f"{role}_{end}"), float) for end in ("low", "high"))
            if low.size != high.size or low.size not in (0, count):
                raise ValueError(f"ExportSpec({role}_low, {role}_high): give {count} values each, or none.")
            if not (low <= high).all():
                raise ValueError(f"ExportSpec({role}_low={low}, {role}_high={high}): a lower bound exceeds the upper.")
        for name in [name for pair in self.units.items() for name in pair if name]:
            check_name(name, "ExportSpec(units=...)")
        for role in ("states", "inputs", "outputs"):
            names = [check_name(name, f"ExportSpec({role}=...)") for name in getattr(self, role)]
            if len(set(names)) != len(names):
                raise ValueError(f"ExportSpec({role}={names}): duplicate name.")

    @property
    def initial_inputs(self) -> np.ndarray:
        """w at the start: `w0`, else the middle of the range, else zero."""
        if len(self.w0):
            return np.asarray(self.w0, float)
        if len(self.w_low):
            return (np.asarray(self.w_low, float) + np.asarray(self.w_high, float)) / 2
        return np.zeros(len(self.inputs))

    def ranges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """x_low, x_high, w_low, w_high; without a range, half the magnitude around the initial values."""
        ends = []
        for low, high, centre in (
            (self.x_low, self.x_high, np.asarray(self.x0, float)),
            (self.w_low, self.w_high, self.initial_inputs),
        ):
            spread = 0.5 * np.maximum(np.abs(centre), 0.1)
            ends += [low, high] if len(low) else [centre - spread, centre + spread]
        x_low, x_high, w_low, w_high = (np.asarray(end, float) for end in ends)
        return x_low, x_high, w_low, w_high
