"""The open-circuit voltage of a cell over its state of charge, from a table or from a slow discharge (C/20).

Piecewise linear between the knots and continued beyond the outer ones, so that a count of charge that leaves [0, 1] by
a percent has a voltage and a derivative. Evaluated without a search, as a sum of ramps: fast in a scan, under `vmap`
and in exported C.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._core import Frozen

KNOTS = 101
IDLE = 0.02  # of the largest current; smaller ones are the offset of the sensor
SHORTEST_BRANCH = 0.5  # of the range of charge, that a charge after the discharge must cover to be used


def interpolate(
    at: Float[Array, ""], knots: Float[Array, " K"], values: Float[Array, " K"], *, extend: bool = False
) -> Float[Array, ""]:
    """The piecewise linear function with these values at increasing knots; constant beyond them, or extended."""
    fraction = (at - knots[:-1]) / (knots[1:] - knots[:-1])
    low, high = jnp.zeros_like(fraction), jnp.ones_like(fraction)
    if extend:
        low, high = low.at[0].set(-jnp.inf), high.at[-1].set(jnp.inf)
    return values[0] + jnp.sum((values[1:] - values[:-1]) * jnp.clip(fraction, low, high))


class OpenCircuit(eqx.Module):
    """U(SoC) of a cell at rest, a table of any chemistry.

    **Arguments:** `soc`, increasing states of charge from empty (0) to full (1); `voltage` at these.

    **Attributes:** `capacity` [Ah] of the measurement it was read from, if it was (`from_slow_cycle`).

    **Example:**

    ```python
    ocv = tw.systems.OpenCircuit([0.0, 0.5, 1.0], [3.0, 3.6, 4.2])
    ocv(jnp.array(0.25))  # 3.3
    ```
    """

    soc: Frozen
    voltage: Frozen
    capacity: float | None = eqx.field(static=True)

    def __init__(self, soc: ArrayLike | Sequence, voltage: ArrayLike | Sequence, *, capacity: float | None = None):
        charges, volts = np.asarray(soc, float), np.asarray(voltage, float)
        if charges.ndim != 1 or charges.shape != volts.shape or len(charges) < 2:
            raise ValueError(
                f"OpenCircuit(soc, voltage): the shapes are {charges.shape} and {volts.shape}; give two columns of the "
                "same length."
            )
        if not (np.isfinite(charges).all() and np.isfinite(volts).all()):
            raise ValueError("OpenCircuit(soc, voltage): all values must be finite.")
        if not (np.diff(charges) > 0).all():
            raise ValueError("OpenCircuit(soc=...): the states of charge must increase.")
        if charges[0] < -0.01 or charges[-1] > 1.01:
            raise ValueError(
                f"OpenCircuit(soc=...): from {charges[0]:g} to {charges[-1]:g}; give fractions of the capacity, 0 to 1."
            )
        if not (np.diff(volts) >= 0).all():
            raise ValueError("OpenCircuit(voltage=...): the voltage at rest must not fall as the charge rises.")
        self.soc, self.voltage = Frozen(jnp.asarray(charges)), Frozen(jnp.asarray(volts))
        self.capacity = capacity

    @staticmethod
    def from_slow_cycle(
        time: ArrayLike | Sequence,
        current: ArrayLike | Sequence,
        voltage: ArrayLike | Sequence,
        *,
        knots: int = KNOTS,
        discharge_sign: int = 1,
    ) -> "OpenCircuit":
        """Read the voltage at rest from a slow full discharge (C/20 or slower), with or without the charge after it.

        The charge is counted from the measured current, and the capacity is that of the discharge. The discharge curve
        lies below the voltage at rest and the charge curve above it: where both were measured, their mean is taken.

        **Arguments:** `time` [s], `current` [A] and `voltage` [V], from full to empty; `knots` of the table;
        `discharge_sign=-1` if the current is negative on discharge.

        **Raises:** `ValueError` if there is no discharge, or if it leaves out a part of the range.

        **Example:**

        ```python
        seconds = np.linspace(0, 72000, 500)  # 20 hours at 0.145 A: 2.9 Ah
        ocv = tw.systems.OpenCircuit.from_slow_cycle(seconds, np.full(500, 0.145), np.linspace(4.2, 2.5, 500))
        ocv.capacity  # 2.9
        ```
        """
        ts, i, v = (np.asarray(column, float) for column in (time, current, voltage))
        if not (ts.ndim == 1 and ts.shape == i.shape == v.shape and len(ts) > 1):
            raise ValueError("from_slow_cycle(time, current, voltage): give three columns of the same length.")
        if not (np.isfinite(ts).all() and np.isfinite(i).all() and np.isfinite(v).all() and (np.diff(ts) >= 0).all()):
            raise ValueError("from_slow_cycle: all values must be finite, and time must not run backwards.")
        i = discharge_sign * i
        count = np.concatenate([[0.0], np.cumsum(np.diff(ts) * (i[1:] + i[:-1]) / 2)]) / 3600
        idle = IDLE * np.abs(i).max()
        falling = np.flatnonzero(i > idle)
        if not len(falling):
            raise ValueError(
                "from_slow_cycle(current=...): no discharge; its current is positive, or give discharge_sign=-1."
            )
        first, last = falling[0], falling[-1]
        capacity = float(count[last] - count[first])
        soc = 1 - (count - count[first]) / capacity
        grid = np.linspace(0.0, 1.0, knots)
        table = _branch(soc, v, slice(first, last + 1), i > idle, grid)
        rising = last + 1 + np.flatnonzero(i[last + 1 :] < -idle)
        if len(rising) and np.ptp(soc[rising]) > SHORTEST_BRANCH:
            gap = _branch(soc, v, slice(rising[0], rising[-1] + 1), i < -idle, grid) - table
            # At constant current, the charge ends before the cell is full, where both branches meet.
            top = soc[rising].max()
            gap = np.where(grid > top, np.interp(top, grid, gap) * (1 - grid) / max(1 - top, 1e-9), gap)
            table = table + gap / 2
        return OpenCircuit(grid, np.maximum.accumulate(table), capacity=capacity)

    def __call__(self, soc: Float[Array, ""]) -> Float[Array, ""]:
        """U at a state of charge, in volt."""
        table = (each.value.astype(soc.dtype) for each in (self.soc, self.voltage))
        return interpolate(soc, *table, extend=True)


def _branch(soc: np.ndarray, voltage: np.ndarray, rows: slice, flowing: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The voltage of one branch at the knots; rests within it are left out."""
    charges, volts = soc[rows][flowing[rows]], voltage[rows][flowing[rows]]
    order = np.argsort(charges, kind="stable")
    return np.interp(grid, charges[order], volts[order])
