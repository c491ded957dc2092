"""What training changes: a twin, with a value for each run where it has such parameters, and shooting states."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from twinfold._core import Frozen
from twinfold.data import Batch
from twinfold.data._rows import initial_state
from twinfold.model import Twin
from twinfold.model._learned.base import trainable
from twinfold.model._simulation import simulate_unchecked
from twinfold.model._unknown import is_unknown
from twinfold.typing import State


class Shooting(eqx.Module):
    """The state at the start of each window that does not begin its run, to be estimated."""

    start: Frozen
    size: Frozen
    raw: Float[Array, "B n"]

    def state(self, window: Any) -> State:
        return self.start.value[window] + self.size.value * self.raw[window]


class Estimate(eqx.Module):
    """All that is trained."""

    twin: Twin
    shooting: Shooting | None

    def trainable(self, only: Literal["all", "per_run", "parameters"]) -> PyTree:
        """True at each array that may change: everything, what belongs to single runs and groups, or every unknown."""
        spec = trainable(self)
        if only == "all":
            return spec

        def own(node: Any, spec: Any) -> Any:
            keep = is_unknown(node) and (node.own or only == "parameters")
            return spec if keep else jax.tree.map(lambda _: False, spec)

        twin = jax.tree.map(own, self.twin, spec.twin, is_leaf=is_unknown)
        return eqx.tree_at(lambda spec: spec.twin, spec, twin)


def shooting_states(twin: Twin, batch: Batch) -> Shooting:
    """First guesses: what was measured there, or else what the untrained twin passes through."""
    if twin.observe is None:
        known = batch.mask[:, 0].all(-1)
        measured = batch.y[:, 0]
    else:
        known, measured = jnp.zeros(batch.size, bool), None
    guess = _simulated_starts(twin, batch) if not bool(known.all()) else measured
    assert guess is not None
    start = guess if measured is None else jnp.where(known[:, None], measured, guess)
    size = jnp.std(start, axis=0)
    size = jnp.where(size > 0, size, 1)
    return Shooting(Frozen(start), Frozen(size), jnp.zeros_like(start))


def _simulated_starts(twin: Twin, batch: Batch) -> Float[Array, "B n"]:
    """The state of the untrained twin at the start of each window, window by window through each run."""
    starts: dict[int, Array] = {}
    ends: dict[int, Array] = {}
    # In the order of time, so that a window's predecessor has been passed before it.
    for window in np.argsort(np.asarray(batch.ts[:, 0]), kind="stable").tolist():
        row = jax.tree.map(lambda leaf, window=window: leaf[window], batch)
        p = twin.parameters(row.run)
        origin = initial_state(twin, row, p)
        level = twin.constraint.level(row.origin_t, origin, p)
        starts[window] = origin if bool(row.is_run_start) else ends.get(int(row.previous_window), origin)
        out = simulate_unchecked(twin, starts[window], row.ts, row.w, p, level)
        ends[window] = out.xs[int(row.length) - 1]
    return jnp.stack([starts[window] for window in range(batch.size)])
