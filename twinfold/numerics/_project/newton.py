"""The robust projection: the nearest point of the manifold, to the limit of the dtype.

Steps with unit Hessian are cheap, and enough when the predictor is close. The other predictors, and only these, take
guarded steps: along the manifold from the last state on it towards the predictor, which stays inside the domain of g and
always comes nearer; or, where no such state is known, Newton's method on the full KKT system with a line search.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import ArrayLike

from twinfold._core import RESULTS, Frozen, finite_jvp, tree_where
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import AbstractIteration, iterate, iterate_exactly
from twinfold.numerics._linalg.dense import SMALL, apply
from twinfold.numerics._project.base import (
    AbstractProjection,
    Derivative,
    ProjectionProblem,
    ProjectionResult,
    check_derivative,
    failure_reason,
    in_metric,
    input_tangents,
    metric_root,
    result_tangent,
)
from twinfold.numerics._project.bounds import Bounded, has_bounds
from twinfold.numerics._project.kkt import Point, lagrangian_curvature, point, reduced_hessian, sqp_direction
from twinfold.numerics._project.redundant import RankHistory, beside, is_regular, may_be_redundant
from twinfold.numerics._project.steps import (
    ON_MANIFOLD,
    attempt,
    descent_step,
    differentiable_step,
    newton_step,
)
from twinfold.typing import Count, Flag, State

USUAL_STEPS = 4  # plain steps that most predictors of a batch need


class Newton(AbstractProjection):
    """min ||x - x~||_W subject to g(t, x, p) = level, solved to a tolerance that follows the dtype.

    **Arguments:** `derivative`: `"implicit"` (exact), `"tangent"` (curvature neglected) or `"loop"` (through
    exactly `max_steps` iterations); `metric`: weights of the states (a vector, or a matrix W), the identity when
    left out; `max_steps` per attempt; `tolerance`, relative, 4 rounding errors when left out.

    `Bounds` beside the equations are obeyed too, with the derivative on the active ones (`project/bounds.py`);
    constraints that depend on others hold together with them, and are counted in the result.
    """

    derivative: Derivative = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True)
    root: Frozen | None

    def __init__(
        self,
        *,
        derivative: Derivative = "implicit",
        metric: ArrayLike | Sequence | None = None,
        max_steps: int = 50,
        tolerance: float | None = None,
    ):
        check_derivative(derivative)
        if max_steps < 1:
            raise ValueError(f"Newton(max_steps={max_steps}): at least one step is needed.")
        if tolerance is not None and not tolerance > 0:
            raise ValueError(f"Newton(tolerance={tolerance}): must be positive.")
        self.derivative = derivative
        self.max_steps = max_steps
        self.tolerance = tolerance
        self.root = metric_root(metric)

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        return in_metric(self._nearest, self.root, problem, bounds=True)

    def _nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        if self.derivative == "loop":
            if has_bounds(problem):
                raise ValueError('Newton(derivative="loop"): with Bounds use "implicit" or "tangent".')
            return finite_jvp((problem,), fn=self._unrolled)
        return implicit_solve(problem, solver=Bounded(self) if has_bounds(problem) else self)

    def _tolerance(self, x: State) -> float:
        return float(4 * jnp.finfo(x.dtype).eps) if self.tolerance is None else self.tolerance

    def solve(self, problem: ProjectionProblem) -> ProjectionResult:
        """The projection without derivatives."""
        tolerance = self._tolerance(problem.target)
        start = point(problem, problem.target, tolerance)
        plain = iterate(PlainSteps(problem, start, tolerance, self.max_steps), usual=USUAL_STEPS)
        # Small curvature is sufficient for a minimum; otherwise the second-order condition is checked in full.
        flat = jnp.linalg.norm(lagrangian_curvature(problem, plain.x, plain.here)) < 1
        solved = plain.here.acceptable & flat & _is_local(problem, plain.x)
        ranks = RankHistory(jnp.maximum(plain.rank_beside, start.space.rank), jnp.zeros_like(problem.level))
        last = iterate(GuardedSteps(problem, plain, solved, ranks, tolerance, self.max_steps))
        regular = last.ranks.is_regular(last.here.space) & (may_be_redundant(problem) | ~last.here.space.singular)
        return _result(problem, start, last.x, last.here, last.steps, regular, last.solved, last.definite)

    def _unrolled(self, problem: ProjectionProblem) -> ProjectionResult:
        """Exactly `max_steps` Newton steps from the predictor, each of which JAX can differentiate."""
        tolerance = self._tolerance(problem.target)
        start = point(problem, problem.target, tolerance)
        x, here = iterate_exactly(DifferentiableSteps(problem, start, tolerance), self.max_steps)
        definite = reduced_hessian(problem, x, here).definite
        solved = here.acceptable & definite
        if here.g.shape[0] > SMALL:  # what is dropped there is dropped without derivatives
            solved = solved & ~here.space.singular
        regular = is_regular(problem, x, here.space)
        return _result(problem, start, x, here, jnp.array(self.max_steps), regular, solved, definite)

    def sensitivity(
        self, problem: ProjectionProblem, solution: ProjectionResult, tangent: ProjectionProblem
    ) -> ProjectionResult:
        """(dx, dlambda) for a change of the inputs: [H G'; G 0] [dx; dlambda] = [dx~ - d(G'lambda); -dg]."""
        x, multiplier = solution.x, solution.multiplier
        here = point(problem, x, self._tolerance(x))
        target, slope, change = input_tangents(problem, x, multiplier, tangent)
        normal = -here.space.min_norm(change)
        if self.derivative == "tangent":
            dx = here.space.tangent(target) + normal
            return result_tangent(solution, tangent, dx, here.space.multipliers(target - dx))
        curvature = reduced_hessian(problem, x, here)
        dx = normal + curvature.solve(here.space, target - slope - apply(curvature.hessian, normal))
        dmultiplier = here.space.multipliers(target - slope - apply(curvature.hessian, dx))
        return result_tangent(solution, tangent, dx, dmultiplier)


class _Plain(eqx.Module):
    x: State
    here: Point
    steps: Count
    rank_beside: Count  # of G near the solution, where it was asked for, else -1
    taken: Flag


class PlainSteps(AbstractIteration):
    """Full steps with unit Hessian from the predictor: at least one, as long as each brings it much closer.

    If G is rank-deficient at the solution, one more evaluation nearby tells whether it is so all around.
    """

    problem: ProjectionProblem
    start: Point
    tolerance: float = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    def init(self) -> _Plain:
        return _Plain(self.problem.target, self.start, jnp.array(0), jnp.array(-1), jnp.array(True))

    def unfinished(self, carry: _Plain) -> Flag:
        closer = ~carry.here.converged & carry.taken & (carry.steps < self.max_steps)
        return (carry.steps == 0) | closer | self._rank_in_question(carry)

    def step(self, carry: _Plain) -> _Plain:
        x, here = carry.x, carry.here
        x1 = x + sqp_direction(self.problem, x, here)
        look = self._rank_in_question(carry)
        if may_be_redundant(self.problem):
            x1 = jnp.where(look, beside(x), x1)
        x2, best, taken, there = attempt(self.problem, x, here, x1, self.tolerance)
        moved = _Plain(x2, best, carry.steps + 1, carry.rank_beside, taken)
        if not may_be_redundant(self.problem):
            return moved
        return tree_where(look, _Plain(x, here, carry.steps, there.space.rank, taken), moved)

    def _rank_in_question(self, carry: _Plain) -> Flag:
        if not may_be_redundant(self.problem):
            return jnp.array(False)
        return carry.here.converged & carry.here.space.singular & (carry.rank_beside < 0)


class _Guarded(eqx.Module):
    x: State
    here: Point
    steps: Count
    ranks: RankHistory
    solved: Flag
    definite: Flag
    left: Count


class GuardedSteps(AbstractIteration):
    """Steps that cannot leave the domain of g nor go astray, where the plain ones did not solve the problem.

    From the anchor along the manifold, or else from where the plain steps ended.
    """

    problem: ProjectionProblem
    plain: _Plain
    solved: Flag
    ranks: RankHistory
    tolerance: float = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    def init(self) -> _Guarded:
        x, ranks, anchor = self.plain.x, self.ranks, self.problem.anchor
        if anchor is not None:
            x = jnp.where(self.solved, x, anchor)
        left = jnp.array(self.max_steps)
        return _Guarded(x, self.plain.here, self.plain.steps, ranks, self.solved, jnp.array(True), left)

    def unfinished(self, carry: _Guarded) -> Flag:
        return ~carry.solved & (carry.left > 0)

    def step(self, carry: _Guarded) -> _Guarded:
        x = carry.x
        here = point(self.problem, x, self.tolerance)
        curvature = reduced_hessian(self.problem, x, here)
        advance = newton_step if self.problem.anchor is None else descent_step
        x1, _, taken = advance(self.problem, x, here, curvature, self.tolerance)
        # It ends at a solution, where no step helps (at a saddle, say), or when it takes too long.
        solved = here.acceptable & curvature.definite & (here.converged | ~taken | (carry.left == 1))
        return _Guarded(
            jnp.where(solved, x, x1),
            here,
            carry.steps + 1,
            carry.ranks.updated(here.space, here.infeasible <= ON_MANIFOLD),
            solved,
            curvature.definite,
            jnp.where(taken, carry.left - 1, 0),
        )


class DifferentiableSteps(AbstractIteration):
    """Newton steps from the predictor whose lengths are data; a converged iterate goes on."""

    problem: ProjectionProblem
    start: Point
    tolerance: float = eqx.field(static=True)

    def init(self) -> tuple[State, Point]:
        return self.problem.target, self.start

    def unfinished(self, carry: tuple[State, Point]) -> Flag:
        return jnp.array(True)

    def step(self, carry: tuple[State, Point]) -> tuple[State, Point]:
        x, here = carry
        curvature = reduced_hessian(self.problem, x, here)
        return differentiable_step(self.problem, x, here, curvature, self.tolerance)


def _is_local(problem: ProjectionProblem, x: State) -> Flag:
    """Whether a correction is short, or at least shorter than going back to the anchor: the same branch, that is."""
    if problem.anchor is None:
        return jnp.array(True)
    move = jnp.linalg.norm(x - problem.target)
    return (move <= 0.05 * jnp.linalg.norm(x)) | (move <= jnp.linalg.norm(problem.anchor - problem.target))


def _result(
    problem: ProjectionProblem,
    start: Point,
    x: State,
    here: Point,
    steps: Count,
    regular: Flag,
    solved: Flag,
    definite: Flag,
) -> ProjectionResult:
    """The nearest point, or the unprojected state with the reason; `regular`: the rank of G is that all around."""
    solved = solved & regular
    # Constraints that depend on each other are not the reason where they hold, and do so all around.
    singular = jnp.where(here.acceptable, ~regular, here.space.singular)
    result = RESULTS.where(here.acceptable & ~definite, RESULTS.second_order, RESULTS.not_converged)
    result = RESULTS.where(singular, RESULTS.singular, result)
    result = RESULTS.where(solved, RESULTS.successful, failure_reason(problem, start.g, start.finite, result))
    return ProjectionResult(
        x=jnp.where(solved, x, problem.target),
        multiplier=jnp.where(solved, here.space.multipliers(problem.target - x), 0),
        violation=jnp.abs(jnp.where(solved, here.g, start.g)),
        steps=steps,
        result=result,
        redundant=jnp.where(here.finite, here.g.shape[0] - here.space.rank, 0),
    )
