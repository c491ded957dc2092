"""The Jacobian of the residuals in all parameters, by forward sensitivities with reverse-mode steps.

    S_{k+1} = dx_{k+1}/dx_k S_k + dx_{k+1}/dlevel dlevel/dv + dx_{k+1}/dv,        S = dx/dv

The derivatives of one step are n pullbacks, whatever the number of parameters: with few states and many weights this
is far cheaper than one push-forward per parameter through the whole rollout.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from twinfold._types import Level, State
from twinfold.data.batch import Batch
from twinfold.result import RESULTS
from twinfold.rollout import cell_step, solved_at, unroll
from twinfold.train.estimate import Estimate
from twinfold.train.objective import Objective, Prediction, Setup

Vector: TypeAlias = Float[Array, " P"]
Rebuild: TypeAlias = Callable[[Vector], Estimate]


def _jacobians(fn: Callable, *at: Any) -> tuple[Any, tuple[Any, ...], Any]:
    """value, its Jacobian in each argument, and aux, for fn(*at) = (value, aux)."""
    value, pullback, aux = jax.vjp(fn, *at, has_aux=True)
    return value, jax.vmap(pullback)(jnp.eye(value.shape[0], dtype=value.dtype)), aux


def _window(objective: Objective, rebuild: Rebuild, v: Vector, row: Batch, window: Int[Array, ""]) -> tuple:
    """(features, first state, last state) of one window, their derivatives in v, and whether it failed."""

    def start(v: Vector) -> tuple[Float[Array, " starts"], Setup]:
        setup = objective.setup(rebuild(v), row, window)
        return jnp.concatenate([setup.x, setup.level]), setup

    _, (slopes,), setup = _jacobians(start, v)
    n = setup.x.shape[0]
    first_slope, level_slope = slopes[:n], slopes[n:]

    def chained(fn: Callable, x: State, along: Float[Array, "n P"]) -> tuple:
        """fn(x, level, v), its total derivative in v given that of x, and aux."""
        value, (by_x, by_level, by_v), aux = _jacobians(fn, x, setup.level, v)
        return value, by_x @ along + by_level @ level_slope + by_v, aux

    def step(t: Any, dt: Any, state: tuple, w0: Any, w1: Any) -> tuple:
        x, along, z = state

        def advance(x: State, level: Level, v: Vector) -> tuple:
            twin = rebuild(v).twin
            p = twin.parameters(row.run)
            out = cell_step(twin.cell, t, dt, x, w0, w1, p, level, z)
            return out.x, solved_at(twin.cell, t + dt, out, w1, p, z)

        x, along, (z, result) = chained(advance, x, along)
        return (x, along, z), result == RESULTS.successful

    def features(t: Any, x: State, along: Float[Array, "n P"], w: Any, z: Any) -> tuple:
        def of(x: State, level: Level, v: Vector) -> tuple:
            twin = rebuild(v).twin
            at = Setup(x, level, setup.scale)
            return objective.features(twin, t, x, w, twin.parameters(row.run), at, z), None

        value, slope, _ = chained(of, x, along)
        return value, slope

    twin = rebuild(v).twin
    guess = twin.cell.first_guess(row.ts[0], setup.x, None if row.w is None else row.w[0], twin.parameters(row.run))
    (xs, alongs, zs), successful, alive = unroll(step, (setup.x, first_slope, guess), row.ts, row.w)
    values, value_slopes = jax.vmap(features)(row.ts, xs, alongs, row.w, zs)
    failed = ~jnp.all(successful & alive)
    end = row.length - 1
    return (values, setup.x, xs[end]), (value_slopes, first_slope, alongs[end]), failed


def residuals_with_jacobian(
    objective: Objective, rebuild: Rebuild, v: Vector, batch: Batch, windows: Int[Array, " B"]
) -> tuple[Float[Array, " N"], Float[Array, "N P"], Int[Array, ""]]:
    """r and dr/dv at the estimate `rebuild(v)`, and the number of windows that failed."""
    parts, slopes, failed = jax.vmap(lambda row, window: _window(objective, rebuild, v, row, window))(batch, windows)

    def residuals(parts: tuple, v: Vector) -> Float[Array, " N"]:
        features, first, last = parts
        return objective.residuals(rebuild(v), Prediction(features, first, last, failed), batch)

    # Given the prediction, a residual depends on few of its values: pushing all columns forward is cheap.
    value, push = jax.linearize(residuals, parts, v)
    columns = jnp.eye(v.shape[0], dtype=v.dtype)
    jacobian = jax.vmap(push, in_axes=((-1, -1, -1), 1), out_axes=1)(slopes, columns)
    return value, jacobian, jnp.sum(failed)
