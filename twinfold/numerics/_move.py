"""One step of a cell whatever comes of it: the state that is carried, and what is reported."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import RESULTS, finite_jvp, stop_gradient_tree, tree_where
from twinfold.numerics._cell import Cell
from twinfold.numerics._event import EventState
from twinfold.numerics._event_log import EventRecord
from twinfold.typing import ConstraintVector, Count, Flag, Parameters, Scalar, State


class CellState(eqx.Module):
    """What is carried from sample to sample: x, the guess for implicit z, whether all was finite so far, and, of a cell
    with events, what these depend on."""

    x: State
    z: Float[Array, " k"] | None
    alive: Flag
    events: EventState | None = None


class StepReport(eqx.Module):
    """What is reported of a step, and not carried."""

    violation: ConstraintVector
    steps: Count
    result: RESULTS
    redundant: Count
    events: EventRecord | None = None


def move(
    cell: Cell, t: Scalar, dt: Scalar, state: CellState, w0: Any, w1: Any, p: Parameters, level: ConstraintVector
) -> tuple[CellState, StepReport]:
    """The state at t + dt, with the inputs w0 at t and w1 at t + dt; events are left out.

    From the first non-finite state on, the last finite one is held, without a derivative.
    """
    arguments = (cell, t, dt, state.x, w0, w1, p, level, state.z)
    out = finite_jvp(arguments, fn=lambda cell, *arguments: cell.step(*arguments))
    z, solved = cell.next_guess(t + dt, out.x, w1, p, state.z)
    unsolved = ~solved & (out.result == RESULTS.successful)
    result = RESULTS.where(unsolved, RESULTS.algebraic, out.result)
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((out.x, z))]
    alive = state.alive & jnp.all(jnp.stack(finite))
    x, z = tree_where(alive, (out.x, z), stop_gradient_tree((state.x, state.z)))
    result = RESULTS.where(alive, result, RESULTS.nonfinite)
    # Constants inside a linearised function are no arrays.
    counts = jnp.asarray(out.steps), jnp.asarray(out.redundant)
    return CellState(x, z, alive, state.events), StepReport(out.violation, counts[0], result, counts[1])
