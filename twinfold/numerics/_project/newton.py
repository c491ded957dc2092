"""The robust projection: the nearest point of the manifold, to the limit of the dtype.

Steps with unit Hessian are cheap, and sufficient when the predictor is close. Only the other predictors take guarded
steps: along the manifold from the last state on it towards the predictor, inside the domain of g and always nearer; or,
where no such state is known, Newton's method on the full KKT system with a line search.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from twinfold._core import RESULTS, finite_jvp, tree_where
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import iterate, iterate_exactly
from twinfold.numerics._linalg.dense import SMALL, apply
from twinfold.numerics._project.base import (
    AbstractProjection,
    Derivative,
    Metric,
    ProjectionProblem,
    ProjectionResult,
    as_metric,
    check_settings,
    failure_reason,
    input_tangents,
    result_tangent,
    tolerance_of,
)
from twinfold.numerics._project.bounds import Bounded, has_bounds
from twinfold.numerics._project.kkt import Point, lagrangian_curvature, point, reduced_hessian, sqp_direction
from twinfold.numerics._project.redundant import RankHistory, beside, is_regular, may_be_redundant
from twinfold.numerics._project.steps import (
    ON_MANIFOLD,
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

    `Bounds` beside the equations are obeyed too, with the derivative on the active ones (`_project/bounds.py`);
    constraints that depend on others hold together with them, and are counted in the result.

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), constraint=energy, projection=tw.Newton())
    twin.simulate([1.0, 0.0], jnp.linspace(0, 10, 51)).trajectory.relative_violation.max()
    ```
    """

    derivative: Derivative = eqx.field(static=True, default="implicit", kw_only=True)
    metric: Metric | None = eqx.field(converter=as_metric, default=None, kw_only=True)
    max_steps: int = eqx.field(static=True, default=50, kw_only=True)
    tolerance: float | None = eqx.field(static=True, default=None, kw_only=True)

    holds_bounds: ClassVar[bool] = True

    def __check_init__(self):
        check_settings(self)

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        if self.derivative == "loop":
            if has_bounds(problem):
                raise ValueError('Newton(derivative="loop"): with Bounds use "implicit" or "tangent".')
            return finite_jvp((problem,), fn=self._unrolled)
        return implicit_solve(problem, solver=Bounded(self) if has_bounds(problem) else self)

    def solve(self, problem: ProjectionProblem) -> ProjectionResult:
        """The projection without derivatives."""
        tolerance = tolerance_of(self, problem.target)
        start = point(problem, problem.target, tolerance)
        plain = _plain_steps(problem, start, tolerance, self.max_steps)
        # Small curvature is sufficient for a minimum; otherwise the second-order condition is checked in full.
        flat = jnp.linalg.norm(lagrangian_curvature(problem, plain.x, plain.here)) < 1
        solved = plain.here.acceptable & flat & _is_local(problem, plain.x)
        ranks = RankHistory(jnp.maximum(plain.rank_beside, start.space.rank), jnp.zeros_like(problem.level))
        last = _guarded_steps(problem, plain, solved, ranks, tolerance, self.max_steps)
        regular = last.ranks.is_regular(last.here.space) & (may_be_redundant(problem) | ~last.here.space.singular)
        return _result(problem, start, last.x, last.here, last.steps, regular, last.solved, last.definite)

    def _unrolled(self, problem: ProjectionProblem) -> ProjectionResult:
        """Exactly `max_steps` Newton steps from the predictor, each of which JAX can differentiate."""
        tolerance = tolerance_of(self, problem.target)
        start = point(problem, problem.target, tolerance)

        def step(carry: tuple[State, Point]) -> tuple[State, Point]:
            return differentiable_step(problem, *carry, reduced_hessian(problem, *carry), tolerance)

        x, here = iterate_exactly((problem.target, start), step, self.max_steps)
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
        here = point(problem, x, tolerance_of(self, x))
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


def _plain_steps(problem: ProjectionProblem, start: Point, tolerance: float, max_steps: int) -> _Plain:
    """Full steps with unit Hessian from the predictor: at least one, as long as each brings it much closer.

    If G is rank-deficient at the solution, one more evaluation nearby tells whether it is so all around.
    """
    look = may_be_redundant(problem)

    def rank_in_question(carry: _Plain) -> Flag:
        return carry.here.converged & carry.here.space.singular & (carry.rank_beside < 0)

    def unfinished(carry: _Plain) -> Flag:
        closer = ~carry.here.converged & carry.taken & (carry.steps < max_steps)
        more = (carry.steps == 0) | closer
        return more | rank_in_question(carry) if look else more

    def step(carry: _Plain) -> _Plain:
        x, here = carry.x, carry.here
        x1 = x + sqp_direction(problem, x, here)
        x1 = jnp.where(rank_in_question(carry), beside(x), x1) if look else x1
        there = point(problem, x1, tolerance)
        # Taken where the error falls fast; if it does not, curvature matters. At the end rounding can raise the error.
        taken = there.converged | (there.error < 0.1 * here.error)
        best_x, best = tree_where(taken, (x1, there), (x, here))
        moved = _Plain(best_x, best, carry.steps + 1, carry.rank_beside, taken)
        if not look:
            return moved
        return tree_where(rank_in_question(carry), _Plain(x, here, carry.steps, there.space.rank, taken), moved)

    first = _Plain(problem.target, start, jnp.array(0), jnp.array(-1), jnp.array(True))
    return iterate(first, step, unfinished, usual=USUAL_STEPS)


class _Guarded(eqx.Module):
    x: State
    here: Point
    steps: Count
    ranks: RankHistory
    solved: Flag
    definite: Flag
    left: Count


def _guarded_steps(
    problem: ProjectionProblem, plain: _Plain, solved: Flag, ranks: RankHistory, tolerance: float, max_steps: int
) -> _Guarded:
    """Steps that cannot leave the domain of g nor go astray, where the plain ones did not solve the problem.

    From the anchor along the manifold, or else from where the plain steps ended.
    """
    advance = newton_step if problem.anchor is None else descent_step

    def step(carry: _Guarded) -> _Guarded:
        x = carry.x
        here = point(problem, x, tolerance)
        curvature = reduced_hessian(problem, x, here)
        x1, _, taken = advance(problem, x, here, curvature, tolerance)
        # It ends at a solution, where no step helps (as at a saddle), or after too many steps.
        solved = here.acceptable & curvature.definite & (here.converged | ~taken | (carry.left == 1))
        ranks = carry.ranks.updated(here.space, here.violation_ratio <= ON_MANIFOLD)
        left = jnp.where(taken, carry.left - 1, 0)
        return _Guarded(jnp.where(solved, x, x1), here, carry.steps + 1, ranks, solved, curvature.definite, left)

    x = plain.x if problem.anchor is None else jnp.where(solved, plain.x, problem.anchor)
    first = _Guarded(x, plain.here, plain.steps, ranks, solved, jnp.array(True), jnp.array(max_steps))
    return iterate(first, step, lambda carry: ~carry.solved & (carry.left > 0))


def _is_local(problem: ProjectionProblem, x: State) -> Flag:
    """Whether a correction is short, or at least shorter than going back to the anchor: it stays on the same branch."""
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
