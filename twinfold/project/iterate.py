"""One iteration of the projection: a plain step for predictors close to the manifold, a guarded one for the rest."""

from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from twinfold._types import Level, State
from twinfold.choose import choose
from twinfold.project.base import Problem, as_data
from twinfold.project.kkt import Point, ReducedHessian, newton_direction, point, sqp_direction

# A step length below which the line search gives up.
SHORTEST = 1e-9
# Gauss-Newton steps back to the manifold after a step along it, and the violation (in tolerances) that is left to
# rounding when all have been taken.
RETRACTIONS = 8
ON_MANIFOLD = 16

Step: TypeAlias = tuple[State, Point, Bool[Array, ""]]  # state, what is known there, whether the step was taken


def plain_step(problem: Problem, x: State, here: Point, tolerance: float) -> Step:
    """A full step with unit Hessian, taken where the error falls fast (else curvature matters)."""
    return attempt(problem, x, here, x + sqp_direction(problem, x, here), tolerance)[:3]


def attempt(
    problem: Problem, x: State, here: Point, x1: State, tolerance: float
) -> tuple[State, Point, Bool[Array, ""], Point]:
    """The better of two states, what is known there, whether it is the second, and what is known of that."""
    there = point(problem, x1, tolerance)
    # Rounding can raise an error that is already as small as it gets: keep the better of the two.
    taken = there.converged | (there.error < 0.1 * here.error)
    return jnp.where(taken, x1, x), choose(taken, there, here), taken, there


def newton_step(problem: Problem, x: State, here: Point, curvature: ReducedHessian, tolerance: float) -> Step:
    """A Newton step, shortened until the merit or the KKT error falls and g is defined."""
    direction = newton_direction(problem, x, here, curvature)
    length, x1, there = line_search(problem, x, here, direction, tolerance)
    taken = length > 0
    return jnp.where(taken, x1, x), choose(taken, there, here), taken


def differentiable_step(problem: Problem, x: State, here: Point, curvature: ReducedHessian, tolerance: float) -> Step:
    """The same step for differentiation through the loop: its length is data."""
    direction = newton_direction(problem, x, here, curvature)
    # A converged iterate goes on with full steps, so that its derivative converges too.
    found = line_search(as_data(problem), as_data(x), as_data(here), as_data(direction), tolerance)[0]
    length = jnp.where(here.converged, 1, found)
    x1 = x + length * direction
    return x1, point(problem, x1, tolerance), length > 0


def line_search(
    problem: Problem, x: State, here: Point, direction: State, tolerance: float
) -> tuple[Float[Array, ""], State, Point]:
    """The first of the lengths 1, 1/2, 1/4, ... that is accepted (or 0), the state there and what is known of it."""
    # l1 merit 1/2 |x - x~|^2 + nu sum |g_i| / |dg_i|, with a weight above the multipliers that the full step has.
    multiplier = here.space.multipliers(problem.target - x - direction)
    nu = 2 * jnp.max(jnp.abs(multiplier) * here.lengths) + jnp.linalg.norm(direction)

    def merit(x: State, g: Level) -> Float[Array, ""]:
        return 0.5 * jnp.sum((x - problem.target) ** 2) + nu * jnp.sum(jnp.abs(g) / here.lengths)

    before = merit(x, here.g)
    expected = jnp.sum(direction**2) + nu * jnp.sum(jnp.abs(here.g) / here.lengths)

    def shorter(trial: tuple) -> tuple:
        length = 0.5 * trial[0]
        x1 = x + length * direction
        there = point(problem, x1, tolerance)
        falls = merit(x1, there.g) <= before - 1e-4 * length * expected
        good = there.sound & (falls | (there.error <= 0.5 * here.error) | there.converged)
        return length, x1, there, good

    start = (jnp.full((), 2, x.dtype), x, here, jnp.array(False))
    length, x1, there, good = jax.lax.while_loop(lambda trial: ~trial[3] & (trial[0] > SHORTEST), shorter, start)
    return jnp.where(good, length, 0), x1, there


def descent_step(problem: Problem, x: State, here: Point, curvature: ReducedHessian, tolerance: float) -> Step:
    """A step along the manifold that brings it nearer to the target, however far that is.

    A tangent direction is followed for a length 1, 1/2, 1/4, ..., each with Gauss-Newton steps back to the manifold,
    until the distance falls.
    """
    gap = problem.target - x
    slope = here.space.tangent(gap)
    # Newton with the magnitudes of the curvatures along the manifold: downhill at a saddle too, and no zigzag.
    values, vectors = jnp.linalg.eigh(curvature.along)
    direction = vectors @ ((vectors.T @ slope) / jnp.maximum(jnp.abs(values), 1e-4))
    expected = 1e-4 * (slope @ direction)

    def try_again(trial: tuple) -> tuple:
        length, left, x1, _, _ = trial
        there = point(problem, x1, tolerance)
        feasible = there.sound & (there.infeasible <= jnp.where(left > 0, 1, ON_MANIFOLD))
        before, after = jnp.sum(gap**2), jnp.sum((problem.target - x1) ** 2)
        falls = after < before - length * expected
        # Near the solution the distance falls by less than rounding; from a start off the manifold it may rise.
        closer = (there.error <= 0.5 * here.error) & (after <= (1 + 1e-6) * before)
        good = feasible & (falls | closer | (here.infeasible > ON_MANIFOLD))
        back = there.sound & ~feasible & (left > 0)
        shorter = 0.5 * length
        new = jnp.where(back, x1 - there.space.min_norm(there.g), x + shorter * direction)
        return (
            jnp.where(back | good, length, shorter),
            jnp.where(back, left - 1, RETRACTIONS),
            jnp.where(good, x1, new),
            there,
            good,
        )

    start = (jnp.ones((), x.dtype), jnp.array(RETRACTIONS), x + direction, here, jnp.array(False))
    _, _, x1, there, taken = jax.lax.while_loop(lambda trial: ~trial[4] & (trial[0] > SHORTEST), try_again, start)
    return jnp.where(taken, x1, x), choose(taken, there, here), taken
