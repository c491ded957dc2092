"""What events depend on, as numbers in the state of an exported step: sides, flags, the mode, the last event."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.numerics import Event
from twinfold.numerics._event import EventState
from twinfold.numerics._event_log import EventRecord

Vector = Float[Array, " _"]


@dataclass(frozen=True, eq=False)
class PackedEvents:
    """Names of the events, and shape and type of the mode; None without modes."""

    names: tuple[str, ...]
    mode: Any

    @staticmethod
    def of(events: Sequence[Event], state: EventState) -> "PackedEvents":
        """The layout for these events, from the shapes of their state."""
        return PackedEvents(tuple(event.name or f"event {k}" for k, event in enumerate(events)), state.mode)

    @property
    def modes(self) -> int:
        """The number of values of the mode."""
        return 0 if self.mode is None else int(np.prod(self.mode.shape, dtype=int))

    @property
    def size(self) -> int:
        """The number of values in the state."""
        return len(self.names) + 2 + self.modes + 2

    def places(self, start: int) -> dict[str, list[int]]:
        """Where each part is in the state, if these begin at `start`."""
        sizes = {"side": len(self.names), "stopped": 1, "jammed": 1, "mode": self.modes, "event": 2}
        ends = start + np.cumsum(list(sizes.values()))
        return {name: [int(end) - size, int(end)] for (name, size), end in zip(sizes.items(), ends, strict=True)}

    def nothing(self, t: Any, like: Vector) -> Vector:
        """The last event before there was one: number -1."""
        return jnp.stack([jnp.full((), -1, like.dtype), jnp.asarray(t, like.dtype)])

    def unpack(self, values: Vector, level: Vector) -> tuple[EventState, Vector]:
        """The state of the events, and the last one."""
        parts = {name: values[slice(*place)] for name, place in self.places(0).items()}
        mode = None
        if self.mode is not None:
            mode = parts["mode"].astype(self.mode.dtype).reshape(self.mode.shape)
        stopped, jammed = parts["stopped"][0] > 0, parts["jammed"][0] > 0
        return EventState(parts["side"], level, stopped, jammed, mode), parts["event"]

    def pack(self, state: EventState, record: EventRecord, last: Vector) -> Vector:
        """The state of the events as a vector, with the last one up to the end of the step."""
        dtype = state.side.dtype
        for k in range(record.index.shape[0]):
            now = jnp.stack([record.index[k].astype(dtype), record.times[k]])
            last = jnp.where(record.index[k] >= 0, now, last)
        flags = jnp.stack([state.stopped, state.jammed]).astype(dtype)
        mode = [] if state.mode is None else [state.mode.reshape(-1).astype(dtype)]
        return jnp.concatenate([state.side, flags, *mode, last])
