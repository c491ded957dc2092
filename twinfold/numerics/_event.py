"""An event as a user writes it down: a condition, and what happens when it crosses zero."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from twinfold._core import call_by_name, finite_jvp, named_arguments
from twinfold.typing import ConstraintVector, Flag, Parameters, State

QUANTITIES = ("t", "x", "z", "w", "p", "y")
MAX_EVENTS = 8  # between two samples
DIRECTIONS = ("falling", "rising", "both")


class Event(eqx.Module):
    """What happens when a condition c(t, x, z, w, p), or c of the outputs y, crosses zero.

    The crossing is located inside the step, by steps of other lengths from the same state, to the rounding of the
    step's length. Several events may follow each other between two samples. The derivatives of the time of an event and
    of all that follows are those of the implicit function theorem.

    **Arguments:** each function takes what it names of t, x, z, w, p and y.

    - `condition`: a number; the event is where it crosses zero. At the start of a run it has to cross first: a
      condition that is past zero already does nothing. If it jumps across zero with an input, the event is at that
      sample.
    - `direction` of the crossing: `"falling"`, `"rising"` or `"both"`.
    - `reset`: the state after the event; conserved quantities keep the values that it has.
    - `mode`: the mode after the event, an integer or a function that returns one. All functions of the twin see the
      mode as `p["mode"]`; `Twin(params={"mode": 0})` is the mode at the start of a run.
    - `stop`: the run ends here. Its state is held from then on.
    - `name`, for tables and messages.

    An event with neither `reset`, `mode` nor `stop` is only recorded.

    **Example:**

    ```python
    bounce = tw.Event(lambda x: x[0], reset=lambda x, p: jnp.stack([x[0], -p["e"] * x[1]]), name="bounce")
    ball = tw.Twin(lambda x: jnp.stack([x[1], jnp.full_like(x[1], -9.81)]), params={"e": 0.8}, events=[bounce])
    simulation = ball.simulate([1.0, 0.0], jnp.linspace(0, 1, 11))
    simulation.events.first(1).times  # [0.4515], the square root of 2 / 9.81
    ```
    """

    condition: Callable
    direction: str = eqx.field(static=True, default="falling")
    reset: Any = eqx.field(default=None, kw_only=True)
    mode: Any = eqx.field(default=None, kw_only=True)
    stop: bool = eqx.field(static=True, default=False, kw_only=True)
    name: str = eqx.field(static=True, default="", kw_only=True)

    def __check_init__(self):
        if self.direction not in DIRECTIONS:
            raise ValueError(f'Event(direction={self.direction!r}): give "falling", "rising" or "both".')
        for role, fn in (("condition", self.condition), ("reset", self.reset), ("mode", self.mode)):
            if callable(fn):
                named_arguments(fn, QUANTITIES, f"Event({role}=...)")
            elif role == "condition" or not (fn is None or (role == "mode" and type(fn) is int)):
                raise ValueError(f"Event({role}={fn!r}): give a function" + (" or an integer." * (role == "mode")))

    def asks_for(self, name: str) -> bool:
        """Whether any of its functions has an argument of this name."""
        functions = (fn for fn in (self.condition, self.reset, self.mode) if callable(fn))
        return any(name in named_arguments(fn, QUANTITIES, "Event") for fn in functions)

    def value(self, quantities: dict[str, Any]) -> Float[Array, ""]:
        """c."""
        return jnp.asarray(call_by_name(self.condition, "Event(condition=...)", **quantities)).reshape(())

    def state_after(self, quantities: dict[str, Any]) -> State:
        """x after the event. The derivative is finite even if the state is not, as it is where another one happened."""
        if self.reset is None:
            return quantities["x"]

        def after(reset: Callable, quantities: dict[str, Any]) -> State:
            return jnp.asarray(call_by_name(reset, "Event(reset=...)", **quantities))

        return finite_jvp((self.reset, quantities), fn=after)

    def mode_after(self, quantities: dict[str, Any]) -> Any:
        """The mode after the event; None where there are no modes."""
        before = quantities["p"].get("mode")
        if self.mode is None:
            return before
        after = call_by_name(self.mode, "Event(mode=...)", **quantities) if callable(self.mode) else self.mode
        return jnp.broadcast_to(jnp.asarray(after, before.dtype), before.shape)


def check_events(events: Sequence[Event], params: Any, max_events: int) -> None:
    """A `ValueError` unless the events can be used with these parameters."""
    for event in events:
        if not isinstance(event, Event):
            raise ValueError(f"events: {event!r} is not an Event.")
    if max_events < 1:
        raise ValueError(f"max_events={max_events}: give the number of events between two samples, at least one.")
    if any(event.mode is not None for event in events) and "mode" not in params:
        raise ValueError('events: one of them switches the mode. Give params={"mode": 0}, the mode at the start.')
    if events and "mode" in params and not jnp.issubdtype(jnp.result_type(params["mode"]), jnp.integer):
        raise ValueError(f'params: "mode" is {params["mode"]}; with events it is the mode of the run, an integer.')


class EventState(eqx.Module):
    """What a run with events carries: the side of zero on which each condition was (0: not known yet), the levels of
    the constraint since the last reset, whether it goes on, and the mode."""

    side: Float[Array, " K"]
    level: ConstraintVector
    stopped: Flag
    jammed: Flag  # more events than allowed: the state is held
    mode: Int[Array, "..."] | None


def in_mode(p: Parameters, mode: Any) -> Parameters:
    """p with the present mode of the run, if it has one."""
    return p if mode is None else {**p, "mode": mode}


def initial_event_state(events: Sequence[Event], x: State, p: Parameters, level: ConstraintVector) -> EventState:
    """The state of the events before the first step."""
    check_events(events, p, 1)
    mode = jnp.asarray(p["mode"], jnp.result_type(p["mode"])) if "mode" in p else None
    no = jnp.array(False)
    return EventState(jnp.zeros(len(events), x.dtype), level, no, no, mode)


def armed(events: Sequence[Event], side: Float[Array, " K"]) -> Array:
    """Whether each event may happen: its condition is on the side from which the direction leads to zero."""
    falling = jnp.array([event.direction != "rising" for event in events])
    rising = jnp.array([event.direction != "falling" for event in events])
    return (falling & (side > 0)) | (rising & (side < 0))


def side_of(values: Float[Array, " K"], before: Float[Array, " K"]) -> Float[Array, " K"]:
    """The signs of conditions; that of `before` where one is zero or not a number."""
    return jnp.where(values > 0, 1, jnp.where(values < 0, -1, before)).astype(before.dtype)
