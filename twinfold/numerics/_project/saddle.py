"""The saddle-point system of a projection with many constraints, never written out as a dense matrix.

    [H G'; G 0] [d; mu] = [v; b],    H = I + sum_i lambda_i d2g_i,    G = dg/dx

With H = I it splits v into its tangent and normal parts and costs one solve with G G'. With the true H, conjugate
gradients within the tangent space go from there (Gould, Hribar and Nocedal 2001): as many iterations as H differs
from I. Both a Newton step and the exact derivative of the projection are such a system.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from twinfold.numerics._iterate import iterate
from twinfold.numerics._linalg.probe import probe
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.typing import ConstraintVector, Flag, State


class Linear(eqx.Module):
    """g and its derivatives at (x, lambda), as functions of a vector."""

    g: ConstraintVector
    push: Callable  # v -> G v
    pull: Callable  # mu -> G' mu
    bend: Callable  # v -> H v


def linearised(problem: ProjectionProblem, x: State, multiplier: ConstraintVector) -> Linear:
    """Linearise the constraint and the Lagrangian's gradient, once for many products."""
    g, push = jax.linearize(problem.residual, x)
    _, pull = jax.vjp(problem.residual, x)
    _, turn = jax.linearize(lambda x: jax.vjp(problem.residual, x)[1](multiplier)[0], x)
    return Linear(g, push, lambda mu: pull(mu)[0], lambda v: v + turn(v))


class AbstractSystem(eqx.Module):
    """The saddle-point system at one point, ready to be solved."""

    linear: eqx.AbstractVar[Linear]
    lengths: eqx.AbstractVar[ConstraintVector]  # ||dg_i/dx||, one where it is zero
    degenerate: eqx.AbstractVar[Flag]  # a constraint without a gradient, or a non-finite one

    @abc.abstractmethod
    def split(self, v: State, b: ConstraintVector) -> tuple[State, ConstraintVector]:
        """(d, mu) with d + G' mu = v and G d = b: the tangent part of v, plus the shortest vector with G d = b."""

    @abc.abstractmethod
    def saddle(self, v: State, b: ConstraintVector, *, exact: bool) -> tuple[State, ConstraintVector, Flag]:
        """(d, mu) with H d + G' mu = v and G d = b; False where H was found to be indefinite along the manifold."""

    @abc.abstractmethod
    def definite(self) -> Flag:
        """Whether H is positive along the manifold, as far as could be tested: the second-order condition A6'."""


class AbstractSaddleSolver(eqx.Module):
    """How the saddle-point system is solved."""

    @abc.abstractmethod
    def at(self, problem: ProjectionProblem, x: State, multiplier: ConstraintVector) -> AbstractSystem:
        """The system at (x, lambda)."""


def split_by(
    normal: Callable[[ConstraintVector], ConstraintVector],
    linear: Linear,
    lengths: ConstraintVector,
    v: State,
    b: ConstraintVector,
) -> tuple[State, ConstraintVector]:
    """`split`, given (approximately) mu = (G G')^-1 b: twice, since G G' squares the condition number of G."""
    enough = 64 * jnp.finfo(v.dtype).eps

    def unfinished(state: tuple) -> Flag:
        d, _, left, count = state
        return (count == 0) | ((count < 2) & (jnp.max(jnp.abs(left) / lengths) > enough * jnp.max(jnp.abs(d))))

    # A loop, so that the solver is compiled once.
    def again(state: tuple) -> tuple:
        d, mu, left, count = state
        more = normal(left)
        d = d - linear.pull(more)
        return d, mu + more, linear.push(d) - b, count + 1

    return iterate((v, jnp.zeros_like(b), linear.push(v) - b, 0), again, unfinished)[:2]


def projected_cg(
    system: AbstractSystem, v: State, b: ConstraintVector, *, tolerance: float, max_iterations: int
) -> tuple[State, ConstraintVector, Flag]:
    """`saddle` by conjugate gradients in the tangent space, from the solution with H = I.

    The first round of the loop finds that solution, the others improve it: `split` is compiled once.
    """
    linear = system.linear
    nothing = jnp.zeros((), v.dtype)

    def unfinished(state: tuple) -> Flag:
        _, _, _, _, size, enough, positive, count = state
        return positive & (count < max_iterations + 2) & ((count < 2) | (size > enough))

    def step(state: tuple) -> tuple:
        d, rest, direction, mu, size, enough, _, count = state
        first = count == 0
        # What leaves the tangent space is the multipliers' share, and is taken out before it can grow.
        tangent, more = system.split(rest, jnp.where(first, b, 0))
        after = jnp.sum(tangent**2)
        ratio = jnp.where(count > 1, after / jnp.where(size > 0, size, 1), 0)
        direction = tangent + ratio * direction
        bent = linear.bend(direction)
        curvature = jnp.sum(direction * bent)
        positive = first | (after <= enough) | (curvature > 1e-8 * jnp.sum(direction**2))
        length = jnp.where(positive & (curvature > 0), after / jnp.where(curvature > 0, curvature, 1), 0)
        length = jnp.where(first, 1, length)
        rest = jnp.where(first, v - bent, tangent - length * bent)
        mu = jnp.where(first, mu, mu + more)
        enough = jnp.where(first, tolerance**2 * after, enough)
        return d + length * direction, rest, direction, mu, after, enough, positive, count + 1

    state = (jnp.zeros_like(v), v, jnp.zeros_like(v), jnp.zeros_like(b), nothing, nothing, jnp.array(True), 0)
    d, _, _, mu, _, _, positive, _ = iterate(state, step, unfinished)
    return d, mu, positive


def is_definite(system: AbstractSystem, size: int, dominant: Flag | None = None) -> Flag:
    """Whether H is positive along the manifold, as far as conjugate gradients can tell.

    Conjugate gradients from a vector with a part along everything must meet positive curvature only. That is not
    tried where the diagonal of H is known to outweigh the rest of each row (`dominant`), which is sufficient.
    """
    dtype, m = system.lengths.dtype, system.lengths.shape[0]

    def tried() -> Flag:
        v, b = probe(size, dtype), jnp.zeros((m,), dtype)
        return projected_cg(system, v, b, tolerance=1e-4, max_iterations=50)[2]

    return tried() if dominant is None else jax.lax.cond(dominant, lambda: jnp.array(True), tried)


class NormalSystem(AbstractSystem):
    """The saddle-point system by way of `normal`, which solves with G G'."""

    linear: Linear
    lengths: ConstraintVector
    degenerate: Flag
    normal: Callable[[ConstraintVector], ConstraintVector]
    max_iterations: int = eqx.field(static=True)
    dominant: Flag | None = None

    def split(self, v: State, b: ConstraintVector) -> tuple[State, ConstraintVector]:
        return split_by(self.normal, self.linear, self.lengths, v, b)

    def saddle(self, v: State, b: ConstraintVector, *, exact: bool) -> tuple[State, ConstraintVector, Flag]:
        # Newton's method corrects what its steps leave; nothing corrects a derivative.
        tolerance = float(jnp.finfo(v.dtype).eps) ** 0.8 if exact else 1e-4
        return projected_cg(self, v, b, tolerance=tolerance, max_iterations=self.max_iterations)

    def definite(self) -> Flag:
        return is_definite(self, self.linear.pull(self.lengths).shape[0], self.dominant)
