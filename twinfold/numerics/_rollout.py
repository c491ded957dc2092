"""The only scan over time: a cell unrolled along the samples of one trajectory. Batch it with `jax.vmap`."""

import math
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold._core import RESULTS, first_failure
from twinfold.numerics._advance import advance, initial_cell_state
from twinfold.numerics._carry import batched_alike
from twinfold.numerics._cell import Cell
from twinfold.numerics._constraint import violation_scale
from twinfold.numerics._event import EventState
from twinfold.numerics._event_log import EventLog
from twinfold.numerics._move import CellState, StepReport
from twinfold.numerics._project.base import ProjectionResult
from twinfold.typing import ConstraintVector, Parameters, State, Times


class Trajectory(eqx.Module):
    """States at the samples, the violation of the constraint there, and how each step ended.

    `initial_violation` is that of the initial state as it was given, before any projection; `scale` is what
    `violation` is divided by to be relative. Under `jax.vmap` all have leading batch axes.

    **Example:**

    ```python
    cell = tw.Cell(lambda t, x: -x)
    trajectory = tw.rollout(cell, jnp.ones(1), jnp.linspace(0, 1, 11))
    trajectory.xs, trajectory.failed
    ```
    """

    ts: Float[Array, "*batch T"]
    xs: Float[Array, "*batch T n"]
    violation: Float[Array, "*batch T m"]
    steps: Int[Array, "*batch T"]
    result: RESULTS
    initial_violation: Float[Array, "*batch m"]
    scale: Float[Array, "*batch m"]
    zs: Float[Array, "*batch T k"] | None = None  # implicit algebraic variables, as guesses without derivatives
    redundant: Int[Array, "*batch T"] | None = None  # constraints that depend on others, where projected
    events: EventLog | None = None
    modes: Int[Array, "..."] | None = None  # after each sample, where events switch them
    stopped: Bool[Array, "*batch T"] | None = None  # whether an event has ended the run

    @property
    def relative_violation(self) -> Float[Array, "*batch T m"]:
        """|g_i - level_i| / max(|level_i|, ||dg_i/dx(x0)|| ||x0||)."""
        tiny = jnp.finfo(self.scale.dtype).tiny
        return self.violation / jnp.maximum(self.scale, tiny)[..., None, :]

    @property
    def failed(self) -> Bool[Array, "*batch"]:
        """Whether any value is non-finite or any step did not succeed."""
        finite = jnp.all(jnp.isfinite(self.xs), axis=(-2, -1))
        return jnp.any(self.result != RESULTS.successful, axis=-1) | ~finite

    @property
    def end_time(self) -> Float[Array, ""]:
        """The time of the last sample, or of the event that stopped the run; of one run."""
        return self.ts[-1] if self.events is None else self.events.stop_time(self.ts[-1])


def unroll(
    step: Callable[[Any, tuple], tuple[Any, Any]],
    carry: Any,
    ts: Times,
    w: Float[Array, "T d"] | None,
    *,
    known: ProjectionResult | None = None,
    remat: bool = False,
) -> Any:
    """The outputs of `step(carry, (t, dt, w0, w1, known)) -> (carry, output)` at each sample; the first step has length
    zero.

    `known`: the projection of each step, see `advance`; `remat`: see `rollout`.
    """
    before = jnp.concatenate([ts[:1], ts[:-1]])
    inputs = (None, None) if w is None else (jnp.concatenate([w[:1], w[:-1]]), w)
    scan = _remat_scan if remat else jax.lax.scan
    return scan(step, carry, (before, ts - before, *inputs, known))[1]


