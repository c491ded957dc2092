"""Projection with a sparse direct solver: asdex finds where the derivatives are, klujax factorises.

Use it for thousands of constraints and more that are each about few states: linkages, nets and finite elements, power
grids, circuits. On the CPU, in float64 arithmetic throughout (arrays of float32 are converted).

Constraints that couple to near neighbours only, or that each have a state of their own, have the whole saddle-point
matrix [H G'; G 0] factorised, which is exact for any curvature. For others that matrix fills up; there G G' is
factorised, and conjugate gradients in the tangent space see to the curvature.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.numerics._project.base import (
    AbstractProjection,
    Derivative,
    Metric,
    ProjectionProblem,
    ProjectionResult,
    as_metric,
)
from twinfold.numerics._project.matrices import NormalMatrix, SaddleMatrix, dominant
from twinfold.numerics._project.pattern import Pattern, find_pattern
from twinfold.numerics._project.primal_dual import check_primal_dual, primal_dual
from twinfold.numerics._project.saddle import (
    AbstractSaddleSolver,
    AbstractSystem,
    Linear,
    NormalSystem,
    is_definite,
    linearised,
)
from twinfold.typing import ConstraintVector, Flag, State

MAX_THIN_BANDWIDTH = 32  # half-width of the band of G G' up to which the factors of the saddle-point matrix stay thin
Factorised = Literal["auto", "saddle", "normal"]


class Sparse(AbstractProjection):
    """min ||x - x~||_W subject to g(t, x, p) = level, by sparse LU factorisation.

    **Arguments:** `factorise`: `"saddle"` for [H G'; G 0], `"normal"` for G G', `"auto"` by the structure;
    `derivative`: `"implicit"` (exact) or `"tangent"` (curvature neglected); `metric`: a vector of weights of the
    states; `max_steps`; `max_iterations` of conjugate gradients, with `"normal"`; `tolerance`, relative to the
    largest state, 4 rounding errors when left out. Needs `pip install 'twinfold[sparse]'`.

    **Example:**

    ```python
    chain = tw.Constraint(lambda x: jnp.sum(jnp.diff(x.reshape(-1, 2), axis=0, prepend=0) ** 2, axis=1) - 1)
    project = jax.jit(lambda x: tw.Sparse().project(chain, 0.0, x, {}, jnp.zeros(100)).x)
    project(jnp.stack([jnp.arange(1.0, 101.0), jnp.full(100, 0.01)], axis=1).reshape(-1))
    ```
    """

    factorise: Factorised = eqx.field(static=True, default="auto", kw_only=True)
    derivative: Derivative = eqx.field(static=True, default="implicit", kw_only=True)
    metric: Metric | None = eqx.field(converter=as_metric, default=None, kw_only=True)
    max_steps: int = eqx.field(static=True, default=50, kw_only=True)
    max_iterations: int = eqx.field(static=True, default=1000, kw_only=True)
    tolerance: float | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        check_primal_dual(self)
        if self.factorise not in ("auto", "saddle", "normal"):
            raise ValueError(f'Sparse(factorise={self.factorise!r}): give "auto", "saddle" or "normal".')

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        _check_machine()
        pattern = find_pattern(problem)
        thin = pattern.bandwidth <= MAX_THIN_BANDWIDTH or pattern.explicit
        saddle = self.factorise == "saddle" or (self.factorise == "auto" and thin)
        return primal_dual(self, problem, Saddle(pattern) if saddle else Normal(pattern, self.max_iterations))


def _check_machine() -> None:
    """klujax computes in float64, on the CPU."""
    if not jax.config.read("jax_enable_x64"):
        raise ValueError("Sparse: its factorisation needs float64; call twinfold.enable_x64() first, or use Krylov().")
    if jax.default_backend() != "cpu":
        raise ValueError(f"Sparse: factorises on the CPU only, not on {jax.default_backend()!r}; use Krylov() there.")


def solve_sparse(rows: np.ndarray, columns: np.ndarray, values: Any, b: Float[Array, " k"]) -> Float[Array, " k"]:
    """A^-1 b by KLU."""
    klujax = _klujax()
    # One after the other under vmap: loops batch all that they close over, and klujax takes no batch of indices.
    solve = jax.custom_batching.sequential_vmap(klujax.solve)
    # KLU raises where it meets a pivot of zero, and a failure has to be data: an unusable matrix becomes the identity.
    values = jnp.where(jnp.all(jnp.isfinite(values)), values, jnp.where(rows == columns, 1.0, 0.0))
    return solve(jnp.asarray(rows), jnp.asarray(columns), values, b.astype(jnp.float64)).astype(b.dtype)


def _klujax() -> Any:
    """The module, without the settings that importing it changes for everybody."""
    before = {name: jax.config.read(name) for name in ("jax_enable_x64", "jax_platform_name")}
    try:
        import klujax
    except ImportError as error:
        raise ImportError("sparse projections need asdex and klujax: pip install 'twinfold[sparse]'") from error
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    return klujax


class Gradients(eqx.Module):
    """The entries of G, each row divided by its length."""

    unit: Float[Array, " k"]
    lengths: ConstraintVector
    degenerate: Flag


def gradients(pattern: Pattern, problem: ProjectionProblem, x: State) -> Gradients:
    """G at x, by as many products as the pattern has colours."""
    rows, _ = pattern.entries
    values = pattern.gradients(problem.residual, x).astype(jnp.float64)
    finite = jnp.isfinite(values)
    values = jnp.where(finite, values, 0)
    squares = jax.ops.segment_sum(values**2, rows, pattern.m)
    lengths = jnp.sqrt(jnp.where(squares > 0, squares, 1))
    return Gradients(values / lengths[rows], lengths.astype(x.dtype), ~jnp.all(finite) | jnp.any(squares == 0))


class Normal(AbstractSaddleSolver):
    """G G' is factorised."""

    pattern: Pattern = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)

    def at(self, problem: ProjectionProblem, x: State, multiplier: ConstraintVector) -> AbstractSystem:
        found = gradients(self.pattern, problem, x)
        linear = linearised(problem, x, multiplier)
        curvature = self.pattern.curvatures(problem.residual, x, multiplier)
        matrix = NormalMatrix.of(self.pattern)
        values = matrix.values(found.unit)

        def normal(b: ConstraintVector) -> ConstraintVector:
            return solve_sparse(matrix.rows, matrix.columns, values, b / found.lengths) / found.lengths

        definite = dominant(self.pattern, curvature)
        return NormalSystem(linear, found.lengths, found.degenerate, normal, self.max_iterations, definite)


