"""Levenberg-Marquardt for the few variables of an asset, for use under `jax.vmap`; it stops by statistics.

    (J'J + lambda D) d = -J'r,    D = diag(J'J)

An iteration that asks for a small step never ends where two variables are hardly told apart: they move by much, and the
residual by nothing. The relative offset (Bates and Watts, 1981) compares what a full step would still gain with the
noise: at `OFFSET`, the estimate is within sqrt(P) times that fraction of a standard error of the minimum.

Those two variables have a minimum at the end of a long curved valley, along which straight steps are short. A step
follows the curve (geodesic acceleration, Transtrum and Sethna, 2012):

    (J'J + lambda D) a = -J'r'',    v + d + a / 2,    r'': second derivative of the residuals along d

What J has changed by in the step before is r'' along that step, at no cost: steps along a valley are nearly parallel.
One evaluation of residuals and Jacobian is one pass of one loop, so that little is compiled.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold.numerics._iterate import iterate
from twinfold.numerics._least_squares import PENALTY

OFFSET = 1e-3  # of a standard error
FIRST_DAMPING = 1e-3
CROSSED = 0.25  # of the predicted gain
MAX_BEND = 0.75  # of 2 |a| / |d|; what bends more is not described by a second derivative
MIN_DAMPING, MAX_DAMPING = 1e-9, 1e9


class Start(NamedTuple):
    """Where an iteration starts, or goes on after an earlier one: variables, damping, and the evaluations so far."""

    v: Float[Array, "*A P"]
    damping: Float[Array, "*A"]
    steps: Int[Array, "*A"]


class Fitted(NamedTuple):
    """The variables, residuals and Jacobian there, whether it has converged, whether all residuals are finite."""

    v: Float[Array, " P"]
    residual: Float[Array, "..."]
    jacobian: Float[Array, "... P"]
    converged: Bool[Array, ""]
    finite: Bool[Array, ""]
    steps: Int[Array, ""]


class _At(NamedTuple):
    fitted: Fitted
    loss: Float[Array, ""]
    trial: Float[Array, " P"]
    bend: Float[Array, "..."]  # r'' along `move`
    move: Float[Array, " P"]  # of the evaluation before
    predicted: Float[Array, ""]  # gain of the step to `trial`
    damping: Float[Array, ""]
    growth: Float[Array, ""]


def fit_asset(
    residuals: Callable[[Float[Array, " P"]], Float[Array, "..."]],
    start: Start,
    samples: Int[Array, ""],
    limit: Int[Array, ""],
) -> tuple[Fitted, Start]:
    """Minimise the sum of squares of residuals that have about unit scale, of which `samples` are measured.

    Another call from the second result goes on where this one stopped, after `limit` evaluations in all. Where a
    residual is not finite it counts as `PENALTY`, and its derivative as zero.
    """
    first = start.v
    dtype, size = first.dtype, first.shape[0]
    precision = jnp.finfo(dtype)
    # 1e-6 in double precision: where there is no noise, no offset relative to it is small.
    tolerance = float(precision.eps) ** 0.375
    freedom = jnp.maximum(samples - size, 1).astype(dtype)
    share = jnp.maximum(OFFSET**2 * size / freedom, float(precision.eps))

    def evaluated(v: Float[Array, " P"]) -> tuple[Array, tuple[Array, Array]]:
        r = residuals(v)
        finite = jnp.isfinite(r)
        r = jnp.where(finite, r, PENALTY)
        return r, (r, jnp.all(finite))

    def advance(at: _At) -> _At:
        jacobian, (r, finite) = jax.jacfwd(evaluated, has_aux=True)(at.trial)
        jacobian = jnp.where(jnp.isfinite(jacobian), jacobian, 0)
        loss = jnp.sum(r**2)
        better = loss < at.loss
        old = at.fitted
        move = at.trial - old.v
        bend = jnp.where(jnp.isfinite(at.loss) & finite, (jacobian - old.jacobian) @ move, 0)
        v, r, jacobian, finite = (
            jnp.where(better, new, kept)
            for new, kept in zip(
                (at.trial, r, jacobian, finite), (old.v, old.residual, old.jacobian, old.finite), strict=True
            )
        )
        # Nielsen's rule: the better the model predicted the gain, the smaller the next damping. A step that gains far
        # less than predicted has crossed a curved valley: more damping, or the next one crosses it back.
        gain = (at.loss - loss) / jnp.maximum(at.predicted, precision.tiny)
        shrink = jnp.where(
            jnp.isfinite(gain), jnp.where(gain < CROSSED, 2, jnp.clip(1 - (2 * gain - 1) ** 3, 1 / 3, 1)), 1
        )
        damping = jnp.clip(at.damping * jnp.where(better, shrink, at.growth), MIN_DAMPING, MAX_DAMPING)
        growth = jnp.where(better, 2, 2 * at.growth)
        loss = jnp.where(better, loss, at.loss)
        rows = jacobian.reshape(-1, size)
        scale = jnp.sqrt(jnp.sum(rows**2, axis=0))
        scale = jnp.where(scale > 0, scale, 1)
        rows = rows / scale[None]
        gramian, gradient = rows.T @ rows, rows.T @ r.reshape(-1)
        full = _solved(gramian, gradient, jnp.array(10 * precision.eps, dtype))
        left = gradient @ full  # what a full step would gain
        converged = (left <= share * loss) | (jnp.max(jnp.abs(full / scale)) <= tolerance)
        d = _solved(gramian, gradient, damping)
        predicted = d @ (damping * d + gradient)
        # In the scaled variables, as far as d goes along the last move.
        along = move * scale
        share_of_move = (d @ along) / jnp.maximum(along @ along, precision.tiny)
        a = share_of_move**2 * _solved(gramian, rows.T @ bend.reshape(-1), damping)
        bends = 2 * jnp.linalg.norm(a) <= MAX_BEND * jnp.linalg.norm(d)
        step = d + jnp.where(bends, 0.5 * a, 0)
        fitted = Fitted(v, r, jacobian, converged & finite, finite, old.steps + 1)
        return _At(fitted, loss, v - step / scale, bend, move, predicted, damping, growth)

    shape = jax.eval_shape(residuals, first).shape
    nothing = Fitted(
        first,
        jnp.zeros(shape, dtype),
        jnp.zeros((*shape, size), dtype),
        jnp.array(False),
        jnp.array(False),
        start.steps,
    )
    one = jnp.ones((), dtype)
    no_bend, no_move = jnp.zeros(shape, dtype), jnp.zeros_like(first)
    begin = _At(nothing, jnp.inf * one, first, no_bend, no_move, jnp.inf * one, start.damping, 2 * one)
    last = iterate(begin, advance, lambda at: ~at.fitted.converged & (at.fitted.steps < limit))
    return last.fitted, Start(last.fitted.v, last.damping, last.fitted.steps)


def _solved(
    gramian: Float[Array, "P P"], gradient: Float[Array, " P"], damping: Float[Array, ""]
) -> Float[Array, " P"]:
    """The damped step, for a gramian with unit diagonal."""
    factor = jax.scipy.linalg.cho_factor(gramian + damping * jnp.eye(gradient.shape[0], dtype=gradient.dtype))
    return jax.scipy.linalg.cho_solve(factor, gradient)
