"""One training window: where it starts, how it is rolled out, and what is compared with the data.

The same function serves every method. First-order methods and matrix-free least squares take its values, which JAX
differentiates; dense least squares takes the derivatives in all parameters v as well, by forward sensitivities with
reverse-mode steps:

    S_{k+1} = dx_{k+1}/dx_k S_k + dx_{k+1}/dlevel dlevel/dv + dx_{k+1}/dv,        S = dx/dv

The derivatives of one step are n pullbacks, whatever the number of parameters: with few states and many weights this
is far cheaper than one push-forward per parameter through the whole rollout.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold._core import RESULTS
from twinfold.data import Batch
from twinfold.data._rows import initial_state
from twinfold.numerics import violation_scale
from twinfold.numerics._advance import CellState, advance, initial_cell_state
from twinfold.numerics._carry import batched_alike
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
) -> Prediction:
    """One window at the estimate v; or at `rebuild(v)`, with the derivatives in the vector v."""

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
    first, level = (jax.tree.map(lambda leaf, part=part: leaf[part], both) for part in (slice(n), slice(n, None)))

    def step(carry: tuple, sample: tuple) -> tuple:
        (x, z, alive), (t, dt, w0, w1) = carry, sample

        def advanced(x: State, level: ConstraintVector, v: Any) -> tuple:
            twin = estimate(v).twin
            p = twin.parameters(row.run)
            state, report = advance(twin.cell, t, dt, CellState(x, z, alive), w0, w1, p, level)
            # A step that is merely too long has a gradient like any other.
            usable = (report.result == RESULTS.successful) | (report.result == RESULTS.inaccurate)
            return state.x, (state.z, state.alive, usable)

        x, (z, alive, successful) = evaluate(advanced, x, level)
        if x.slope is not None:
            # Derivatives that overflow are dropped; the trajectory itself continues, as it does without them.
            x = Tracked(x.value, jnp.where(jnp.all(jnp.isfinite(x.slope)), x.slope, 0))
        return (x, z, alive), ((x, z), successful)

    def features(t: Any, x: Tracked, w: Any, z: Any) -> Tracked:
        def of(x: State, level: ConstraintVector, v: Any) -> tuple:
            twin = estimate(v).twin
            start = WindowStart(x, level, at.scale)
            return problem.features(twin, t, x, w, twin.parameters(row.run), start, z), None

        return evaluate(of, x, level)[0]

    twin = estimate(v).twin
    w0 = None if row.w is None else row.w[0]
    begin = initial_cell_state(twin.cell, row.ts[0], at.x, w0, twin.parameters(row.run))
    carry = batched_alike((first, begin.z, begin.alive), twin.cell.field)
    (xs, zs), successful = unroll(step, carry, row.ts, row.w, remat=problem.remat)
    last = jax.tree.map(lambda leaf: leaf[row.length - 1], xs)
    return Prediction(jax.vmap(features)(row.ts, xs, row.w, zs), first, last, ~jnp.all(successful))
