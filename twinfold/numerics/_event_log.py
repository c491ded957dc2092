"""What happened in a run: the time of each event, which one it was, and the states before and after it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class EventRecord(eqx.Module):
    """One event, or several along leading axes; the index is -1 where there is none."""

    times: Float[Array, "*shape"]
    index: Int[Array, "*shape"]
    before: Float[Array, "*shape n"]
    after: Float[Array, "*shape n"]
    modes: Int[Array, "..."] | None


class EventLog(eqx.Module):
    """The events of a run, by sample and number within the interval before it; under `jax.vmap` of many runs.

    `times` (NaN where there is no event), `index` of the event in the list of the twin's (-1 where there is none), the
    states `before` and `after`, and the `modes` after. Times and states are differentiable.

    **Example:**

    ```python
    empty = tw.Event(lambda x: x[0] - 0.5, stop=True, name="half")
    log = tw.Twin(lambda x: -x, events=[empty]).simulate([1.0], jnp.linspace(0, 1, 11)).events
    log.first(1).times, log.count, log.table()  # [log 2], 1, [{"time": ..., "event": "half", ...}]
    ```
    """

    times: Float[Array, "*shape"]
    index: Int[Array, "*shape"]
    before: Float[Array, "*shape n"]
    after: Float[Array, "*shape n"]
    modes: Int[Array, "..."] | None
    names: tuple[str, ...] = eqx.field(static=True)
    stops: tuple[bool, ...] = eqx.field(static=True)

    @property
    def happened(self) -> Bool[Array, "*shape"]:
        """Where there is an event."""
        return self.index >= 0

    @property
    def count(self) -> Int[Array, ""]:
        """The number of events of one run, or of all runs together."""
        return jnp.sum(self.happened)

    def first(self, count: int, event: int | None = None) -> "EventLog":
        """The first `count` events of one run in order of time, or of one `event` of the list; for use in losses.

        Where there are fewer, the rest is NaN.
        """
        chosen = (self.happened if event is None else self.index == event).reshape(-1)
        order = jnp.argsort(~chosen, stable=True)[:count]
        missing = ~chosen[order]
        shape, size = self.times.shape, chosen.shape[0]

        def take(leaf: Array, fill: Any) -> Array:
            flat = leaf.reshape(size, *leaf.shape[len(shape) :])[order]
            mask = missing.reshape(-1, *(1,) * (flat.ndim - 1))
            return jnp.where(mask, jnp.asarray(fill, flat.dtype), flat)

        modes = None if self.modes is None else take(self.modes, 0)
        states = take(self.before, jnp.nan), take(self.after, jnp.nan)
        return EventLog(take(self.times, jnp.nan), take(self.index, -1), *states, modes, self.names, self.stops)

    def table(self) -> list[dict[str, Any]]:
        """One row for each event of one run: its time and name, the states before and after, and the mode after."""
        log: EventLog = jax.device_get(self.first(int(self.count)))
        rows = []
        for k, index in enumerate(np.asarray(log.index).tolist()):
            row = {"time": float(log.times[k]), "event": self.names[index], "before": log.before[k]}
            modes = {} if log.modes is None else {"mode": np.asarray(log.modes[k]).tolist()}
            rows.append(row | {"after": log.after[k]} | modes)
        return rows

    def stop_time(self, default: Float[Array, ""]) -> Float[Array, ""]:
        """The time of the event that ended one run, or `default`."""
        ends = jnp.array(self.stops)[self.index] & self.happened
        return jnp.where(jnp.any(ends), jnp.sum(jnp.where(ends, self.times, 0)), default)
