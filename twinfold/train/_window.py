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
from twinfold.model import Twin
from twinfold.numerics import violation_scale
from twinfold.numerics._advance import CellState, advance, initial_cell_state
from twinfold.numerics._rollout import unroll
from twinfold.train._estimate import Estimate
from twinfold.typing import ConstraintVector, State

if TYPE_CHECKING:
    from twinfold.train._objective import Objective

Vector: TypeAlias = Float[Array, " P"]
Rebuild: TypeAlias = Callable[[Any], Estimate]  # the estimate for given parameters


class Tracked(eqx.Module):
    """A value, and its derivative in all parameters (a last axis of P) where that is asked for."""

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


def initial_state(twin: Twin, row: Batch, p: dict[str, Any]) -> State:
    """The state at the first sample of the run that a window was cut from."""
    return twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)


def predict_window(
    objective: "Objective", rebuild: Rebuild, v: Any, row: Batch, window: Int[Array, ""], *, slopes: bool
) -> Prediction:
    """One window at the parameters v, with derivatives where `slopes`."""

    def start(v: Any) -> tuple[Float[Array, " starts"], WindowStart]:
        at = window_start(rebuild(v), row, window)
        return jnp.concatenate([at.x, at.level]), at

    both, at = _evaluate(start, (), v, slopes)
    n = at.x.shape[0]
    first = jax.tree.map(lambda leaf: leaf[:n], both)
    level = jax.tree.map(lambda leaf: leaf[n:], both)

    def step(t: Any, dt: Any, carry: tuple, w0: Any, w1: Any) -> tuple:
        x, z, alive = carry

        def advanced(x: State, level: ConstraintVector, v: Any) -> tuple:
            twin = rebuild(v).twin
            p = twin.parameters(row.run)
            state, report = advance(twin.cell, t, dt, CellState(x, z, alive), w0, w1, p, level)
            return state.x, (state.z, state.alive, report.result == RESULTS.successful)

        x, (z, alive, successful) = _evaluate(advanced, (x, level), v, slopes)
        if x.slope is not None:
            # Derivatives that overflow say nothing; the trajectory itself goes on, as it does without them.
            finite = jnp.all(jnp.isfinite(x.slope))
            x = Tracked(x.value, jnp.where(finite, x.slope, 0))
        return (x, z, alive), successful

    def features(t: Any, x: Tracked, w: Any, z: Any) -> Tracked:
        def of(x: State, level: ConstraintVector, v: Any) -> tuple:
            twin = rebuild(v).twin
            start = WindowStart(x, level, at.scale)
            return objective.features(twin, t, x, w, twin.parameters(row.run), start, z), None

        return _evaluate(of, (x, level), v, slopes)[0]

    twin = rebuild(v).twin
    w0 = None if row.w is None else row.w[0]
    begin = initial_cell_state(twin.cell, row.ts[0], at.x, w0, twin.parameters(row.run))
    carry = (first, begin.z, begin.alive)
    (xs, zs, _), successful = unroll(step, carry, row.ts, row.w, remat=objective.remat)
    last = jax.tree.map(lambda leaf: leaf[row.length - 1], xs)
    return Prediction(jax.vmap(features)(row.ts, xs, row.w, zs), first, last, ~jnp.all(successful))


def _evaluate(fn: Callable, at: tuple[Tracked, ...], v: Any, slopes: bool) -> tuple[Tracked, Any]:
    """fn(*at, v) -> (value, aux), with the total derivative of the value in v."""
    values = [each.value for each in at]
    if not slopes:
        value, aux = fn(*values, v)
        return Tracked(value, None), aux
    value, pullback, aux = jax.vjp(fn, *values, v, has_aux=True)
    *partials, by_v = jax.vmap(pullback)(jnp.eye(value.shape[0], dtype=value.dtype))
    for by, each in zip(partials, at, strict=True):
        by_v = by_v + by @ each.slope
    return Tracked(value, by_v), aux
