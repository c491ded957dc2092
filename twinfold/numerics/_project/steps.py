"""The guarded steps of the robust projection: Newton with a line search, and descent along the manifold."""

from typing import TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import stop_gradient_tree, tree_where
from twinfold.numerics._iterate import backtrack, iterate
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.kkt import Point, ReducedHessian, newton_direction, point
from twinfold.typing import ConstraintVector, Count, Flag, State

SHORTEST_STEP = 1e-9  # the length below which a line search gives up
MAX_RETRACTIONS = 8  # Gauss-Newton steps back to the manifold after a step along it
ON_MANIFOLD = 16  # the violation, in tolerances, that is left to rounding

Step: TypeAlias = tuple[State, Point, Flag]  # state, what is known there, whether the step was taken


def newton_step(problem: ProjectionProblem, x: State, here: Point, curvature: ReducedHessian, tolerance: float) -> Step:
    """A Newton step, shortened until the merit or the KKT error falls and g is defined."""
    direction = newton_direction(problem, x, here, curvature)
    length, (x1, there) = line_search(problem, x, here, direction, tolerance)
    taken = length > 0
    return jnp.where(taken, x1, x), tree_where(taken, there, here), taken


def differentiable_step(
    problem: ProjectionProblem, x: State, here: Point, curvature: ReducedHessian, tolerance: float
) -> tuple[State, Point]:
    """The same step for differentiation through the loop: its length is data."""
    direction = newton_direction(problem, x, here, curvature)
    data = stop_gradient_tree((problem, x, here, direction))
    found, _ = line_search(*data, tolerance=tolerance)
    # A converged iterate takes full steps, so that its derivative converges too.
    x1 = x + jnp.where(here.converged, 1, found) * direction
    return x1, point(problem, x1, tolerance)


class MeritFunction(eqx.Module):
    """1/2 |x - x~|^2 + nu sum |g_i| / |dg_i|: falls along a Newton step where nu exceeds its multipliers."""

    target: State
    weight: Float[Array, ""]
    lengths: ConstraintVector  # |dg_i|

    def __call__(self, x: State, g: ConstraintVector) -> Float[Array, ""]:
        return 0.5 * jnp.sum((x - self.target) ** 2) + self.infeasibility(g)

    def infeasibility(self, g: ConstraintVector) -> Float[Array, ""]:
        return self.weight * jnp.sum(jnp.abs(g) / self.lengths)


def line_search(
    problem: ProjectionProblem, x: State, here: Point, direction: State, tolerance: float
) -> tuple[Float[Array, ""], tuple[State, Point]]:
    """The first of the lengths 1, 1/2, 1/4, ... that is accepted (or 0), the state there and what is known of it."""
    multiplier = here.space.multipliers(problem.target - x - direction)
    weight = 2 * jnp.max(jnp.abs(multiplier) * here.lengths) + jnp.linalg.norm(direction)
    merit = MeritFunction(problem.target, weight, here.lengths)
    before, expected = merit(x, here.g), jnp.sum(direction**2) + merit.infeasibility(here.g)

    def attempt(length: Float[Array, ""]) -> tuple[tuple[State, Point], Flag]:
        x1 = x + length * direction
        there = point(problem, x1, tolerance)
        falls = merit(x1, there.g) <= before - 1e-4 * length * expected
        return (x1, there), there.sound & (falls | (there.error <= 0.5 * here.error) | there.converged)

    return backtrack(attempt, (x, here), shortest=SHORTEST_STEP, dtype=x.dtype)


class _Retraction(eqx.Module):
    length: Float[Array, ""]
    left: Count  # Gauss-Newton steps that may follow
    x: State
    there: Point
    taken: Flag


def descent_step(
    problem: ProjectionProblem, x: State, here: Point, curvature: ReducedHessian, tolerance: float
) -> Step:
    """A step along the manifold that brings it nearer to the target, however far that is.

    A tangent direction is followed for a length 1, 1/2, 1/4, ..., each with Gauss-Newton steps back to the manifold,
    until the distance to the target falls.
    """
    target = problem.target
    slope = here.space.tangent(target - x)
    # Newton with the magnitudes of the curvatures along the manifold: downhill at a saddle too, and no zigzag.
    values, vectors = jnp.linalg.eigh(curvature.along)
    direction = vectors @ ((vectors.T @ slope) / jnp.maximum(jnp.abs(values), 1e-4))
    before, expected = jnp.sum((target - x) ** 2), 1e-4 * (slope @ direction)

    def step(carry: _Retraction) -> _Retraction:
        there = point(problem, carry.x, tolerance)
        feasible = there.sound & (there.violation_ratio <= jnp.where(carry.left > 0, 1, ON_MANIFOLD))
        after = jnp.sum((target - carry.x) ** 2)
        falls = after < before - carry.length * expected
        # Near the solution the distance falls by less than rounding; from a start off the manifold it may rise.
        closer = (there.error <= 0.5 * here.error) & (after <= (1 + 1e-6) * before)
        taken = feasible & (falls | closer | (here.violation_ratio > ON_MANIFOLD))
        back = there.sound & ~feasible & (carry.left > 0)
        shorter = 0.5 * carry.length
        next_x = jnp.where(back, carry.x - there.space.min_norm(there.g), x + shorter * direction)
        length = jnp.where(back | taken, carry.length, shorter)
        left = jnp.where(back, carry.left - 1, MAX_RETRACTIONS)
        return _Retraction(length, left, jnp.where(taken, carry.x, next_x), there, taken)

    one, left, no = jnp.ones((), x.dtype), jnp.array(MAX_RETRACTIONS), jnp.array(False)
    first = _Retraction(one, left, x + direction, here, no)
    last = iterate(first, step, lambda carry: ~carry.taken & (carry.length > SHORTEST_STEP))
    return jnp.where(last.taken, last.x, x), tree_where(last.taken, last.there, here), last.taken
