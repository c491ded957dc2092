"""Newton steps that are shortened until a merit function falls, and their form for differentiation."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import stop_gradient_tree
from twinfold.numerics._iterate import backtrack
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.kkt import Point, ReducedHessian, newton_direction, point
from twinfold.typing import ConstraintVector, Flag, State

SHORTEST_STEP = 1e-9  # the length below which a line search gives up


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


class Descent(eqx.Module):
    """What steps from a state along a direction have to improve: a merit function, or the error of the KKT system."""

    merit: MeritFunction
    before: Float[Array, ""]
    expected: Float[Array, ""]  # the fall along the direction, to first order
    error: Float[Array, ""]

    def accepts(self, length: Float[Array, ""], trial: State, there: Point) -> Flag:
        """Whether a step of that length leads to an improvement, and to where g is defined."""
        falls = self.merit(trial, there.g) <= self.before - 1e-4 * length * self.expected
        return there.sound & (falls | (there.error <= 0.5 * self.error) | there.converged)


def descent(problem: ProjectionProblem, x: State, here: Point, direction: State) -> Descent:
    """The line search from x along a direction."""
    multiplier = here.space.multipliers(problem.target - x - direction)
    weight = 2 * jnp.max(jnp.abs(multiplier) * here.lengths) + jnp.linalg.norm(direction)
    merit = MeritFunction(problem.target, weight, here.lengths)
    return Descent(merit, merit(x, here.g), jnp.sum(direction**2) + merit.infeasibility(here.g), here.error)


def line_search(
    problem: ProjectionProblem, x: State, here: Point, direction: State, tolerance: float
) -> tuple[Float[Array, ""], tuple[State, Point]]:
    """The first of the lengths 1, 1/2, 1/4, ... that is accepted (or 0), the state there and what is known of it."""
    line = descent(problem, x, here, direction)

    def attempt(length: Float[Array, ""]) -> tuple[tuple[State, Point], Flag]:
        trial = x + length * direction
        there = point(problem, trial, tolerance)
        return (trial, there), line.accepts(length, trial, there)

    return backtrack(attempt, (x, here), shortest=SHORTEST_STEP, dtype=x.dtype)
