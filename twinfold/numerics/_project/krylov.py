"""Projection without any matrix: conjugate gradients on G G', preconditioned by what is near its diagonal.

Use it for thousands of constraints and more that are coupled along a line (chains, rods, discretised pipes: give
them in that order), or well conditioned whatever their coupling; on any device. A chain's G G' has a condition number
that grows as the square of its length, and `bandwidth=1` solves it in one or two iterations. For meshes and networks,
`Sparse` is the safer choice.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike

from twinfold._core import Frozen
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._linalg.banded import BandFactor, apply_band, factorise_band, probe_band
from twinfold.numerics._linalg.probe import probe
from twinfold.numerics._project.base import (
    AbstractProjection,
    Derivative,
    ProjectionProblem,
    ProjectionResult,
    in_metric,
)
from twinfold.numerics._project.primal_dual import PrimalDual
from twinfold.numerics._project.saddle import (
    AbstractSaddleSolver,
    AbstractSystem,
    Linear,
    bends_upwards,
    linearised,
    projected_cg,
    split_by,
)
from twinfold.numerics._project.settings import check_large, weights_root
from twinfold.typing import ConstraintVector, Flag, State

# Products that the length of a gradient is estimated from, where it cannot be read off.
SIGNS = 16


class Krylov(AbstractProjection):
    """min ||x - x~||_W subject to g(t, x, p) = level, matrix-free.

    **Arguments:** `bandwidth`: constraints i and j with |i - j| up to this are taken to be coupled in the
    preconditioner (0: each by itself); `derivative`: `"implicit"` (exact) or `"tangent"` (curvature neglected);
    `metric`: a vector of weights of the states; `max_steps` of Newton's method; `max_iterations` of each conjugate
    gradient solve, in the derivative too; `tolerance`, relative to the largest state, 4 rounding errors when left out.
    """

    bandwidth: int = eqx.field(static=True)
    derivative: Derivative = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True)
    root: Frozen | None

    def __init__(
        self,
        *,
        bandwidth: int = 1,
        derivative: Derivative = "implicit",
        metric: ArrayLike | Sequence | None = None,
        max_steps: int = 50,
        max_iterations: int = 1000,
        tolerance: float | None = None,
    ):
        check_large("Krylov", derivative, max_steps, max_iterations, tolerance)
        if bandwidth < 0:
            raise ValueError(f"Krylov(bandwidth={bandwidth}): give 0 or the number of neighbours on one side.")
        self.bandwidth = bandwidth
        self.derivative = derivative
        self.max_steps = max_steps
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.root = weights_root("Krylov", metric)

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        return in_metric(self._nearest, self.root, problem)

    def _nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        method = MatrixFree(min(self.bandwidth, problem.level.shape[0] - 1), self.max_iterations)
        return implicit_solve(problem, solver=PrimalDual(method, self.derivative, self.max_steps, self.tolerance))


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
        degenerate = ~jnp.all(squares > 0)
        return KrylovSystem(linear, lengths, degenerate, factor, self.max_iterations)


def _squares(linear: Linear, x: State) -> ConstraintVector:
    """||dg_i/dx||^2, estimated: the mean of (G z)^2 over signs z."""
    angles = probe(x.shape[0] * SIGNS, x.dtype).reshape(SIGNS, -1)
    squares = jax.lax.map(lambda z: linear.push(jnp.where(z > 0, 1, -1).astype(x.dtype)) ** 2, angles)
    return jnp.mean(jnp.where(jnp.isfinite(squares), squares, 0), axis=0)


class KrylovSystem(AbstractSystem):
    """The saddle-point system, with G G' inverted by conjugate gradients."""

    linear: Linear
    lengths: ConstraintVector
    degenerate: Flag
    factor: BandFactor
    max_iterations: int = eqx.field(static=True)

    def normal(self, b: ConstraintVector) -> ConstraintVector:
        """(G G')^-1 b to half of the digits; `split_by` asks twice."""
        tolerance = 0.1 * jnp.finfo(b.dtype).eps ** 0.5
        nothing = jnp.zeros((), b.dtype)

        def unfinished(state: tuple) -> Flag:
            _, _, _, size, enough, count = state
            return (count < self.max_iterations) & ((count == 0) | (size > enough))

        # The preconditioner stands at the head of the loop, so that it is compiled once.
        def step(state: tuple) -> tuple:
            mu, rest, direction, before, enough, count = state
            nearer = self.factor.solve(rest)
            size = jnp.sum(rest * nearer)
            enough = jnp.where(count == 0, tolerance**2 * size, enough)
            direction = nearer + jnp.where(count == 0, 0, size / jnp.where(before > 0, before, 1)) * direction
            image = self.linear.push(self.linear.pull(direction))
            square = jnp.sum(direction * image)
            # A direction that is lost in rounding, as with redundant constraints, ends the loop.
            sound = square > jnp.finfo(b.dtype).eps * jnp.sum((self.lengths * direction) ** 2)
            length = jnp.where(sound, size / jnp.where(sound, square, 1), 0)
            size = jnp.where(sound, size, 0)
            return mu + length * direction, rest - length * image, direction, size, enough, count + 1

        state = (jnp.zeros_like(b), b, jnp.zeros_like(b), nothing, nothing, 0)
        return jax.lax.while_loop(unfinished, step, state)[0]

    def split(self, v: State, b: ConstraintVector) -> tuple[State, ConstraintVector]:
        return split_by(self.normal, self.linear, self.lengths, v, b)

    def saddle(self, v: State, b: ConstraintVector, *, exact: bool) -> tuple[State, ConstraintVector, Flag]:
        # Newton's method corrects what its steps leave; nothing corrects a derivative.
        tolerance = float(jnp.finfo(v.dtype).eps) ** 0.8 if exact else 1e-4
        return projected_cg(self, v, b, tolerance=tolerance, max_iterations=self.max_iterations)

    def definite(self) -> Flag:
        return bends_upwards(self, self.linear.pull(self.lengths).shape[0], self.lengths.dtype)
