"""From one sample to the next: the one step that rollout, training, stepper and export share."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import RESULTS, finite_jvp, stop_gradient_tree, tree_where
from twinfold.numerics._cell import Cell
from twinfold.typing import ConstraintVector, Count, Flag, Parameters, Scalar, State


class CellState(eqx.Module):
    """What is carried from sample to sample: x, the guess for implicit z, and whether all was finite so far."""

    x: State
    z: Float[Array, " k"] | None
    alive: Flag


class StepReport(eqx.Module):
    """What is reported of a step, and not carried."""

    violation: ConstraintVector
    steps: Count
    result: RESULTS
    redundant: Count


def initial_cell_state(cell: Cell, t: Scalar, x0: State, w: Any, p: Parameters) -> CellState:
    """The state before the first step, which has length zero and moves x0 onto the manifold."""
    return CellState(x0, cell.initial_guess(t, x0, w, p), jnp.array(True))


def advance(
    cell: Cell, t: Scalar, dt: Scalar, state: CellState, w0: Any, w1: Any, p: Parameters, level: ConstraintVector
) -> tuple[CellState, StepReport]:
    """The state at t + dt, with the inputs w0 at t and w1 at t + dt.

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
    return CellState(x, z, alive), StepReport(out.violation, counts[0], result, counts[1])
