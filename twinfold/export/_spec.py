"""What an exported twin is called, at which step it runs, and over which range it is checked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

Numbers: TypeAlias = Sequence[float | int] | np.ndarray


@dataclass(frozen=True)
class ExportSpec:
    """Names, step, start values and ranges of an exported twin.

    **Arguments:**

    - `name`: of the exported step; an identifier, with which every C symbol begins.
    - `states`, `inputs`, `outputs`: their names, in the order of x, w and y.
    - `dt`: the length of a step, fixed in what is exported.
    - `x0`, `w0`: start values.
    - `x_low`, `x_high`, `w_low`, `w_high`: the range of the training data; the check draws its states from it.
    - `parameters`: values that replace those of the twin (of one run, say).
    - `units`: name -> unit, for what can show it.
    - `t0`: the time at the start.
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
            raise ValueError(f"ExportSpec(name={self.name!r}): give letters, digits and underscores, a letter first.")
        if not (np.isfinite(self.dt) and self.dt > 0):
            raise ValueError(f"ExportSpec(dt={self.dt}): the step must be positive.")
        if len(self.x0) != len(self.states):
            raise ValueError(f"ExportSpec(x0=...): {len(self.x0)} values for {len(self.states)} states.")
        if len(self.w0) not in (0, len(self.inputs)):
            raise ValueError(f"ExportSpec(w0=...): {len(self.w0)} values for {len(self.inputs)} inputs.")
        for role, count in (("x", len(self.states)), ("w", len(self.inputs))):
            low, high = (np.asarray(getattr(self, f"{role}_{end}"), float) for end in ("low", "high"))
            if low.size != high.size or low.size not in (0, count):
                raise ValueError(f"ExportSpec({role}_low, {role}_high): give one value each for {count} columns.")
            if not (low <= high).all():
                raise ValueError(
                    f"ExportSpec({role}_low={low}, {role}_high={high}): a lower end is above an upper one."
                )
        for role in ("states", "inputs", "outputs"):
            names = list(getattr(self, role))
            if len(set(names)) != len(names):
                raise ValueError(f"ExportSpec({role}={names}): a name is there twice.")

    @property
    def first_input(self) -> np.ndarray:
        """w at the start: `w0`, or the middle of the range, or zero."""
        if len(self.w0):
            return np.asarray(self.w0, float)
        if len(self.w_low):
            return (np.asarray(self.w_low, float) + np.asarray(self.w_high, float)) / 2
        return np.zeros(len(self.inputs))

    def ranges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """x_low, x_high, w_low, w_high; around the start values, by their own size, where no range is known."""
        x0, w0 = np.asarray(self.x0, float), self.first_input
        spread_x, spread_w = 0.5 * np.maximum(np.abs(x0), 0.1), 0.5 * np.maximum(np.abs(w0), 0.1)
        x_low, x_high = (self.x_low, self.x_high) if len(self.x_low) else (x0 - spread_x, x0 + spread_x)
        w_low, w_high = (self.w_low, self.w_high) if len(self.w_low) else (w0 - spread_w, w0 + spread_w)
        return tuple(np.asarray(end, float) for end in (x_low, x_high, w_low, w_high))  # type: ignore[return-value]
