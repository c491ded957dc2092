"""Nearest point under many constraints: Newton's method on the KKT system, guarded by a line search.

    x - x~ + G(x)' lambda = 0,    g(x) = level                                             (the paper's Eq. 5)

The linear systems are solved by a method that is passed in (`krylov.py`, `sparse.py`), so that nothing here is dense.
State and multipliers move together; the first step, with lambda = 0, is the one with unit Hessian.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import RESULTS, tree_where
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import backtrack, iterate
from twinfold.numerics._linalg.probe import probe
from twinfold.numerics._project.base import (
    Derivative,
    ProjectionProblem,
    ProjectionResult,
    check_settings,
    failure_reason,
    input_tangents,
    result_tangent,
    tolerance_of,
)
from twinfold.numerics._project.line_search import MeritFunction
from twinfold.numerics._project.saddle import AbstractSaddleSolver, AbstractSystem
from twinfold.typing import ConstraintVector, Count, Flag, State

SHORTEST_STEP = 1e-6  # the length below which a line search gives up


class Residual(eqx.Module):
    """How far (x, lambda) is from a solution."""

    g: ConstraintVector
    gap: State  # x~ - x - G' lambda
    error: Float[Array, ""]  # distance from a solution, to first order
    violation_ratio: Float[Array, ""]  # violation, over the tolerated one
    drift_ratio: Float[Array, ""]  # distance from stationarity, over the tolerated one

    @property
    def converged(self) -> Flag:
        return (self.violation_ratio <= 1) & (self.drift_ratio <= 1)

    @property
    def acceptable(self) -> Flag:
        """As accurate as rounding permits."""
        return (self.violation_ratio <= 4) & (self.drift_ratio <= 64)


class Scales(eqx.Module):
    """What the residuals are measured in: ||dg_i/dx||, and a size of H."""

    lengths: ConstraintVector
    stiffness: Float[Array, ""]


def scales(system: AbstractSystem, like: State) -> Scales:
    """The scales at a point; the size of H is estimated by its product with a probe vector."""
    signs = jnp.where(probe(like.shape[0], like.dtype) > 0, 1, -1).astype(like.dtype)
    return Scales(system.lengths, jnp.maximum(1, jnp.max(jnp.abs(system.linear.bend(signs)))))


def residual(
    problem: ProjectionProblem, x: State, multiplier: ConstraintVector, scales: Scales, tolerance: float
) -> Residual:
    """The KKT residual, in units of what rounding in x does to it.

    Largest entries throughout: the norm of a state grows with the number of its parts, and what one constraint can
    resolve does not.
    """
    lengths = scales.lengths
    g, pull = jax.vjp(problem.residual, x)
    normal = pull(multiplier)[0]
    gap = problem.target - x - normal
    size, tiny = jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny
    violation_ratio = jnp.max(jnp.abs(g) / (jnp.maximum(jnp.abs(problem.level), lengths * size) + tiny))
    drift = jnp.max(jnp.abs(gap))
    # Rounding enters G' lambda through x, and through terms that cancel.
    reach = 4 * (size * scales.stiffness + jnp.max(lengths * jnp.abs(multiplier))) + tiny
    error = jnp.maximum(drift, jnp.max(jnp.abs(g) / lengths))
    finite = jnp.isfinite(error)
    return Residual(
        g=g,
        gap=gap,
        error=jnp.where(finite, error, jnp.inf),
        violation_ratio=jnp.where(finite, violation_ratio / tolerance, jnp.inf),
        drift_ratio=jnp.where(finite, drift / reach / tolerance, jnp.inf),
    )


class _PrimalDual(eqx.Module):
    x: State
    multiplier: ConstraintVector
    here: Residual
    steps: Count
    moving: Flag
    may_restart: Flag


def check_primal_dual(projection: Any) -> None:
    """A `ValueError` that names the argument of a projection for many constraints that cannot be used."""
    check_settings(projection, ("implicit", "tangent"))
    if projection.metric is not None and projection.metric.root.value.ndim != 1:
        name = type(projection).__name__
        raise ValueError(f"{name}(metric=...): give a vector of positive weights, one for each state, not a matrix.")


def primal_dual(projection: Any, problem: ProjectionProblem, solver: AbstractSaddleSolver) -> ProjectionResult:
    """The nearest point with the settings of a projection."""
    tolerance = tolerance_of(projection, problem.target)
    return implicit_solve(problem, solver=PrimalDual(solver, projection.derivative, projection.max_steps, tolerance))


class PrimalDual(eqx.Module):
    """The projection with its derivative, for any method of solving the linear systems."""

    solver: AbstractSaddleSolver
    derivative: Derivative = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)

    def solve(self, problem: ProjectionProblem) -> ProjectionResult:
        """The projection without derivatives."""
        target = problem.target
        first, pull = jax.vjp(problem.residual, target)
        smooth = jnp.all(jnp.isfinite(pull(jnp.ones_like(first))[0]))
        unknown = Residual(first, jnp.zeros_like(target), *3 * (jnp.full((), jnp.inf, target.dtype),))

        last = self._steps(problem, unknown)
        found = jnp.isfinite(last.here.error)
        system = self.solver.at(problem, jnp.where(found, last.x, target), jnp.where(found, last.multiplier, 0))
        return _result(problem, system, first, smooth, last)

    def _steps(self, problem: ProjectionProblem, unknown: Residual) -> _PrimalDual:
        """Guarded Newton steps on the KKT system; one that is lost starts once more from the anchor."""

        def unfinished(carry: _PrimalDual) -> Flag:
            return (carry.steps == 0) | (~carry.here.converged & carry.moving & (carry.steps < self.max_steps))

        def step(carry: _PrimalDual) -> _PrimalDual:
            system = self.solver.at(problem, carry.x, carry.multiplier)
            here = residual(problem, carry.x, carry.multiplier, scales(system, carry.x), self.tolerance)
            x, multiplier, there, moving = _advance(problem, carry.x, carry.multiplier, system, here, self.tolerance)
            # Where rounding rules, the error goes up and down and never reaches the tolerance.
            moving, may_restart = moving & ~(here.acceptable & (there.error > 0.5 * here.error)), carry.may_restart
            if problem.anchor is not None:
                again = ~moving & ~there.acceptable & may_restart
                x, multiplier = jnp.where(again, problem.anchor, x), jnp.where(again, 0, multiplier)
                moving, may_restart = moving | again, may_restart & ~again
            return _PrimalDual(x, multiplier, there, carry.steps + 1, moving, may_restart)

        yes, multiplier = jnp.array(True), jnp.zeros_like(problem.level)
        return iterate(_PrimalDual(problem.target, multiplier, unknown, jnp.array(0), yes, yes), step, unfinished)

    def sensitivity(
        self, problem: ProjectionProblem, solution: ProjectionResult, tangent: ProjectionProblem
    ) -> ProjectionResult:
        """(dx, dlambda) for a change of the inputs: [H G'; G 0] [dx; dlambda] = [dx~ - d(G'lambda); -dg]."""
        system = self.solver.at(problem, solution.x, solution.multiplier)
        target, slope, change = input_tangents(problem, solution.x, solution.multiplier, tangent)
        unit = self.derivative == "tangent"

        n = target.shape[0]
        failed = solution.result != RESULTS.successful

        def product(vector: Float[Array, " both"]) -> Float[Array, " both"]:
            d, mu = vector[:n], vector[n:]
            bent = d if unit else system.linear.bend(d)
            return jnp.concatenate([bent + system.linear.pull(mu), system.linear.push(d)])

        def solve(_, right: Float[Array, " both"]) -> Float[Array, " both"]:
            v, b = right[:n], right[n:]
            d, mu = system.split(v, b) if unit else system.saddle(v, b, exact=True)[:2]
            # The derivative of a failed projection is not used, but it has to be finite.
            return jnp.where(failed, right, jnp.concatenate([d, mu]))

        # The system is symmetric: reverse mode is the same solve, with a cotangent on the right.
        right = jnp.concatenate([target if unit else target - slope, -change])
        both = jax.lax.custom_linear_solve(product, right, solve, symmetric=True)
        return result_tangent(solution, tangent, both[:n], both[n:])


def _advance(
    problem: ProjectionProblem,
    x: State,
    multiplier: ConstraintVector,
    system: AbstractSystem,
    here: Residual,
    tolerance: float,
) -> tuple[State, ConstraintVector, Residual, Flag]:
    """A Newton step, shortened until the merit or the KKT error falls and g is defined."""
    dx, dmu, _ = system.saddle(here.gap, -here.g, exact=False)
    scale = scales(system, x)
    weight = 2 * jnp.max(jnp.abs(multiplier + dmu) * system.lengths) + jnp.max(jnp.abs(dx))
    merit = MeritFunction(problem.target, weight, system.lengths)
    before = merit(x, here.g)
    slope = jnp.sum((x - problem.target) * dx) - merit.infeasibility(here.g)

    def attempt(length: Float[Array, ""]) -> tuple[tuple[State, ConstraintVector, Residual], Flag]:
        x1, multiplier1 = x + length * dx, multiplier + length * dmu
        there = residual(problem, x1, multiplier1, scale, tolerance)
        falls = (slope < 0) & (merit(x1, there.g) <= before + 1e-4 * length * slope)
        good = jnp.isfinite(there.error) & (falls | (there.error <= 0.5 * here.error) | there.converged)
        return (x1, multiplier1, there), good

    length, trial = backtrack(attempt, (x, multiplier, here), shortest=SHORTEST_STEP, dtype=x.dtype)
    return *tree_where(length > 0, trial, (x, multiplier, here)), length > 0


def _result(
    problem: ProjectionProblem, system: AbstractSystem, first: ConstraintVector, smooth: Flag, last: _PrimalDual
) -> ProjectionResult:
    """The nearest point, or the unprojected state with the reason; redundant constraints hold and are not counted."""
    here, definite = last.here, system.definite()
    solved = here.acceptable & definite & ~system.degenerate
    stuck = ~here.acceptable | system.degenerate
    singular = jax.lax.cond(stuck, lambda: system.degenerate | _grows(system, last.x.dtype), lambda: jnp.array(False))
    result = RESULTS.where(here.acceptable & ~definite, RESULTS.second_order, RESULTS.not_converged)
    result = RESULTS.where(singular, RESULTS.singular, result)
    result = RESULTS.where(solved, RESULTS.successful, failure_reason(problem, first, smooth, result))
    return ProjectionResult(
        x=jnp.where(solved, last.x, problem.target),
        multiplier=jnp.where(solved, last.multiplier, 0),
        violation=jnp.abs(jnp.where(solved, here.g, first)),
        steps=last.steps,
        result=result,
    )


def _grows(system: AbstractSystem, dtype: jnp.dtype) -> Flag:
    """Whether (G G')^-1 makes a vector larger than rounding allows."""
    b = probe(system.lengths.shape[0], dtype)
    _, mu = system.split(jnp.zeros_like(system.linear.pull(b)), b * system.lengths)
    growth = jnp.linalg.norm(mu * system.lengths) / jnp.linalg.norm(b)
    return ~(growth < 1e-3 / jnp.finfo(dtype).eps)
