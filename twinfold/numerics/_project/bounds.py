"""Inequalities: find the active bounds, then project with these as equations.

    min 1/2 ||x - x~||^2   subject to   g(x) = level,   lower <= c(x) <= upper

Linearised at a state this is a small convex quadratic program (`active_set.py`). The bounds that are active at its
solution become equations of the projection proper, which holds them to its own tolerance; the program is then
linearised again, until the result obeys all bounds with multipliers of the right sign. Its derivative is that of the
projection onto the active ones.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from twinfold._core import RESULTS, stop_gradient_tree
from twinfold.numerics._constraint import (
    AbstractConstraint,
    has_inequalities,
    inequality_rows,
    sides,
    value_and_jacobian,
)
from twinfold.numerics._implicit_derivative import Solver
from twinfold.numerics._iterate import iterate
from twinfold.numerics._project.active_set import TOLERATED_ROUNDINGS, LinearisedProgram
from twinfold.numerics._project.base import InMetric, ProjectionProblem, ProjectionResult
from twinfold.typing import ConstraintVector, Count, Flag, Parameters, Scalar, State

MAX_ACTIVE_SETS = 8


class Active(AbstractConstraint):
    """Bounds as equations where `side` is 1 (upper) or -1 (lower), switched off where it is 0; equations have 1."""

    constraint: AbstractConstraint
    side: ConstraintVector | None  # None in place of its tangent

    def residual(self, t: Scalar, x: State, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        below, above = sides(self.constraint, t, x, p, level)
        side = 0 if self.side is None else self.side
        return jnp.where(side > 0, above, jnp.where(side < 0, below, 0))

    def level(self, t: Scalar, x0: State, p: Parameters) -> ConstraintVector:
        return self.constraint.level(t, x0, p)


def has_bounds(problem: ProjectionProblem) -> bool:
    """Whether the constraint has bounds whose active set is not chosen yet."""
    return not problem.switched and has_inequalities(problem.constraint)


def on_active(problem: ProjectionProblem, side: ConstraintVector) -> ProjectionProblem:
    """The problem with the bounds that are active as equations."""
    constraint = _with_side(problem.constraint, side)
    return ProjectionProblem(
        constraint, problem.t, problem.target, problem.p, problem.level, problem.anchor, switched=True
    )


def _with_side(constraint: AbstractConstraint, side: ConstraintVector | None) -> AbstractConstraint:
    if isinstance(constraint, InMetric):
        return eqx.tree_at(lambda outer: outer.constraint, constraint, Active(constraint.constraint, side))
    return Active(constraint, side)


def _state_constraint(problem: ProjectionProblem, x: State) -> tuple[AbstractConstraint, State]:
    """What the user gave, and where it is evaluated."""
    inner = problem.constraint
    return (inner.constraint, inner.metric.to_state(x)) if isinstance(inner, InMetric) else (inner, x)


def _sides(problem: ProjectionProblem, x: State) -> tuple[ConstraintVector, ConstraintVector]:
    constraint, at = _state_constraint(problem, x)
    return sides(constraint, problem.t, at, problem.p, problem.level)


def bound_rows(problem: ProjectionProblem) -> Bool[Array, " m"]:
    """The rows that are bounds."""
    constraint, at = _state_constraint(problem, problem.target)
    return jnp.array(inequality_rows(constraint, problem.t, at, problem.p))


def linearised(problem: ProjectionProblem, x: State) -> LinearisedProgram:
    """The quadratic program at `x`; where something is not finite there, one without bounds."""
    below, jacobian = value_and_jacobian(lambda x: _sides(problem, x)[0], x)
    above = _sides(problem, x)[1]
    known = jnp.all(jnp.isfinite(jacobian)) & ~jnp.any(jnp.isnan(below) | jnp.isnan(above))
    bound = bound_rows(problem) & known
    jacobian = jnp.where(known, jacobian, 0)
    return LinearisedProgram(jacobian, jnp.where(known, below, 0), jnp.where(known, above, 0), bound, x, problem.target)


def one_active_set(problem: ProjectionProblem) -> ProjectionProblem:
    """The problem with the bounds as equations that are active when it is linearised at its target."""
    return on_active(problem, linearised(stop_gradient_tree(problem), stop_gradient_tree(problem.target)).active())


def with_bounds(problem: ProjectionProblem, out: ProjectionResult, accepted: Flag) -> ProjectionResult:
    """The result for an active set as one for all bounds; unprojected where not `accepted`."""
    x = jnp.where(accepted, out.x, problem.target)
    solved = out.result == RESULTS.successful
    return ProjectionResult(
        x=x,
        multiplier=jnp.where(accepted, out.multiplier, 0),
        violation=jnp.abs(problem.residual(x)),
        steps=out.steps,
        result=RESULTS.where(solved & ~accepted, RESULTS.not_converged, out.result),
        redundant=jnp.maximum(out.redundant - jnp.sum(bound_rows(problem) & (out.multiplier == 0)), 0),
    )


class Bounded(eqx.Module):
    """A projection onto equations as one with bounds, a `Solver` like the former."""

    projection: Solver

    def solve(self, problem: ProjectionProblem) -> ProjectionResult:
        """Active sets in turn, each solved to the tolerance, until one obeys all bounds."""

        def step(carry: _Solved) -> _Solved:
            side = linearised(problem, carry.x).active()
            out = self.projection.solve(on_active(problem, side))
            good = _obeys(problem, out, side)
            failed = out.result != RESULTS.successful
            return _Solved(out.x, out, good, jnp.where(good | failed, 0, carry.left - 1))

        zero = jnp.zeros_like(problem.level)
        nothing = ProjectionResult(problem.target, zero, zero, jnp.array(0), RESULTS.not_converged)
        first = _Solved(problem.target, nothing, jnp.array(False), jnp.array(MAX_ACTIVE_SETS))
        last = iterate(first, step, lambda carry: carry.left > 0)
        return with_bounds(problem, last.result, last.good)

    def sensitivity(
        self, problem: ProjectionProblem, solution: ProjectionResult, tangent: ProjectionProblem
    ) -> ProjectionResult:
        """That of the equations and the active bounds; a bound that is met with a multiplier of zero is not active."""
        below, above = _sides(problem, solution.x)
        held = jnp.where(jnp.abs(above) <= jnp.abs(below), 1, -1)
        side = jnp.where(bound_rows(problem), jnp.where(solution.multiplier == 0, 0, held), 1).astype(solution.x.dtype)
        inner = on_active(problem, side)
        # Its tangent: the same, with None where nothing changes.
        change = eqx.tree_at(
            lambda problem: (problem.constraint, problem.t, problem.target, problem.p, problem.level, problem.anchor),
            inner,
            (_with_side(tangent.constraint, None), tangent.t, tangent.target, tangent.p, tangent.level, tangent.anchor),
            is_leaf=lambda node: node is None,
        )
        return self.projection.sensitivity(inner, solution, change)


class _Solved(eqx.Module):
    x: State
    result: ProjectionResult
    good: Flag
    left: Count


def _obeys(problem: ProjectionProblem, out: ProjectionResult, side: ConstraintVector) -> Flag:
    """Whether a solution for one active set is one of the whole: inside all bounds, and pushed by none of them."""
    program = linearised(problem, out.x)
    outside = jnp.maximum(program.above, -program.below)
    # Those that are active are held by the projection, to its own tolerance.
    inside = jnp.all(~program.bound | (side != 0) | (outside <= 2 * program.allowed))
    gap = jnp.linalg.norm(problem.target - out.x) + jnp.linalg.norm(out.x)
    wrong = -side * out.multiplier * jnp.linalg.norm(program.jacobian, axis=1)
    pulls = program.bound & (wrong > TOLERATED_ROUNDINGS * jnp.finfo(out.x.dtype).eps * gap)
    return inside & ~jnp.any(pulls) & (out.result == RESULTS.successful)
