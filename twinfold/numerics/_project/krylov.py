"""Projection without any matrix: conjugate gradients on G G', preconditioned by what is near its diagonal.

Use it for thousands of constraints and more that are coupled along a line (chains, rods, discretised pipes: give
them in that order), or well conditioned for any coupling; on any device. A chain's G G' has a condition number
that grows as the square of its length, and `bandwidth=1` solves it in one or two iterations. For meshes and networks,
`Sparse` is the safer choice.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from twinfold.numerics._iterate import iterate
from twinfold.numerics._linalg.banded import BandFactor, apply_band, factorise_band, probe_band
from twinfold.numerics._linalg.probe import probe
from twinfold.numerics._project.base import (
    AbstractProjection,
    Derivative,
    Metric,
    ProjectionProblem,
    ProjectionResult,
    as_metric,
)
from twinfold.numerics._project.primal_dual import check_primal_dual, primal_dual
from twinfold.numerics._project.saddle import AbstractSaddleSolver, AbstractSystem, Linear, NormalSystem, linearised
from twinfold.typing import ConstraintVector, Flag, State

# Products that the length of a gradient is estimated from, where it cannot be read off.
SIGNS = 16


class Krylov(AbstractProjection):
    """min ||x - x~||_W subject to g(t, x, p) = level, matrix-free.

    **Arguments:** `bandwidth`: constraints i and j with |i - j| up to this are taken to be coupled in the
    preconditioner (0: each by itself); `derivative`: `"implicit"` (exact) or `"tangent"` (curvature neglected);
    `metric`: a vector of weights of the states; `max_steps` of Newton's method; `max_iterations` of each conjugate
    gradient solve, in the derivative too; `tolerance`, relative to the largest state, 4 rounding errors when left out.

    **Example:**

    ```python
    chain = tw.Constraint(lambda x: jnp.sum(jnp.diff(x.reshape(-1, 2), axis=0, prepend=0) ** 2, axis=1) - 1)
    project = jax.jit(lambda x: tw.Krylov(bandwidth=1).project(chain, 0.0, x, {}, jnp.zeros(100)).x)
    project(jnp.stack([jnp.arange(1.0, 101.0), jnp.full(100, 0.01)], axis=1).reshape(-1))
    ```
    """

    bandwidth: int = eqx.field(static=True, default=1, kw_only=True)
    derivative: Derivative = eqx.field(static=True, default="implicit", kw_only=True)
    metric: Metric | None = eqx.field(converter=as_metric, default=None, kw_only=True)
    max_steps: int = eqx.field(static=True, default=50, kw_only=True)
    max_iterations: int = eqx.field(static=True, default=1000, kw_only=True)
    tolerance: float | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        check_primal_dual(self)
        if self.bandwidth < 0:
            raise ValueError(f"Krylov(bandwidth={self.bandwidth}): give 0 or the number of neighbours on one side.")

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        solver = MatrixFree(min(self.bandwidth, problem.level.shape[0] - 1), self.max_iterations)
        return primal_dual(self, problem, solver)


class MatrixFree(AbstractSaddleSolver):
    """Products with G and G' alone."""

    bandwidth: int = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    def at(self, problem: ProjectionProblem, x: State, multiplier: ConstraintVector) -> AbstractSystem:
        linear = linearised(problem, x, multiplier)

        def square(mu: ConstraintVector) -> ConstraintVector:
            return linear.push(linear.pull(mu))

        band = probe_band(square, linear.g, self.bandwidth)
        band = jnp.where(jnp.isfinite(band), band, 0)
        own = band[:, self.bandwidth]
        # Where much lies outside, the band is not what G G' is like, and need not even be positive definite.
        v = jnp.where(own > 0, probe(own.shape[0], x.dtype) / jnp.sqrt(jnp.where(own > 0, own, 1)), 0)
        image = square(v)
        near = jnp.linalg.norm(apply_band(band, v) - image) <= 0.1 * jnp.linalg.norm(image)
        squares = jnp.where(near, own, _squares(linear, x))
        lengths = jnp.sqrt(jnp.where(squares > 0, squares, 1))
        # A little more on the diagonal: with redundant constraints, rounding must not be blown up.
        raised = band.at[:, self.bandwidth].set(lengths**2 * (1 + 4096 * jnp.finfo(x.dtype).eps))
        factor = factorise_band(raised)
        factor = eqx.tree_at(lambda factor: factor.definite, factor, factor.definite & near)

        def normal(b: ConstraintVector) -> ConstraintVector:
            return _conjugate_gradients(linear, lengths, factor, b, self.max_iterations)

        return NormalSystem(linear, lengths, ~jnp.all(squares > 0), normal, self.max_iterations)


def _squares(linear: Linear, x: State) -> ConstraintVector:
    """||dg_i/dx||^2, estimated: the mean of (G z)^2 over signs z."""
    angles = probe(x.shape[0] * SIGNS, x.dtype).reshape(SIGNS, -1)
    squares = jax.lax.map(lambda z: linear.push(jnp.where(z > 0, 1, -1).astype(x.dtype)) ** 2, angles)
    return jnp.mean(jnp.where(jnp.isfinite(squares), squares, 0), axis=0)


def _conjugate_gradients(
    linear: Linear, lengths: ConstraintVector, factor: BandFactor, b: ConstraintVector, max_iterations: int
) -> ConstraintVector:
    """(G G')^-1 b to half of the digits; `split_by` calls it twice."""
    tolerance = 0.1 * jnp.finfo(b.dtype).eps ** 0.5
    nothing = jnp.zeros((), b.dtype)

    def unfinished(state: tuple) -> Flag:
        _, _, _, size, enough, count = state
        return (count < max_iterations) & ((count == 0) | (size > enough))

    # The preconditioner stands at the head of the loop, so that it is compiled once.
    def step(state: tuple) -> tuple:
        mu, rest, direction, before, enough, count = state
        nearer = factor.solve(rest)
        size = jnp.sum(rest * nearer)
        enough = jnp.where(count == 0, tolerance**2 * size, enough)
        direction = nearer + jnp.where(count == 0, 0, size / jnp.where(before > 0, before, 1)) * direction
        image = linear.push(linear.pull(direction))
        square = jnp.sum(direction * image)
        # A direction that is lost in rounding, as with redundant constraints, ends the loop.
        sound = square > jnp.finfo(b.dtype).eps * jnp.sum((lengths * direction) ** 2)
        length = jnp.where(sound, size / jnp.where(sound, square, 1), 0)
        size = jnp.where(sound, size, 0)
        return mu + length * direction, rest - length * image, direction, size, enough, count + 1

    state = (jnp.zeros_like(b), b, jnp.zeros_like(b), nothing, nothing, 0)
    return iterate(state, step, unfinished)[0]
