"""The only scan over time: a cell unrolled along the samples of one trajectory. Batch it with `jax.vmap`."""

import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold._types import Level, Parameters, State, Times
from twinfold.cell import Cell, signal
from twinfold.constraint.base import violation_scale
from twinfold.contain import contained
from twinfold.project.base import Correction
from twinfold.result import RESULTS, first_failure

Carry = TypeVar("Carry")


class Trajectory(eqx.Module):
    """States at the samples, and for each how far it is from the manifold and how the step to it ended.

    `start` is the violation of the initial state as it was given, before any projection; `scale` is what
    `violation` is divided by to be relative. Under `jax.vmap` all have leading batch axes.
    """

    ts: Float[Array, "*batch T"]
    xs: Float[Array, "*batch T n"]
    violation: Float[Array, "*batch T m"]
    steps: Int[Array, "*batch T"]
    result: RESULTS
    start: Float[Array, "*batch m"]
    scale: Float[Array, "*batch m"]
    zs: Float[Array, "*batch T k"] | None = None  # implicit algebraic variables, as data to start a solution from
    redundant: Int[Array, "*batch T"] | None = None  # constraints that depend on others, where projected

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


def unroll(
    step: Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]],
    state: Any,
    ts: Times,
    w: Float[Array, "T d"] | None,
    *,
    recompute: bool = False,
) -> tuple[Any, Any, Bool[Array, " T"]]:
    """State and report at each sample, and whether all was finite up to it.

    `step(t, dt, state, w0, w1) -> (state, report)`. The first step has length zero: it brings the initial state onto
    the manifold. From the first non-finite state on, the last finite one is held. `recompute`: see `rollout`.
    """

    def body(carry: tuple, sample: tuple) -> tuple:
        state, alive = carry
        t, t1, w0, w1 = sample
        new, report = step(t, t1 - t, state, w0, w1)
        leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(new)]
        alive = alive & jnp.all(jnp.stack(leaves))
        state = jax.tree.map(lambda new, old: jnp.where(alive, new, jax.lax.stop_gradient(old)), new, state)
        return (state, alive), (state, report, alive)

    before = jnp.concatenate([ts[:1], ts[:-1]])
    inputs = (None, None) if w is None else (jnp.concatenate([w[:1], w[:-1]]), w)
    scan = _recomputing_scan if recompute else jax.lax.scan
    _, outputs = scan(body, (state, jnp.array(True)), (before, ts, *inputs))
    return outputs


def _recomputing_scan(body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, samples: Any) -> tuple[Any, Any]:
    """`jax.lax.scan` whose reverse pass keeps the carry at every k-th sample, k^2 = T, and computes the rest again."""
    count = jax.tree.leaves(samples)[0].shape[0]
    length = math.isqrt(max(count - 1, 0)) + 1
    parts = -(-count // length)

    def split(leaf: Array) -> Array:
        # The last part is filled up with the last sample: steps that nobody looks at.
        filled = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], parts * length - count, axis=0)])
        return filled.reshape(parts, length, *leaf.shape[1:])

    # The scan around it keeps XLA from merging the two computations already.
    part = jax.checkpoint(lambda carry, samples: jax.lax.scan(body, carry, samples), prevent_cse=False)
    carry, outputs = jax.lax.scan(part, carry, jax.tree.map(split, samples))
    return carry, jax.tree.map(lambda leaf: leaf.reshape(parts * length, *leaf.shape[2:])[:count], outputs)


def cell_step(
    cell: Cell, t: Any, dt: Any, x: State, w0: Any, w1: Any, p: Parameters, level: Level, z: Any = None
) -> Correction:
    """One step of the cell between two samples of the input."""
    return cell.step(t, dt, x, signal(t, dt, w0, w1, cell.between), p, level, z)


def solved_at(cell: Cell, t: Any, out: Correction, w: Any, p: Parameters, z: Any) -> tuple[Any, RESULTS]:
    """The implicit z at the sample that a step has led to, and the step's result, which says where there is none."""
    z, solved = cell.next_guess(t, out.x, w, p, z)
    lost = ~solved & (out.result == RESULTS.successful)
    return z, RESULTS.where(lost, RESULTS.algebraic, out.result)


def rollout(
    cell: Cell,
    x0: State,
    ts: Times,
    w: Float[Array, "T d"] | None = None,
    *,
    p: Parameters | None = None,
    level: Level | None = None,
    start: Literal["project", "refuse"] = "project",
    recompute: bool = False,
    throw: bool = True,
) -> Trajectory:
    """Simulate one trajectory.

    **Arguments:** `cell`; `x0` at `ts[0]`; the times of the samples; the inputs at these times; `p`, the
    parameters; `level` of the constraint (that of x0 when left out); `start`: what to do with an x0 off the
    manifold; `recompute=True` for long horizons: what a gradient keeps in memory beside the trajectory itself grows as
    the square root of its length, for one more pass forward; `throw=False` to return failures as data in
    `Trajectory.result`.

    **Returns:** a `Trajectory` of the same length as `ts`.
    """
    p = {} if p is None else p
    level = cell.constraint.level(ts[0], x0, p) if level is None else level
    given = jnp.abs(cell.constraint.residual(ts[0], x0, p, level))
    scale = violation_scale(cell.constraint, ts[0], x0, p, level)

    def step(t: Any, dt: Any, state: tuple, w0: Any, w1: Any) -> tuple[tuple, tuple]:
        x, z = state
        out = contained((cell, t, dt, x, w0, w1, p, level, z), fn=cell_step)
        z, result = solved_at(cell, t + dt, out, w1, p, z)
        return (out.x, z), (out.violation, out.steps, result, out.redundant)

    begin = (x0, cell.first_guess(ts[0], x0, None if w is None else w[0], p))
    (xs, zs), (violation, steps, result, redundant), alive = unroll(step, begin, ts, w, recompute=recompute)
    result = jax.vmap(lambda alive, result: RESULTS.where(alive, result, RESULTS.nonfinite))(alive, result)
    if start == "refuse":
        # Measured values have fewer digits than the dtype: off the manifold is more than half of them.
        off = jnp.any(given > jnp.sqrt(jnp.finfo(x0.dtype).eps) * scale)
        first = (jnp.arange(ts.shape[0]) == 0) & off
        result = jax.vmap(lambda first, result: RESULTS.where(first, RESULTS.off_manifold, result))(first, result)
    trajectory = Trajectory(ts, xs, violation, steps, result, given, scale, zs, redundant)
    if throw:
        outcome = first_failure(trajectory.result)
        xs = outcome.error_if(trajectory.xs, outcome != RESULTS.successful)
        trajectory = eqx.tree_at(lambda trajectory: trajectory.xs, trajectory, xs)
    return trajectory
