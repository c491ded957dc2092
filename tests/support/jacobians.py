"""A projection and its derivatives at many points, in one compiled program; and what to compare them with."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from support.cases import Case
from twinfold.numerics._constraint import violation_scale

STEP = 1e-5  # of the central differences
QUICK = {"xla_backend_optimization_level": 0}  # these programs run once: compiling them is what takes the time


def flat_problem(case: Case, dtype=jnp.float64):
    """The differentiable inputs (x, level, p, and t where it matters) as one vector, and its inverse."""
    t, off, p, level = case.arguments(dtype)
    theta, back = ravel_pytree((off, level, p, t) if case.timed else (off, level, p))

    def parts(theta):
        values = back(theta)
        x, level, p = values[:3]
        return (values[3] if case.timed else t), x, p, level

    return theta, parts


def with_jacobians(case: Case, projection, thetas, *, anchored=False):
    """At each theta: the projection, and dx/dtheta forward and in reverse from one linearisation."""
    _, parts = flat_problem(case, thetas.dtype)
    anchor = jnp.asarray(case.on, thetas.dtype) if anchored else None

    def one(theta):
        def run(theta):
            t, x, p, level = parts(theta)
            out = projection.project(case.constraint, t, x, p, level, anchor=anchor)
            return out.x, out

        x, push, out = jax.linearize(run, theta, has_aux=True)
        forward = jax.vmap(push, out_axes=1)(jnp.eye(theta.shape[0], dtype=theta.dtype))
        pull = jax.linear_transpose(push, theta)
        (reverse,) = jax.vmap(pull)(jnp.eye(x.shape[0], dtype=x.dtype))
        return out, forward, reverse

    return jax.jit(jax.vmap(one), compiler_options=QUICK)(thetas)


def stencil(theta):
    """theta, and its neighbours for central differences."""
    shifts = STEP * np.eye(theta.shape[0])
    return np.concatenate([theta[None], theta + shifts, theta - shifts])


def central_difference(xs, size):
    """dx/dtheta from the projections of a stencil."""
    return (np.asarray(xs[1 : size + 1]) - np.asarray(xs[size + 1 : 2 * size + 1])).T / (2 * STEP)


def far_predictors(case: Case, count: int):
    """Predictors from 1e-2 to 10 times the size of the state away from the one on the manifold."""
    keys = jax.random.split(jax.random.key(7))
    reach = 10 ** jax.random.uniform(keys[0], (count, 1), minval=-2.0, maxval=1.0) * np.linalg.norm(case.on)
    ways = jax.random.normal(keys[1], (count, case.n))
    return case.on + reach * ways / jnp.linalg.norm(ways, axis=1, keepdims=True)


def distance(a, b):
    return np.linalg.norm(np.asarray(a) - np.asarray(b), axis=-1)


def relative(case: Case, xs, dtype=jnp.float64):
    """The violation of each state, as DESIGN section 3 defines it."""
    t, _, p, level = case.arguments(dtype)
    scale = violation_scale(case.constraint, t, jnp.asarray(case.on, dtype), p, level)
    return np.max(np.abs(jax.vmap(lambda x: case.constraint.residual(t, x, p, level))(xs)) / scale, axis=1)


def relative_error(a, b):
    return np.linalg.norm(np.asarray(a) - np.asarray(b)) / np.linalg.norm(np.asarray(b))
