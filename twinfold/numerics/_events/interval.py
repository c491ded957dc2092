"""The interval between two samples as seen by events: inputs, steps and conditions at any time within it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import call_by_name
from twinfold.numerics._cell import Cell
from twinfold.numerics._event import EventState, in_mode
from twinfold.numerics._move import CellState, StepReport, move

Conditions = Float[Array, " K"]


def events_of(state: CellState) -> EventState:
    """What a state of a cell with events has of them."""
    assert state.events is not None
    return state.events


class Interval(eqx.Module):
    """The samples at both ends of a step: times, inputs, and the parameters without the mode."""

    cell: Cell
    t: Float[Array, ""]
    dt: Float[Array, ""]
    w0: Any
    w1: Any
    p: Any

    def inputs(self, offset: Float[Array, ""]) -> Any:
        """The input at a time after t; one that is held changes only after the interval."""
        if self.w0 is None or self.cell.input_interpolation == "hold":
            return self.w0
        return self.w0 + offset / jnp.where(self.dt == 0, 1, self.dt) * (self.w1 - self.w0)

    def move(self, offset: Float[Array, ""], length: Float[Array, ""], state: CellState) -> tuple:
        """A step without events, from `offset` after t; `state.events` has the mode and the levels."""
        return self._move(offset, length, state, self.inputs(offset + length))

    def move_to_end(self, offset: Float[Array, ""], state: CellState) -> tuple[CellState, StepReport]:
        """The step to the end of the interval; there, the guess for implicit z is that of the next input."""
        return self._move(offset, self.dt - offset, state, self.w1)

    def _move(self, offset: Float[Array, ""], length: Float[Array, ""], state: CellState, w1: Any) -> tuple:
        p, level = in_mode(self.p, events_of(state).mode), events_of(state).level
        return move(self.cell, self.t + offset, length, state, self.inputs(offset), w1, p, level)

    def quantities(self, offset: Float[Array, ""], state: CellState) -> dict[str, Any]:
        """What the functions of events may ask for; z and y only where one does."""
        t, w, p = self.t + offset, self.inputs(offset), in_mode(self.p, events_of(state).mode)
        found = {"t": t, "x": state.x, "z": None, "w": w, "p": p, "y": None}
        outputs = any(event.asks_for("y") for event in self.cell.events)
        if outputs or any(event.asks_for("z") for event in self.cell.events):
            found["z"] = self.cell.algebraic_variables(t, state.x, w, p, state.z)
        if outputs:
            y = state.x
            if self.cell.observe is not None:
                y = call_by_name(self.cell.observe, "observe", t=t, x=state.x, z=found["z"], w=w, p=p)
            found["y"] = jnp.atleast_1d(y)
        return found

    def conditions(self, offset: Float[Array, ""], state: CellState) -> Conditions:
        """c of every event."""
        quantities = self.quantities(offset, state)
        return jnp.stack([event.value(quantities) for event in self.cell.events]).astype(state.x.dtype)

    def conditions_and_slopes(self, offset: Float[Array, ""], state: CellState) -> tuple[Conditions, Conditions]:
        """c, and dc/dt along the field."""
        p, level = in_mode(self.p, events_of(state).mode), events_of(state).level
        rate = self.cell.rate(self.t + offset, state.x, self.inputs(offset), p, level)

        def along(s: Float[Array, ""]) -> Conditions:
            return self.conditions(offset + s, eqx.tree_at(lambda state: state.x, state, state.x + s * rate))

        return jax.jvp(along, (jnp.zeros_like(offset),), (jnp.ones_like(offset),))


class Segment(eqx.Module):
    """The rest of an interval from one state: conditions after steps of any length."""

    interval: Interval
    offset: Float[Array, ""]
    state: CellState

    def __call__(self, length: Float[Array, ""]) -> Conditions:
        after, _ = self.interval.move(self.offset, length, self.state)
        return self.interval.conditions(self.offset + length, after)