class Saddle(AbstractSaddleSolver):
    """The whole saddle-point matrix is factorised."""

    pattern: Pattern = eqx.field(static=True)

    def at(self, problem: ProjectionProblem, x: State, multiplier: ConstraintVector) -> AbstractSystem:
        found = gradients(self.pattern, problem, x)
        linear = linearised(problem, x, multiplier)
        curvature = self.pattern.curvatures(problem.residual, x, multiplier).astype(jnp.float64)
        return SaddleSystem(linear, found.lengths, found.degenerate, self.pattern, found.unit, curvature)


class SaddleSystem(AbstractSystem):
    """The saddle-point system as it is."""

    linear: Linear
    lengths: ConstraintVector
    degenerate: Flag
    pattern: Pattern = eqx.field(static=True)
    unit: Float[Array, " k"]
    curvature: Float[Array, " l"]

    def _solve(self, curvature: Float[Array, " l"], v: State, b: ConstraintVector) -> tuple[State, ConstraintVector]:
        matrix = SaddleMatrix.of(self.pattern)
        right = jnp.concatenate([v, b / self.lengths])
        both = solve_sparse(matrix.rows, matrix.columns, matrix.values(curvature, self.unit), right)
        return both[: v.shape[0]], both[v.shape[0] :] / self.lengths

    def split(self, v: State, b: ConstraintVector) -> tuple[State, ConstraintVector]:
        flat = jnp.zeros_like(self.curvature)
        return _refined(lambda v, b: self._solve(flat, v, b), self.linear, lambda d: d, v, b, rounds=2)

    def saddle(self, v: State, b: ConstraintVector, *, exact: bool) -> tuple[State, ConstraintVector, Flag]:
        rounds = 2 if exact else 1
        bend = self.linear.bend
        d, mu = _refined(lambda v, b: self._solve(self.curvature, v, b), self.linear, bend, v, b, rounds=rounds)
        return d, mu, jnp.array(True)

    def definite(self) -> Flag:
        return is_definite(self, self.pattern.n, dominant(self.pattern, self.curvature))


def _refined(
    solve: Callable, linear: Linear, bend: Callable, v: State, b: ConstraintVector, *, rounds: int
) -> tuple[State, ConstraintVector]:
    """Iterative refinement, for the digits that a factorisation loses."""

    def again(_, state: tuple[State, ConstraintVector]) -> tuple[State, ConstraintVector]:
        d, mu = state
        more, dmu = solve(v - bend(d) - linear.pull(mu), b - linear.push(d))
        return d + more, mu + dmu

    return jax.lax.fori_loop(0, rounds, again, (jnp.zeros_like(v), jnp.zeros_like(b)))
