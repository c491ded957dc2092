"""What a cell would give under its standard load: the twin's estimate of capacity, and how a loss of it would look.

NASA's published capacity is the charge until 2.7 V, whatever voltage the discharge itself was stopped at.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from twinfold.model import Twin
from twinfold.model._simulation import simulate_unchecked
from twinfold_studies.battery.cells import runs_of, taken_out
from twinfold_studies.battery.fleet import COUNTED
from twinfold_studies.nasa import Discharge

STEP = 10.0  # s
LONGER = 1.5  # times the first discharge: a cell may regain charge
NUDGE = 0.01  # for the derivative in the logarithm of a parameter


class Standard(eqx.Module):
    """The load of C cells: times, inputs, first voltage (that of a new cell), and the place of each in the twin."""

    ts: Float[Array, " T"]
    w: Float[Array, "C T 2"]
    y: Float[Array, " C"]
    run: Int[Array, " C"]


def standard_load(twin: Twin, first: Sequence[Discharge]) -> Standard:
    """The load and temperature of the first discharge of each cell, steady and longer than it was.

    **Arguments:** `twin`, fitted on these discharges; `first`, one of each cell.
    """
    runs = runs_of(first).runs
    ts = np.arange(0.0, LONGER * max(float(run.ts[-1]) for run in runs), STEP)
    w = []
    for each, run in zip(first, runs, strict=True):
        assert run.w is not None
        load = np.where(ts < each.time[each.first] - each.time[0], 0.0, each.load_current)
        w.append(np.stack([load, np.interp(ts, run.ts, run.w[:, 1])], axis=1))
    places = twin.run_indices([run.name for run in runs], [run.group for run in runs])
    assert places is not None
    return Standard(*(jnp.asarray(each) for each in (ts, np.stack(w), np.array([run.y[0, 0] for run in runs]), places)))


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

    **Arguments:** `twin`; `standard`; `cell` [R], the place of each cycle's cell in it; `charged` [R], the voltage
    that each cycle starts with; `names` of P parameters; their `change` [R, P] in the logarithm and its `covariance`
    [R, P, P].
    """
    taken = charge(standard)[cell]

    def at(change: np.ndarray) -> np.ndarray:
        start = jnp.asarray(cell), jnp.asarray(charged)
        return _passed(COUNTED, np.asarray(voltages(twin, standard, *start, names, jnp.asarray(change))), taken)

    middle = at(change)
    slope = np.stack([(at(change + NUDGE * unit) - middle) / NUDGE for unit in np.eye(len(names))], axis=1)
    return middle, np.sqrt(np.einsum("rp,rpq,rq->r", slope, covariance, slope))


def residuals_of_loss(
    twin: Twin, standard: Standard, loss: float, stop: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """What a loss of charge alone would do to each cell's discharge down to `stop` V: charge in Ah, residual in V."""
    cell = jnp.arange(len(stop))
    new, worn = (
        np.asarray(voltages(twin, standard, cell, standard.y, ("q_max",), jnp.full((len(stop), 1), change)))
        for change in (0.0, np.log1p(-loss))
    )
    seen = np.cumsum(worn < np.asarray(stop)[:, None], axis=1) == 0
    return [(q[use], r[use]) for q, r, use in zip(charge(standard), worn - new, seen, strict=True)]


def charge(standard: Standard) -> np.ndarray:
    """Ah taken out at each time, [C, T]."""
    return taken_out(np.asarray(standard.ts), np.asarray(standard.w[..., 0])) / 3600


def _passed(volt: float, voltage: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The charge at which each voltage first passes `volt`, linear between rows; NaN where it never does."""
    low = voltage < volt
    row = low.argmax(axis=1)
    every = np.arange(len(voltage))
    above, below = voltage[every, row - 1], voltage[every, row]
    share = (above - volt) / (above - below)
    found = taken[every, row - 1] + share * (taken[every, row] - taken[every, row - 1])
    return np.where(low.any(axis=1) & (row > 0), found, np.nan)


@eqx.filter_jit
def voltages(
    twin: Twin,
    standard: Standard,
    cell: Int[Array, " R"],
    charged: Float[Array, " R"],
    names: tuple[str, ...],
    change: Float[Array, "R P"],
) -> Float[Array, "R T"]:
    """The voltage under the standard load of each cycle's cell, `charged` to a voltage, with changed parameters."""

    def one(cell: Int[Array, ""], charged: Float[Array, ""], change: Float[Array, " P"]) -> Float[Array, " T"]:
        p = twin.parameters(standard.run[cell])
        p = p | {name: p[name] * jnp.exp(change[place]) for place, name in enumerate(names)}
        w = standard.w[cell]
        x0 = twin.initial_state(standard.ts[0], charged[None], w[0], p, run=standard.run[cell])
        return simulate_unchecked(twin, x0, standard.ts, w, p, None).ys[:, 0]

    return jax.vmap(one)(cell, charged, change)