def _remat_scan(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, samples: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` whose reverse pass stores the carry at every k-th sample, k^2 = T, and recomputes the rest."""
    count = jax.tree.leaves(samples)[0].shape[0]
    length = math.isqrt(max(count - 1, 0)) + 1
    parts = -(-count // length)

    def split(leaf: Array) -> Array:
        # The last part is padded with the last sample; these steps are dropped again.
        padded = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], parts * length - count, axis=0)])
        return padded.reshape(parts, length, *leaf.shape[1:])

    # The outer scan already keeps XLA from merging the two computations.
    part = jax.checkpoint(lambda carry, samples: jax.lax.scan(body, carry, samples), prevent_cse=False)
    carry, outputs = jax.lax.scan(part, carry, jax.tree.map(split, samples))
    return carry, jax.tree.map(lambda leaf: leaf.reshape(parts * length, *leaf.shape[2:])[:count], outputs)


def rollout(
    cell: Cell,
    x0: State,
    ts: Times,
    w: Float[Array, "T d"] | None = None,
    *,
    p: Parameters | None = None,
    level: ConstraintVector | None = None,
    inconsistent_x0: Literal["project", "refuse"] = "project",
    remat: bool = False,
    throw: bool = True,
    events: EventState | None = None,
) -> Trajectory:
    """Simulate one trajectory.

    **Arguments:** `cell`; `x0` at `ts[0]`; the times of the samples; the inputs at these times; `p`, the
    parameters; `level` of the constraint (that of x0 when left out); `inconsistent_x0`: whether an x0 off the
    manifold is projected or refused; `remat=True` for long horizons: the memory of a gradient, beside the trajectory
    itself, grows as the square root of its length, for one more forward pass; `throw=False` to return failures as
    data in `Trajectory.result`; `events`, those of an earlier run that this one continues.

    **Returns:** a `Trajectory` of the same length as `ts`.

    **Example:**

    ```python
    cell = tw.Cell(lambda t, x, w: w - x)
    ts = jnp.linspace(0, 1, 11)
    batched = jax.vmap(lambda x0: tw.rollout(cell, x0, ts, jnp.ones((11, 1))).xs)
    batched(jnp.zeros((3, 1))).shape  # (3, 11, 1)
    ```
    """
    p = {} if p is None else p
    level = cell.constraint.level(ts[0], x0, p) if level is None else level
    initial_violation = jnp.abs(cell.constraint.residual(ts[0], x0, p, level))
    scale = violation_scale(cell.constraint, ts[0], x0, p, level)

    def step(state: CellState, sample: tuple) -> tuple:
        t, dt, w0, w1, _ = sample
        state, report = advance(cell, t, dt, state, w0, w1, p, level)
        return state, (state, report)

    first = initial_cell_state(cell, ts[0], x0, None if w is None else w[0], p, level)
    if events is not None:
        first = CellState(first.x, first.z, first.alive, events)
    first = batched_alike(first, cell.field)
    states, report = unroll(step, first, ts, w, remat=remat)
    result = report.result
    if inconsistent_x0 == "refuse":
        # Measured values have fewer digits than the dtype: half of them count.
        off = jnp.any(initial_violation > jnp.sqrt(jnp.finfo(x0.dtype).eps) * scale)
        first = (jnp.arange(ts.shape[0]) == 0) & off
        result = jax.vmap(lambda first, result: RESULTS.where(first, RESULTS.off_manifold, result))(first, result)
    xs = states.x
    if throw:
        outcome = first_failure(result)
        xs = outcome.error_if(xs, outcome != RESULTS.successful)
    return Trajectory(
        ts,
        xs,
        report.violation,
        report.steps,
        result,
        initial_violation,
        scale,
        states.z,
        report.redundant,
        *_what_happened(cell, states, report),
    )


def _what_happened(cell: Cell, states: CellState, report: StepReport) -> tuple[EventLog | None, Any, Any]:
    """The events of a trajectory, and mode and end of the run at each sample."""
    now, record = states.events, report.events
    if now is None or record is None:
        return None, None, None
    names = tuple(event.name or f"event {k}" for k, event in enumerate(cell.events))
    stops = tuple(event.stop for event in cell.events)
    happened = (record.times, record.index, record.before, record.after, record.modes)
    return EventLog(*happened, names, stops), now.mode, now.stopped
