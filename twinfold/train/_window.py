"""One training window: where it starts, how it is rolled out, and what is compared with the data.

The same function serves every method. First-order methods and matrix-free least squares take its values, which JAX
differentiates; dense least squares takes the derivatives in all parameters v as well, by forward sensitivities with
reverse-mode steps:

    S_{k+1} = dx_{k+1}/dx_k S_k + dx_{k+1}/dlevel dlevel/dv + dx_{k+1}/dv,        S = dx/dv

The derivatives of one step are n pullbacks, whatever the number of parameters: with few states and many weights this
is far cheaper than one push-forward per parameter through the whole rollout. Where the values have been computed
before, so have the projections: the derivatives follow from their solutions, without the iterations that found them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold._core import RESULTS, stop_gradient_tree
from twinfold.data import Batch
from twinfold.data._rows import initial_state
from twinfold.numerics import NoProjection, ProjectionResult, violation_scale
from twinfold.numerics._advance import advance, initial_cell_state
from twinfold.numerics._carry import batched_alike
from twinfold.numerics._event import in_mode
from twinfold.numerics._move import CellState
from twinfold.numerics._rollout import unroll
from twinfold.train._estimate import Estimate
from twinfold.typing import ConstraintVector, State

if TYPE_CHECKING:
    from twinfold.train._problem import TrainingProblem

Vector: TypeAlias = Float[Array, " P"]


class Tracked(eqx.Module):
    """A value, and its derivative in all parameters (a last axis of P) where it is requested."""

    value: Float[Array, "..."]
    slope: Float[Array, "..."] | None


class Prediction(eqx.Module):
    """What the residuals are made of, for each window."""

    features: Tracked  # [B, T, q]: outputs, then relative constraint and collocation residuals where penalised
    first: Tracked  # [B, n], the first state
    last: Tracked  # [B, n], the last one
    failed: Bool[Array, "*B"]
    projected: ProjectionResult | None  # [B, T, ...], the projection of each step; None where there is none

    def values(self, windows: slice) -> tuple[Array, Array, Array]:
        """Features, first and last states of some of the windows."""
        return self.features.value[windows], self.first.value[windows], self.last.value[windows]


class WindowStart(eqx.Module):
    """The state at the start of a window, and level and scale of its run's constraint."""

    x: State
    level: ConstraintVector
    scale: ConstraintVector


def window_start(estimate: Estimate, row: Batch, window: Int[Array, ""]) -> WindowStart:
    """The start of one window (`row` is a batch without its leading axis).

    A window that begins its run starts from the run's initial state; any other one from its estimated state or, where
    the state is what was measured, from its first sample.
    """
    twin = estimate.twin
    p = twin.parameters(row.run)
    x = origin = initial_state(twin, row, p)
    level = twin.constraint.level(row.origin_t, origin, p)
    scale = jax.lax.stop_gradient(violation_scale(twin.constraint, row.origin_t, origin, p, level))
    if estimate.shooting is not None:
        x = jnp.where(row.is_run_start, origin, estimate.shooting.state(window))
    elif twin.observe is None and twin.trajectory is None:
        x = jnp.where(row.is_run_start, origin, row.y[0])
    return WindowStart(x, level, scale)


def predict_window(
    problem: "TrainingProblem",
    v: Any,
    row: Batch,
    window: Int[Array, ""],
    rebuild: Callable[[Vector], Estimate] | None = None,
    known: ProjectionResult | None = None,
) -> Prediction:
    """One window at the estimate v; or at `rebuild(v)`, with the derivatives in the vector v.

    `known`: the projections of the same window at the same estimate, if it has been predicted before.
    """

    def estimate(v: Any) -> Estimate:
        return v if rebuild is None else rebuild(v)

    def evaluate(fn: Callable, *at: Tracked) -> tuple[Tracked, Any]:
        """fn(*at, v) -> (value, aux), with the total derivative of the value in v."""
        values = [each.value for each in at]
        if rebuild is None:
            value, aux = fn(*values, v)
            return Tracked(value, None), aux
        value, pullback, aux = jax.vjp(fn, *values, v, has_aux=True)
        *partials, slope = jax.vmap(pullback)(jnp.eye(value.shape[0], dtype=value.dtype))
        for by, each in zip(partials, at, strict=True):
            slope = slope + by @ each.slope
        return Tracked(value, slope), aux

    def start(v: Any) -> tuple[Float[Array, " starts"], WindowStart]:
        at = window_start(estimate(v), row, window)
        return jnp.concatenate([at.x, at.level]), at

    both, at = evaluate(start)
    n = at.x.shape[0]

    def split(both: Tracked) -> tuple[Tracked, Tracked]:
        """The state and the level."""
        return jax.tree.map(lambda leaf: leaf[:n], both), jax.tree.map(lambda leaf: leaf[n:], both)

    first, level = split(both)

    def step(carry: tuple, sample: tuple) -> tuple:
        (x, changed, z, alive, events), (t, dt, w0, w1, known) = carry, sample

        def advanced(x: State, level: ConstraintVector, v: Any) -> tuple:
            twin = estimate(v).twin
            p = twin.parameters(row.run)
            before = None if events is None else eqx.tree_at(lambda events: events.level, events, level)
            state, report = advance(twin.observed_cell, t, dt, CellState(x, z, alive, before), w0, w1, p, level, known)
            # A step that is merely too long has a gradient like any other.
            usable = (report.result == RESULTS.successful) | (report.result == RESULTS.inaccurate)
            value = state.x if state.events is None else jnp.concatenate([state.x, state.events.level])
            projected = report.projected if records else None
            return value, (state.z, state.alive, state.events, (usable, projected))

        x, (z, alive, events, reported) = evaluate(advanced, x, level if changed is None else changed)
        if x.slope is not None:
            # Derivatives that overflow are dropped; the trajectory itself continues, as it does without them.
            x = Tracked(x.value, jnp.where(jnp.all(jnp.isfinite(x.slope)), x.slope, 0))
        mode = None
        if events is not None:
            x, changed = split(x)
            events, mode = stop_gradient_tree(events), events.mode
        return (x, changed, z, alive, events), ((x, changed, z, mode), reported)

    def features(t: Any, x: Tracked, changed: Tracked | None, w: Any, z: Any, mode: Any) -> Tracked:
        def of(x: State, level: ConstraintVector, v: Any) -> tuple:
            twin = estimate(v).twin
            start = WindowStart(x, level, at.scale)
            return problem.features(twin, t, x, w, in_mode(twin.parameters(row.run), mode), start, z), None

        return evaluate(of, x, level if changed is None else changed)[0]

    twin = estimate(v).twin
    w0 = None if row.w is None else row.w[0]
    begin = initial_cell_state(twin.cell, row.ts[0], at.x, w0, twin.parameters(row.run), at.level)
    changed = None if begin.events is None else level  # a reset changes the levels
    carry = batched_alike((first, changed, begin.z, begin.alive, stop_gradient_tree(begin.events)), twin.cell.field)
    # An event cuts its step into several, each with a projection of its own.
    records = begin.events is None and not isinstance(twin.cell.projection, NoProjection)
    (xs, levels, zs, modes), reported = unroll(step, carry, row.ts, row.w, known=known, remat=problem.remat)
    successful, projected = reported
    last = jax.tree.map(lambda leaf: leaf[row.length - 1], xs)
    found = jax.vmap(features)(row.ts, xs, levels, row.w, zs, modes)
    return Prediction(found, first, last, ~jnp.all(successful), stop_gradient_tree(projected))
