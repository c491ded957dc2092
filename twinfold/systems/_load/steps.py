"""The steps of a load: what is held constant, how long, and what ends it."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Quantity:
    """A value with its unit: V, A, W, or C, the current that empties the cell in an hour."""

    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"

    def amperes(self, capacity: float | int | None, text: str) -> float:
        """A current in A."""
        if self.unit == "A":
            return self.value
        if capacity is None:
            raise ValueError(f"load: '{text}' is in units of C; give capacity=, in Ah.")
        return self.value * capacity


@dataclass(frozen=True, eq=False)
class LoadStep:
    """One step of a load; made by `Load.parse` and `Load.table`.

    `held`: the current in A or C (zero is a rest), the voltage in V or the power in W that is held; of a table, None,
    and its times and currents are in `times` and `currents`. Currents and powers are positive on discharge. `charging`:
    which way the step leads; `duration` in seconds, and `until`, a voltage or current: whichever comes first ends the
    step. `period` between samples in seconds, if it was given.

    **Example:**

    ```python
    (step,) = tw.systems.Load.parse("Charge at 0.5 A until 4.2 V").steps
    step.held.value, step.until.unit  # -0.5, "V"
    ```
    """

    text: str
    held: Quantity | None
    charging: bool = False
    duration: float | None = None
    until: Quantity | None = None
    period: float | None = None
    times: np.ndarray | None = None
    currents: np.ndarray | None = None
