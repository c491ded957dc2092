"""A step with events in it: up to the first one, its reset, on to the next, and so to the end of the interval.

The whole step is taken first. Only where a condition has crossed zero in it is the crossing located, the state reset
and the rest of the interval integrated, which may lead to the next event.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from twinfold._core import RESULTS, stop_gradient_tree, tree_where
from twinfold.numerics._cell import Cell
from twinfold.numerics._constraint import Unconstrained
from twinfold.numerics._event import Event, armed, in_mode, side_of
from twinfold.numerics._event_log import EventRecord
from twinfold.numerics._events.interval import Conditions, Interval, Segment, events_of
from twinfold.numerics._events.locate import Crossing, locate, shortest_length
from twinfold.numerics._move import CellState, StepReport
from twinfold.typing import Flag, Parameters, Scalar

Flags = Bool[Array, " K"]


class _Passage(eqx.Module):
    """The state after the last event, and the step from there to the end of the interval.

    `fresh`: conditions that are zero at the start because their event was there; that crossing is over.
    """

    offset: Float[Array, ""]
    state: CellState
    fresh: Flags
    end: CellState
    report: StepReport
    values: Conditions  # at the end
    crossed: Flags


def move_with_events(
    cell: Cell, t: Scalar, dt: Scalar, state: CellState, w0: Any, w1: Any, p: Parameters
) -> tuple[CellState, StepReport]:
    """The state at t + dt after all events in between: at most `cell.max_events`, or the step has failed."""
    dtype, before = state.x.dtype, events_of(state)
    going = ~(before.stopped | before.jammed)
    # A run that has ended takes steps of length zero, and nothing comes of them.
    length = jnp.where(going, jnp.asarray(dt, dtype), 0).astype(dtype)
    interval = Interval(cell, jnp.asarray(t, dtype), length, w0, w1, p)
    whole = _begin(interval, state, going)
    nothing = EventRecord(
        jnp.full((), jnp.nan, dtype),
        jnp.full((), -1, jnp.int32),
        jnp.zeros_like(state.x),
        jnp.zeros_like(state.x),
        before.mode,
    )

    def following(passage: _Passage, _: None) -> tuple[_Passage, EventRecord]:
        return _if_any(jnp.any(passage.crossed), lambda: _pass(interval, passage), (passage, nothing))

    # Where every event ends the run, there is one of them, and nothing after it to compute.
    most = 1 if all(event.stop for event in cell.events) else cell.max_events
    empty = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (most, *leaf.shape)), nothing)
    passage, record = _if_any(
        jnp.any(whole.crossed),
        lambda: jax.lax.scan(following, whole, length=most),
        (whole, empty),
    )
    return _finish(passage, state, going, record)


def _if_any(needed: Flag, fn: Callable[[], Any], otherwise: Any) -> Any:
    """`fn()` where needed, else `otherwise`. Not computed if no run of a batch needs it, other than `jax.lax.cond`."""
    return jax.lax.cond(eqxi.unvmap_any(needed), lambda: tree_where(needed, fn(), otherwise), lambda: otherwise)


def _begin(interval: Interval, state: CellState, going: Flag) -> _Passage:
    """The whole interval as one step."""
    zero, side = jnp.zeros_like(interval.dt), events_of(state).side
    fixed_interval, fixed = stop_gradient_tree((interval, state))
    unknown = (side == 0) & going & (interval.dt > 0)

    def sides() -> tuple[Conditions, Flags]:
        """A condition at zero is on the side to which it moves."""
        value, slope = fixed_interval.conditions_and_slopes(zero, fixed)
        at_zero = jnp.abs(value) <= shortest_length(interval.dt) * jnp.abs(slope)
        return jnp.where(unknown, side_of(jnp.where(at_zero, slope, value), side), side), unknown & at_zero

    side, fresh = _if_any(jnp.any(unknown), sides, (side, jnp.zeros_like(unknown)))
    return _to_the_end(interval, zero, _with_side(state, side), fresh, going)


def _to_the_end(interval: Interval, offset: Float[Array, ""], state: CellState, fresh: Flags, going: Flag) -> _Passage:
    """The rest of the interval as one step, and which conditions cross zero in it, or have jumped before it."""
    side, events = events_of(state).side, interval.cell.events
    end, report = interval.move_to_end(offset, state)
    fixed_interval, start, fixed_end = stop_gradient_tree((interval, state, end))
    now = fixed_interval.conditions(stop_gradient_tree(offset), start)
    then = fixed_interval.conditions(interval.dt, fixed_end)
    # Too little time to tell on which side a condition is that was zero: the next interval will.
    early = fresh & (interval.dt - offset <= shortest_length(interval.dt))
    past = jnp.where(fresh, ~early & (side * then < 0), (side * now <= 0) | (side * then <= 0))
    crossed = armed(events, side) & past & going & end.alive
    end = _with_side(end, jnp.where(early, 0, side_of(then, side)))
    return _Passage(offset, state, fresh, end, report, then, crossed)


def _pass(interval: Interval, passage: _Passage) -> tuple[_Passage, EventRecord]:
    """Locate the next event, move there, and do what it says."""
    events, start, side = interval.cell.events, passage.state, events_of(passage.state).side
    longest = interval.dt - passage.offset
    segment = Segment(interval, passage.offset, start)
    found = locate(Crossing(segment, longest, side, passage.crossed, passage.fresh, passage.values))
    before, report = interval.move(passage.offset, found.length, start)
    offset = passage.offset + found.length
    chosen = jnp.arange(len(events)) == found.index
    after = _after_event(interval, offset, before, chosen)
    record = EventRecord(interval.t + offset, found.index.astype(jnp.int32), before.x, after.x, events_of(after).mode)
    if all(event.stop for event in events):
        ended = eqx.tree_at(lambda after: after.events.stopped, after, jnp.array(True))
        none = jnp.zeros_like(passage.crossed)
        where = lambda passage: (passage.end, passage.report, passage.crossed)  # noqa: E731
        return eqx.tree_at(where, passage, (ended, report, none)), record
    rest = _go_on(interval, offset, before, after, chosen, passage)
    failed = report.result != RESULTS.successful
    result = RESULTS.where(failed, report.result, rest.report.result)
    return eqx.tree_at(lambda rest: rest.report.result, rest, result), record


def _go_on(
    interval: Interval,
    offset: Float[Array, ""],
    before: CellState,
    after: CellState,
    chosen: Flags,
    passage: _Passage,
) -> _Passage:
    """The rest of the interval as one step, unless the event ends the run."""
    events, longest = interval.cell.events, interval.dt - passage.offset
    side, fresh, still = _sides_after(interval, offset, before, after, chosen, longest, passage.values)
    stops = jnp.any(chosen & _each(events, lambda event: event.stop))
    rest = _to_the_end(interval, offset, _with_side(after, side), fresh, ~stops)
    # A reset that leaves its condition at zero and at rest, from where the field leads on: an inelastic contact.
    resets = _each(events, lambda event: event.reset is not None and event.mode is None)
    stuck = jnp.any(still & resets & (side * rest.values > 0)) & ~stops
    ends = stops | stuck
    events_after = eqx.tree_at(lambda e: (e.stopped, e.jammed), events_of(rest.state), (stops, stuck))
    held = eqx.tree_at(lambda state: state.events, rest.state, events_after)
    return eqx.tree_at(
        lambda rest: (rest.end, rest.crossed), rest, (tree_where(ends, held, rest.end), rest.crossed & ~ends)
    )


def _after_event(interval: Interval, offset: Float[Array, ""], before: CellState, chosen: Flags) -> CellState:
    """State, mode and levels after the chosen event, the state projected onto its manifold."""
    cell = interval.cell
    if all(event.reset is None and event.mode is None for event in cell.events):
        return before
    quantities = interval.quantities(offset, before)
    x, mode = before.x, events_of(before).mode
    for k, event in enumerate(cell.events):
        if event.reset is not None:
            x = jnp.where(chosen[k], event.state_after(quantities).astype(x.dtype), x)
        if event.mode is not None and mode is not None:
            mode = jnp.where(chosen[k], event.mode_after(quantities), mode)
    p = in_mode(quantities["p"], mode)
    level = events_of(before).level
    if level.shape[0]:
        reset = jnp.any(chosen & _each(cell.events, lambda event: event.reset is not None))
        level = jnp.where(reset, cell.constraint.level(quantities["t"], x, p), level)
    events = eqx.tree_at(
        lambda events: (events.level, events.mode),
        events_of(before),
        (level, mode),
        is_leaf=lambda node: node is None,
    )
    after = CellState(x, before.z, before.alive, events)
    if after.z is None and isinstance(cell.constraint, Unconstrained):
        return after
    # A step of length zero projects, and finds the algebraic variables in the new mode.
    return interval.move(offset, jnp.zeros_like(offset), after)[0]


def _sides_after(
    interval: Interval,
    offset: Float[Array, ""],
    before: CellState,
    after: CellState,
    chosen: Flags,
    longest: Float[Array, ""],
    ahead: Conditions,
) -> tuple[Conditions, Flags, Flags]:
    """The side of each condition after the chosen event, whether it is zero there, and whether it rests there.

    **Arguments:** `longest`, the length of the step in which the event was found; `ahead`, the conditions at its end,
    which tell what is small.
    """
    interval, offset, before, after = stop_gradient_tree((interval, offset, before, after))
    side, events = events_of(before).side, interval.cell.events
    crossing, speed = interval.conditions_and_slopes(offset, before)
    value, slope = interval.conditions_and_slopes(offset, after)
    small = shortest_length(longest)
    root = jnp.sqrt(jnp.finfo(value.dtype).eps).astype(value.dtype)
    at_zero = jnp.abs(value) <= small * (jnp.abs(speed) + jnp.abs(slope)) + root * jnp.abs(ahead)
    still = chosen & at_zero & (jnp.abs(slope) <= root * jnp.abs(speed))
    back = at_zero & (side * slope > 0) & ~still  # a bounce: it moves back to where it came from
    own = jnp.where(back, side, jnp.where(at_zero, -side, side_of(value, -side)))
    # Another condition that has crossed zero at the same time is the next event.
    waiting = armed(events, side) & (side * crossing <= 0)
    others = jnp.where(waiting, side, side_of(crossing, side))
    return jnp.where(chosen, own, others), chosen & at_zero, still


def _finish(passage: _Passage, state: CellState, going: Flag, record: EventRecord) -> tuple[CellState, StepReport]:
    """The end of the interval. A run that has ended keeps its state; one with too many events ends here."""
    too_many = jnp.any(passage.crossed)
    last = tree_where(too_many, passage.state, passage.end)
    events = events_of(last)
    last = eqx.tree_at(lambda last: last.events.jammed, last, events.jammed | too_many)
    end = tree_where(going, last, state)
    report = passage.report
    result = RESULTS.where(going, report.result, RESULTS.successful)
    result = RESULTS.where(end.alive, result, RESULTS.nonfinite)
    result = RESULTS.where(events_of(end).jammed, RESULTS.events, result)
    violation = jnp.where(going, report.violation, 0)
    projected = eqx.tree_at(lambda projected: projected.violation, report.projected, violation)
    return end, StepReport(projected, result, record)


def _each(events: Sequence[Event], holds: Callable[[Event], bool]) -> Flags:
    return jnp.array([holds(event) for event in events])


def _with_side(state: CellState, side: Conditions) -> CellState:
    return eqx.tree_at(lambda state: state.events.side, state, side)
