"""The first steps of the search for the nearest point: all that most predictors need.

A step with unit Hessian from the predictor, then Newton steps on the KKT system, as long as each brings it much closer.
For small problems with independent constraints whose curvature is definite; whatever else comes up is left to
`search.py`. Its carry is short, and its equations are those of the tangent space alone, of dimension n - m: a step
takes half the time. A step that is expected to reach rounding error is the last, and not evaluated here: the caller
evaluates the KKT system where it ends in any case.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import tree_where
from twinfold.numerics._iterate import iterate
from twinfold.numerics._linalg.dense import (
    SMALL,
    apply,
    apply_transposed,
    cholesky,
    complement,
    product,
    solve_lower,
    solve_lower_transposed,
)
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.kkt import Point, point, sqp_direction
from twinfold.typing import Count, Flag, State

USUAL_EVALUATIONS = 4  # which most predictors of a batch need
CLOSER, MUCH_CLOSER = 1.0, 0.25  # the part of the error that the first step, or a Newton step, may leave


class Near(eqx.Module):
    """Where the first steps stand: the state that was taken last, and the one to be evaluated next."""

    x: State
    error: Float[Array, ""]
    arrived: Flag  # x is a solution, as accurate as rounding permits, or expected to be one
    trial: State
    going: Flag
    steps: Count


def may_be_near(problem: ProjectionProblem) -> bool:
    """Whether these steps are made for a problem."""
    m, n = problem.level.shape[0], problem.target.shape[0]
    return m < n <= SMALL and not problem.switched


def approach(problem: ProjectionProblem, start: Point, tolerance: float, max_steps: int) -> Near:
    """The steps from the target of a problem, `start` being what is known of it, to a solution or as far as they go."""

    def step(at: Near) -> Near:
        there = point(problem, at.trial, tolerance)
        direction, definite = _newton_direction(problem, at.trial, there)
        # The first step is taken unless it leads away; at the end rounding can raise the error.
        part = jnp.where(at.steps == 0, CLOSER, MUCH_CLOSER)
        closer = there.converged | (there.error < part * at.error)
        sound = definite & ~there.space.singular
        # Newton's error falls quadratically: from one step to the next by the square of the last factor.
        factor = there.error / jnp.where(at.error > 0, at.error, 1)
        left = jnp.maximum(there.violation_ratio, there.drift_ratio) * factor**2
        last = closer & sound & ~there.converged & (left <= 1)
        x = jnp.where(last, at.trial + direction, at.trial)
        x, error, arrived = tree_where(
            closer, (x, there.error, sound & (there.acceptable | last)), (at.x, at.error, at.arrived)
        )
        steps = at.steps + jnp.where(last, 2, 1)
        going = closer & sound & ~there.converged & ~last & (steps < max_steps)
        return Near(x, error, arrived, at.trial + direction, going, steps)

    x = problem.target
    trial, none = x + sqp_direction(problem, x, start), jnp.array(0)
    first = Near(x, start.error, jnp.array(False), trial, start.sound & ~start.space.singular, none)
    return iterate(first, step, lambda at: at.going, usual=USUAL_EVALUATIONS)


def _newton_direction(problem: ProjectionProblem, x: State, here: Point) -> tuple[State, Flag]:
    """The Newton step of the KKT system, and whether its Hessian is positive definite along the manifold."""
    space, gap = here.space, problem.target - x
    multiplier, basis = space.multipliers(gap), complement(space.q)

    def normal(x: State) -> State:
        return jax.vjp(problem.residual, x)[1](multiplier)[0]

    # Rows of Z H - Z, H being symmetric: as many products with the Hessian as the manifold has dimensions.
    bent = jax.vmap(lambda z: jax.jvp(normal, (x,), (z,))[1])(basis)
    # On the manifold, rounding of g must not decide whether a step leads nearer.
    back = jnp.where(here.violation_ratio > 1, -space.min_norm(here.g), 0)
    factor, definite = cholesky(jnp.eye(basis.shape[0], dtype=x.dtype) + product(bent, basis.T))
    along = solve_lower_transposed(factor, solve_lower(factor, apply(basis, gap) - apply(bent, back)))
    return back + apply_transposed(basis, along), definite
