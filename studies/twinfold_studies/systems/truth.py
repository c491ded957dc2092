"""Reference trajectories, to the limit of float64.

An eighth-order Runge-Kutta method (Dormand and Prince) with equal steps between the samples and compensated
summation: the rounding error of x + dx is carried to the next step. The number of steps is doubled until the result no
longer changes, and every sample is projected onto the invariants.
"""

import math
from collections.abc import Callable, Sequence

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from twinfold import RESULTS
from twinfold.numerics import AbstractConstraint, Newton, ProjectionResult
from twinfold.systems import System
from twinfold.typing import Times

TABLEAU = diffrax.Dopri8.tableau
GAIN = 2**8  # ratio of errors when the steps of a method of order 8 are halved
TOLERANCE = 1e-14  # error of the method, relative to the size of the trajectory
MAX_ROUNDING = 1e-9  # a smaller change that no longer decreases is due to rounding
MAX_STEPS = 2**10  # between two samples
CHUNK = 2**13  # samples projected together


@eqx.filter_jit
def integrate(field: Callable, x0s: Float[Array, "B n"], ts: Times, steps: Int[Array, ""]) -> Float[Array, "B T n"]:
    """The trajectories at `ts`, with `steps` steps between two samples."""
    rate = jax.vmap(field, in_axes=(None, 0))
    weights = [float(weight) for weight in TABLEAU.b_sol]
    rows = [()] + [tuple(float(weight) for weight in row) for row in TABLEAU.a_lower]
    nodes = [0.0] + [float(node) for node in TABLEAU.c]

    def combined(weights: Sequence[float], slopes: list[Array]) -> Array:
        terms = [weight * slope for weight, slope in zip(weights, slopes, strict=True) if weight != 0]
        return sum(terms, jnp.zeros_like(x0s))

    def interval(carry: tuple, times: tuple) -> tuple:
        t0, t1 = times
        h = (t1 - t0) / steps

        def step(i: Array, carry: tuple) -> tuple:
            x, compensation = carry
            t = t0 + h * i
            slopes: list[Array] = []
            for row, node in zip(rows, nodes, strict=True):
                slopes.append(rate(t + h * node, x + h * combined(row, slopes)))
            change = h * combined(weights, slopes) + compensation
            after = x + change
            return after, change - (after - x)

        carry = jax.lax.fori_loop(0, steps, step, carry)
        return carry, carry[0]

    _, xs = jax.lax.scan(interval, (x0s, jnp.zeros_like(x0s)), (ts[:-1], ts[1:]))
    return jnp.swapaxes(jnp.concatenate([x0s[None], xs]), 0, 1)


@eqx.filter_jit
def project(
    constraint: AbstractConstraint, ts: Times, xs: Float[Array, "T n"], levels: Float[Array, "T m"]
) -> ProjectionResult:
    """Project each state onto its level."""
    return jax.vmap(lambda t, x, level: Newton().project(constraint, t, x, {}, level))(ts, xs, levels)


def on_invariants(
    constraint: AbstractConstraint, ts: Times, xs: Float[Array, "B T n"]
) -> tuple[Float[Array, "B T n"], ProjectionResult]:
    """Project every sample onto the level of the first one of its trajectory."""
    levels = jax.vmap(lambda x0: constraint.level(ts[0], x0, {}))(xs[:, 0])
    every = (jnp.tile(ts, len(xs)), xs.reshape(-1, xs.shape[-1]), jnp.repeat(levels, len(ts), axis=0))
    count = len(every[0])
    # Chunks of equal size, the last one padded, so that one program serves any number of samples.
    every = [np.concatenate([a, np.repeat(a[-1:], -count % CHUNK, axis=0)]) for a in map(np.asarray, every)]
    chunks = [project(constraint, *(jnp.asarray(a[i : i + CHUNK]) for a in every)) for i in range(0, count, CHUNK)]
    out = jax.tree.map(lambda *parts: jnp.concatenate(parts), *chunks)
    return out.x[:count].reshape(xs.shape), out


def converged(field: Callable, x0s: Float[Array, "B n"], ts: Times) -> Float[Array, "B T n"]:
    """The trajectories, with enough steps between samples for the precision of float64."""
    steps, change, before = 1, math.inf, math.inf
    xs = integrate(field, x0s, ts, jnp.array(steps))
    while steps < MAX_STEPS:
        steps *= 2
        finer = integrate(field, x0s, ts, jnp.array(steps))
        size = jnp.max(jnp.linalg.norm(finer, axis=-1), axis=1) + jnp.finfo(finer.dtype).tiny
        change = float(jnp.max(jnp.abs(finer - xs) / size[:, None, None]))
        # The change is the error of the coarser solution; that of the finer one is smaller by the gain.
        if change <= GAIN * TOLERANCE or before / 4 < change < MAX_ROUNDING:
            return finer
        xs, before = finer, change
    raise RuntimeError(
        f"truth: {MAX_STEPS} steps between samples still change the result by {change:.1e} (relative). The "
        "field is not smooth or not finite along a trajectory, or the samples `ts` are too far apart."
    )


def truth(system: System, x0s: ArrayLike, ts: ArrayLike) -> Float[Array, "B T n"]:
    """Trajectories of `system.truth` from each of `x0s` at `ts[0]`, sampled at `ts`, on its invariants.

    Requires float64. Largest errors against an extrapolation method in 80 bits, relative to the size of the trajectory:
    over the training horizon 5e-14 for two-body and below 1e-14 for all others; over the long horizon 2e-12 for
    two-body, 1e-12 for the rigid body (T = 1000, near the separatrix) and below 5e-14 for all others. Errors over the
    long horizon are due to rounding: more steps do not help.
    """
    if jnp.zeros(()).dtype != jnp.float64:
        raise RuntimeError("truth: reference trajectories require float64; call twinfold.enable_x64() first.")
    x0s, ts = jnp.asarray(x0s, jnp.float64), jnp.asarray(ts, jnp.float64)
    states = len(system.state_names)
    if x0s.ndim != 2 or x0s.shape[1] != states:
        raise ValueError(f"x0s has shape {x0s.shape}; {system.name} requires (count, {states}).")
    if ts.ndim != 1 or len(ts) < 2 or not bool(jnp.all(jnp.isfinite(ts[-1:]) & (jnp.diff(ts) > 0))):
        raise ValueError("ts must increase: a vector of at least two finite times is required.")
    xs, projected = on_invariants(system.constraint, ts, converged(system.truth, x0s, ts))
    failed = np.asarray(projected.result != RESULTS.successful)
    if failed.any():
        reason = RESULTS[jax.tree.map(lambda leaf: leaf[failed.argmax()], projected.result)]
        raise RuntimeError(f"truth: a sample of {system.name} could not be projected. {reason}")
    return xs
