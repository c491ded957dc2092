"""The capacity of a cell under its standard load, as estimated by the twin, and the residual that a loss would cause.

NASA's published capacity is the charge down to 2.7 V, independent of the cut-off voltage of the discharge.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from twinfold.model import Twin, simulate_unchecked
from twinfold_studies.battery.cells import discharged, runs_of
from twinfold_studies.battery.fleet import CAPACITY_VOLTAGE
from twinfold_studies.nasa import Discharge

STEP = 10.0  # s
MARGIN = 1.5  # duration of the load, in longest first discharges: a cell may regain charge
DIFFERENCE = 0.01  # for derivatives with respect to the logarithm of a parameter


class Standard(eqx.Module):
    """The standard load of C cells: times, inputs, voltage of the new cell before the load, run index in the twin."""

    ts: Float[Array, " T"]
    w: Float[Array, "C T 2"]
    y: Float[Array, " C"]
    run: Int[Array, " C"]


def standard_load(twin: Twin, first: Sequence[Discharge]) -> Standard:
    """The load and temperature of the first discharge of each cell, with a constant current and a longer duration.

    **Arguments:** `twin`, fitted to these discharges; `first`, one discharge per cell.
    """
    runs = runs_of(first).runs
    ts = np.arange(0.0, MARGIN * max(float(run.ts[-1]) for run in runs), STEP)
    w = []
    for each, run in zip(first, runs, strict=True):
        assert run.w is not None
        load = np.where(ts < each.time[each.first] - each.time[0], 0.0, each.load_current)
        w.append(np.stack([load, np.interp(ts, run.ts, run.w[:, 1])], axis=1))
    indices = twin.run_indices([run.name for run in runs], [run.group for run in runs])
    assert indices is not None
    return Standard(
        *(jnp.asarray(each) for each in (ts, np.stack(w), np.array([run.y[0, 0] for run in runs]), indices))
    )


def capacities(
    twin: Twin,
    standard: Standard,
    cell: np.ndarray,
    charged: np.ndarray,
    names: tuple[str, ...],
    change: np.ndarray,
    covariance: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Capacity to 2.7 V in Ah and its standard error, for R cycles.

    **Arguments:** `twin`; `standard`; `cell` [R], the index in it of the cell of each cycle; `charged` [R], the initial
    voltage of each cycle; `names` of P parameters; `change` [R, P] of their logarithms, and its `covariance` [R, P, P].
    """
    charges = charge(standard)[cell]

    def at(change: np.ndarray) -> np.ndarray:
        start = jnp.asarray(cell), jnp.asarray(charged)
        voltage = np.asarray(voltages(twin, standard, *start, names, jnp.asarray(change)))
        return _charge_at(CAPACITY_VOLTAGE, voltage, charges)

    capacity = at(change)
    slope = np.stack([(at(change + DIFFERENCE * unit) - capacity) / DIFFERENCE for unit in np.eye(len(names))], axis=1)
    return capacity, np.sqrt(np.einsum("rp,rpq,rq->r", slope, covariance, slope))


def loss_residuals(
    twin: Twin, standard: Standard, loss: float, stop: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The residual [V] against charge [Ah] that a loss of q_max alone would cause, down to the voltage `stop`."""
    cell = jnp.arange(len(stop))
    new, worn = (
        np.asarray(voltages(twin, standard, cell, standard.y, ("q_max",), jnp.full((len(stop), 1), change)))
        for change in (0.0, np.log1p(-loss))
    )
    above = np.cumsum(worn < np.asarray(stop)[:, None], axis=1) == 0
    return [(q[use], r[use]) for q, r, use in zip(charge(standard), worn - new, above, strict=True)]


def charge(standard: Standard) -> np.ndarray:
    """The discharged charge at each time, Ah [C, T]."""
    return discharged(np.asarray(standard.ts), np.asarray(standard.w[..., 0])) / 3600


def _charge_at(volt: float, voltage: np.ndarray, charges: np.ndarray) -> np.ndarray:
    """The charge at which each voltage first falls below `volt`, linearly interpolated; NaN if it never does."""
    low = voltage < volt
    row = low.argmax(axis=1)
    every = np.arange(len(voltage))
    above, below = voltage[every, row - 1], voltage[every, row]
    share = (above - volt) / (above - below)
    crossing = charges[every, row - 1] + share * (charges[every, row] - charges[every, row - 1])
    return np.where(low.any(axis=1) & (row > 0), crossing, np.nan)


@eqx.filter_jit
def voltages(
    twin: Twin,
    standard: Standard,
    cell: Int[Array, " R"],
    charged: Float[Array, " R"],
    names: tuple[str, ...],
    change: Float[Array, "R P"],
) -> Float[Array, "R T"]:
    """The voltage of each cycle under the standard load, from its initial voltage and with changed parameters."""

    def one(cell: Int[Array, ""], charged: Float[Array, ""], change: Float[Array, " P"]) -> Float[Array, " T"]:
        p = twin.parameters(standard.run[cell])
        p = p | {name: p[name] * jnp.exp(change[index]) for index, name in enumerate(names)}
        w = standard.w[cell]
        x0 = twin.initial_state(standard.ts[0], charged[None], w[0], p, run=standard.run[cell])
        return simulate_unchecked(twin, x0, standard.ts, w, p).ys[:, 0]

    return jax.vmap(one)(cell, charged, change)
