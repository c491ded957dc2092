"""The optimality (KKT) system of the orthogonal projection, reduced to the normal and the tangent space.

    x - x~ + G(x)' lambda = 0,    g(x) = level                                             (the paper's Eq. 5)

Written with G = L Q and the tangent projector P = I - Q'Q, its Newton system needs m x m triangular solves and one
Cholesky factor of P H P + Q'Q, with H = I + sum_i lambda_i d2g_i. That matrix is positive definite exactly where
the second-order condition (A6') holds, and the units of g do not enter it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.numerics._linalg.dense import (
    SMALL,
    RowSpace,
    SymmetricSolver,
    apply,
    factorise,
    product,
    symmetric_solver,
)
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.typing import ConstraintVector, Flag, State

LEAST_CURVATURE = 1e-4  # which limits the length of a step where the second-order condition does not hold


class Point(eqx.Module):
    """What is known of a problem at a state."""

    g: ConstraintVector
    space: RowSpace
    finite: Flag  # the constraint and its derivative are
    sound: Flag  # finite, with a derivative that is not all zero
    error: Float[Array, ""]  # distance from a solution of the KKT system, to first order
    violation_ratio: Float[Array, ""]  # violation, over the tolerated one
    drift_ratio: Float[Array, ""]  # distance from stationarity along the manifold, over the tolerated one

    @property
    def converged(self) -> Flag:
        return self.sound & (self.violation_ratio <= 1) & (self.drift_ratio <= 1)

    @property
    def acceptable(self) -> Flag:
        """As accurate as rounding permits."""
        return self.sound & (self.violation_ratio <= 4) & (self.drift_ratio <= 64)

    @property
    def lengths(self) -> ConstraintVector:
        """||dg_i/dx||, which turns g into distances."""
        return jax.lax.stop_gradient(self.space.lengths)


def point(problem: ProjectionProblem, x: State, tolerance: float) -> Point:
    """Evaluate the KKT system at `x`."""
    g, pullback = jax.vjp(problem.residual, x)
    (jacobian,) = jax.vmap(pullback)(jnp.eye(g.shape[0], dtype=g.dtype))
    finite = jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(jacobian))
    space = factorise(jnp.where(finite, jacobian, 0))
    # Redundant constraints hold together with the others or not at all; but a zero derivative gives no direction.
    sound = finite if problem.switched else finite & jnp.any(space.kept)
    gap, distance = problem.target - x, jax.lax.stop_gradient(jnp.abs(g))
    drift = jnp.linalg.norm(jax.lax.stop_gradient(space.tangent(gap)))
    size, tiny = jnp.linalg.norm(jax.lax.stop_gradient(x)), jnp.finfo(x.dtype).tiny
    lengths = jax.lax.stop_gradient(space.lengths)
    scale = jnp.maximum(jnp.abs(problem.level), lengths * size) + tiny
    violation_ratio = jnp.max(distance / scale) / tolerance
    # Rounding enters the tangential part through x~ - x and through the projector.
    reach = 4 * (size + jnp.linalg.norm(jax.lax.stop_gradient(gap))) + tiny
    return Point(
        g=g,
        space=space,
        finite=finite,
        sound=sound,
        error=jnp.where(sound, jnp.maximum(drift, jnp.max(distance / lengths)), jnp.inf),
        violation_ratio=violation_ratio,
        drift_ratio=drift / reach / tolerance,
    )


class ReducedHessian(eqx.Module):
    """H = I + sum_i lambda_i d2g_i, its part along the manifold, and the Cholesky factor of that."""

    hessian: Float[Array, "n n"]
    along: Float[Array, "n n"]  # P H P + Q'Q
    solver: SymmetricSolver  # of P H P + Q'Q

    @property
    def definite(self) -> Flag:
        """The second-order condition A6'."""
        return self.solver.definite

    def solve(self, space: RowSpace, v: State) -> State:
        """The tangent d with P H d = P v."""
        return space.tangent(self.solver.solve(space.tangent(v)))

    def size(self, space: RowSpace) -> Float[Array, ""]:
        """The norm of P H P: no curvature along the manifold is larger, and on a curve it is the only one."""
        return jnp.sqrt(jnp.maximum(jnp.sum(self.along**2) - jnp.sum(space.q**2), LEAST_CURVATURE**2))


def reduced_hessian(problem: ProjectionProblem, x: State, here: Point) -> ReducedHessian:
    """Curvature of the Lagrangian along the manifold, with the multipliers that fit stationarity best."""
    multiplier = here.space.multipliers(problem.target - x)
    curvature = jax.hessian(lambda x: jnp.sum(multiplier * problem.residual(x)))(x)
    hessian = jnp.eye(x.shape[0], dtype=x.dtype) + jnp.where(jnp.isfinite(curvature), curvature, 0)
    normal = product(here.space.q.T, here.space.q)
    tangent = jnp.eye(x.shape[0], dtype=x.dtype) - normal
    along = product(product(tangent, hessian), tangent) + normal
    return ReducedHessian(hessian, along, symmetric_solver(along, least=LEAST_CURVATURE))


def sqp_direction(problem: ProjectionProblem, x: State, here: Point) -> State:
    """The step with unit Hessian: x~ - G'(GG')^-1 [g + G (x~ - x)] - x."""
    return here.space.tangent(problem.target - x) - here.space.min_norm(here.g)


def newton_direction(
    problem: ProjectionProblem, x: State, here: Point, curvature: ReducedHessian, *, far: bool = False
) -> State:
    """The Newton step of the KKT system or, where it would point uphill along the manifold, a step downhill.

    That has unit Hessian or, if the target is `far`, the magnitudes of the curvatures: away from a saddle, no zigzag.
    """
    normal = -here.space.min_norm(here.g)
    if far:  # on the manifold, rounding of g must not decide whether a step leads nearer
        normal = jnp.where(here.violation_ratio > 1, normal, 0)
    gap = problem.target - x
    downhill = here.space.tangent(gap)
    if not far:
        along = curvature.solve(here.space, gap - apply(curvature.hessian, normal))
        return normal + jnp.where(curvature.definite, along, downhill)
    along = curvature.solve(here.space, gap - jnp.where(curvature.definite, apply(curvature.hessian, normal), 0))
    if x.shape[0] > SMALL:  # the factor has no magnitudes
        along = jnp.where(curvature.definite, along, downhill / curvature.size(here.space))
    return normal + along
