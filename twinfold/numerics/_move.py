"""One step of a cell whatever comes of it: the state that is carried, and what is reported."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from twinfold._core import RESULTS, finite_jvp, stop_gradient_tree, tree_where
from twinfold.numerics._cell import Cell
from twinfold.numerics._event import EventState
from twinfold.numerics._event_log import EventRecord
from twinfold.numerics._project.base import ProjectionResult
from twinfold.typing import ConstraintVector, Flag, Parameters, Scalar, State


class CellState(eqx.Module):
    """What is carried from sample to sample: x, the guess for implicit z, whether all was finite so far, and, of a cell
    with events, what these depend on."""

    x: State
    z: Float[Array, " k"] | None
    alive: Flag
    events: EventState | None = None


class StepReport(eqx.Module):
    """What is reported of a step, and not carried: its projection, how it ended, its events."""

    projected: ProjectionResult
    result: RESULTS
    events: EventRecord | None = None

    @property
    def violation(self) -> Float[Array, "*batch m"]:
        return self.projected.violation

    @property
    def steps(self) -> Int[Array, "*batch"]:
        return self.projected.steps

    @property
    def redundant(self) -> Int[Array, "*batch"]:
        return self.projected.redundant


def move(
    cell: Cell,
    t: Scalar,
    dt: Scalar,
    state: CellState,
    w0: Any,
    w1: Any,
    p: Parameters,
    level: ConstraintVector,
    known: ProjectionResult | None = None,
) -> tuple[CellState, StepReport]:
    """The state at t + dt, with the inputs w0 at t and w1 at t + dt; events are left out. For `known` see `Cell.step`.

    From the first non-finite state on, the last finite one is held, without a derivative.
    """
    arguments = (cell, t, dt, state.x, w0, w1, p, level, state.z, known)
    out, result = finite_jvp(arguments, fn=lambda cell, *arguments: cell.step(*arguments))
    z, solved = cell.next_guess(t + dt, out.x, w1, p, state.z)
    unsolved = ~solved & (result == RESULTS.successful)
    result = RESULTS.where(unsolved, RESULTS.algebraic, result)
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((out.x, z))]
    alive = state.alive & jnp.all(jnp.stack(finite))
    x, z = tree_where(alive, (out.x, z), stop_gradient_tree((state.x, state.z)))
    result = RESULTS.where(alive, result, RESULTS.nonfinite)
    # Constants inside a linearised function are no arrays.
    counts = jnp.asarray(out.steps), jnp.asarray(out.redundant)
    out = eqx.tree_at(lambda out: (out.steps, out.redundant), out, counts)
    return CellState(x, z, alive, state.events), StepReport(out, result)
