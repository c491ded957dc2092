"""From one sample to the next: the one step that rollout, training, stepper and export share."""

from typing import Any

import jax.numpy as jnp

from twinfold.numerics._cell import Cell
from twinfold.numerics._event import initial_event_state
from twinfold.numerics._events.passage import move_with_events
from twinfold.numerics._move import CellState, StepReport, move
from twinfold.numerics._project.base import ProjectionResult
from twinfold.typing import ConstraintVector, Parameters, Scalar, State


def initial_cell_state(cell: Cell, t: Scalar, x0: State, w: Any, p: Parameters, level: ConstraintVector) -> CellState:
    """The state before the first step, which has length zero and moves x0 onto the manifold."""
    events = initial_event_state(cell.events, x0, p, level) if cell.events else None
    return CellState(x0, cell.initial_guess(t, x0, w, p), jnp.array(True), events)


def advance(
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
    """The state at t + dt, with the inputs w0 at t and w1 at t + dt.

    `level` is that of the run. In a cell with events it is carried in the state instead, since a reset changes it, and
    so is the mode in p. `known` is what was reported of the projection when the same step was computed before.
    """
    if state.events is None:
        return move(cell, t, dt, state, w0, w1, p, level, known)
    return move_with_events(cell, t, dt, state, w0, w1, p)
