"""Projection with a sparse direct solver: asdex finds where the derivatives are, klujax factorises.

Use it for thousands of constraints and more that are each about few states: linkages, nets and finite elements, power
grids, circuits. On the CPU, in float64 arithmetic throughout (arrays of float32 are converted).

Constraints that couple to near neighbours only, or that each have a state of their own, have the whole saddle-point
matrix [H G'; G 0] factorised, which is exact for any curvature. For others that matrix fills up; there G G' is
factorised, and conjugate gradients in the tangent space see to the curvature.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._core import Frozen
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._project.base import (
    AbstractProjection,
    Derivative,
    ProjectionProblem,
    ProjectionResult,
    in_metric,
)
from twinfold.numerics._project.matrices import NormalMatrix, SaddleMatrix, dominant
from twinfold.numerics._project.pattern import Pattern, find_pattern
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

# Up to this half-width of the band of G G', the factors of the saddle-point matrix stay thin.
NARROW = 32
Factorised = Literal["auto", "saddle", "normal"]


class Sparse(AbstractProjection):
    """min ||x - x~||_W subject to g(t, x, p) = level, by sparse LU factorisation.

    **Arguments:** `factorise`: `"saddle"` for [H G'; G 0], `"normal"` for G G', `"auto"` by the structure;
    `derivative`: `"implicit"` (exact) or `"tangent"` (curvature neglected); `metric`: a vector of weights of the
    states; `max_steps`; `max_iterations` of conjugate gradients, with `"normal"`; `tolerance`, relative to the
    largest state, 4 rounding errors when left out. Needs `pip install 'twinfold[sparse]'`.
    """

    factorise: Factorised = eqx.field(static=True)
    derivative: Derivative = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    max_iterations: int = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True)
    root: Frozen | None

    def __init__(
        self,
        *,
        factorise: Factorised = "auto",
        derivative: Derivative = "implicit",
        metric: ArrayLike | Sequence | None = None,
        max_steps: int = 50,
        max_iterations: int = 1000,
        tolerance: float | None = None,
    ):
        check_large("Sparse", derivative, max_steps, max_iterations, tolerance)
        if factorise not in ("auto", "saddle", "normal"):
            raise ValueError(f'Sparse(factorise={factorise!r}): give "auto", "saddle" or "normal".')
        self.factorise = factorise
        self.derivative = derivative
        self.max_steps = max_steps
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.root = weights_root("Sparse", metric)

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        return in_metric(self._nearest, self.root, problem)

    def _nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        _check_machine()
        pattern = find_pattern(problem)
        thin = pattern.bandwidth <= NARROW or pattern.explicit
        whole = self.factorise == "saddle" or (self.factorise == "auto" and thin)
        method = Saddle(pattern) if whole else Normal(pattern, self.max_iterations)
        return implicit_solve(problem, solver=PrimalDual(method, self.derivative, self.max_steps, self.tolerance))


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
        values = NormalMatrix.of(self.pattern).values(found.unit)
        return NormalSystem(
            linear, found.lengths, found.degenerate, self.pattern, values, curvature, self.max_iterations
        )


class NormalSystem(AbstractSystem):
    """The saddle-point system by way of G G'."""

    linear: Linear
    lengths: ConstraintVector
    degenerate: Flag
    pattern: Pattern = eqx.field(static=True)
    values: Float[Array, " k"]
    curvature: Float[Array, " l"]
    max_iterations: int = eqx.field(static=True)

    def normal(self, b: ConstraintVector) -> ConstraintVector:
        matrix = NormalMatrix.of(self.pattern)
        return solve_sparse(matrix.rows, matrix.columns, self.values, b / self.lengths) / self.lengths

    def split(self, v: State, b: ConstraintVector) -> tuple[State, ConstraintVector]:
        return split_by(self.normal, self.linear, self.lengths, v, b)

    def saddle(self, v: State, b: ConstraintVector, *, exact: bool) -> tuple[State, ConstraintVector, Flag]:
        # Newton's method corrects what its steps leave; nothing corrects a derivative.
        tolerance = float(jnp.finfo(v.dtype).eps) ** 0.8 if exact else 1e-4
        return projected_cg(self, v, b, tolerance=tolerance, max_iterations=self.max_iterations)

    def definite(self) -> Flag:
        return _definite(self, self.pattern, self.curvature)


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
        return _definite(self, self.pattern, self.curvature)


def _refined(
    solve: Callable, linear: Linear, bend: Callable, v: State, b: ConstraintVector, *, rounds: int
) -> tuple[State, ConstraintVector]:
    """`solve`, and once more with what is left, for the digits that a factorisation loses."""

    def again(_, state: tuple[State, ConstraintVector]) -> tuple[State, ConstraintVector]:
        d, mu = state
        more, dmu = solve(v - bend(d) - linear.pull(mu), b - linear.push(d))
        return d + more, mu + dmu

    return jax.lax.fori_loop(0, rounds, again, (jnp.zeros_like(v), jnp.zeros_like(b)))


def _definite(system: AbstractSystem, pattern: Pattern, curvature: Float[Array, " l"]) -> Flag:
    """A diagonal that outweighs the rest of its row is enough; if there is none, it is tried out."""
    dtype = system.lengths.dtype
    return jax.lax.cond(
        dominant(pattern, curvature), lambda: jnp.array(True), lambda: bends_upwards(system, pattern.n, dtype)
    )
