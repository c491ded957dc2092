"""Least squares with a prior: damped Gauss-Newton steps in square-root form.

    min |v|^2 + |r(v)|^2,        [J; I; sqrt(lambda) I] d = -[r; v; 0]

The prior makes every step well-defined and tells when to stop: the length of a step in the metric J'J + I is the error
of v in standard deviations. Beside `least_squares` (Optimistix), for problems that are solved at every sample:
residuals and Jacobian are evaluated together, in one place, so that the model is compiled once; the matrix is
factorised by QR without forming J'J, so that float32 works; what the model returns beside its residuals is kept.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from twinfold._core import tree_where
from twinfold.numerics._iterate import iterate

FIRST_DAMPING = 1e-6
ROUNDINGS = 4  # of the cost: a gain below as many is not seen


class RegularisedSolution(eqx.Module):
    """The minimum `v`; the Jacobian of r there; `value` and its derivative `slopes`; `rest`; whether it was found."""

    v: Float[Array, " P"]
    jacobian: Float[Array, "r P"]
    value: Float[Array, " N"]
    slopes: Float[Array, "N P"]
    rest: Any
    converged: Bool[Array, ""]


def regularised_least_squares(
    residuals: Callable[[Float[Array, " P"]], tuple[tuple[Float[Array, " r"], Float[Array, " N"]], Any]],
    first: Float[Array, " P"],
    max_steps: int,
    tolerance: float,
) -> RegularisedSolution:
    """Minimise |v|^2 + |r(v)|^2 from `first`.

    **Arguments:** `residuals` returns r with a value of interest, and anything else; where r is not finite, a step is
    not accepted. `tolerance`: a step shorter than this, in standard deviations of v, is the last one.

    **Returns:** a `RegularisedSolution`; it has not converged if there were `max_steps` before, or if r is not finite
    at `first`.
    """
    size, eps = first.shape[0], float(jnp.finfo(first.dtype).eps)
    rounding, tiny = ROUNDINGS * eps, float(jnp.finfo(first.dtype).tiny)
    identity = jnp.eye(size, dtype=first.dtype)

    def evaluate(v: Float[Array, " P"]) -> tuple:
        (r, value), push, rest = jax.linearize(residuals, v, has_aux=True)
        jacobian, slopes = jax.vmap(push, out_axes=-1)(identity)
        return r, jnp.where(jnp.isfinite(jacobian), jacobian, 0), value, slopes, rest

    def step(state: tuple) -> tuple:
        count, trial, damping, growth, predicted, cost, best, _ = state
        there = evaluate(trial)
        new = there[0] @ there[0] + trial @ trial
        # The last step is too short for its gain to be seen.
        done = jnp.isfinite(cost) & (predicted <= tolerance**2 + rounding * cost)
        good = jnp.isfinite(new) & ((new < cost) | (done & (new <= (1 + rounding) * cost)))
        # Nielsen's rule: the better the model predicted the gain, the smaller the next damping.
        gain = jnp.where(jnp.isfinite(cost), (cost - new) / jnp.maximum(predicted, tiny), 1)
        damping = jnp.where(good, damping * jnp.clip(1 - (2 * gain - 1) ** 3, 1 / 3, 1), damping * growth)
        growth = jnp.where(good, 2, 2 * growth)
        cost = jnp.where(good, new, cost)
        best = tree_where(good, (trial, *there), best)
        v, r, jacobian, *_ = best
        q, factor = jnp.linalg.qr(jnp.concatenate([jacobian, identity, jnp.sqrt(damping) * identity]))
        white = q[:-size].T @ jnp.concatenate([r, v])
        d = -jax.scipy.linalg.solve_triangular(factor, white)
        return count + 1, v + d, damping, growth, white @ white, cost, best, done

    shapes: Any = jax.eval_shape(evaluate, first)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    infinite, one = jnp.array(jnp.inf, first.dtype), jnp.ones((), first.dtype)
    damped = (FIRST_DAMPING * one, 2 * one)
    state = (jnp.array(0), first, *damped, infinite, infinite, (first, *nothing), jnp.array(False))
    *_, cost, best, done = iterate(state, step, lambda state: ~state[-1] & (state[0] < max_steps))
    v, _, jacobian, value, slopes, rest = best
    return RegularisedSolution(v, jacobian, value, slopes, rest, done & jnp.isfinite(cost))
