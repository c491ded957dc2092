"""The robust projection: the nearest point of the manifold, to the limit of the dtype.

The iteration is in `near.py` and, for what that leaves, in `search.py`; here are the projection, its exact derivative,
and what is reported.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from twinfold._core import RESULTS, finite_jvp, tree_where
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import iterate_exactly, run_if
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
from twinfold.numerics._project.kkt import Point, point, reduced_hessian
from twinfold.numerics._project.line_search import differentiable_step
from twinfold.numerics._project.near import approach, may_be_near
from twinfold.numerics._project.redundant import is_regular, may_be_redundant
from twinfold.numerics._project.search import is_local, reach_of, search
from twinfold.typing import Count, Flag, State


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
        if not may_be_near(problem):
            return self._searched(problem)
        tolerance = tolerance_of(self, problem.target)
        start = point(problem, problem.target, tolerance)
        near, reach = approach(problem, start, tolerance, self.max_steps), reach_of(problem, start)
        # What is reported is evaluated where the derivative will be.
        end = point(problem, near.x, tolerance)
        solved = near.arrived & is_local(problem, near.x, reach) & end.acceptable & ~end.space.singular
        result = _result(problem, end, near.x, near.steps, solved, RESULTS.not_converged)

        def searched(before: _Unsolved) -> _Unsolved:
            from_target = eqx.tree_at(lambda problem: problem.target, problem, before.target)
            found = self._searched(from_target, before.result.x)
            found = eqx.tree_at(lambda found: found.steps, found, before.result.steps + found.steps)
            return _Unsolved(before.target, found)

        return run_if(~solved, searched, _Unsolved(problem.target, result)).result

    def _searched(self, problem: ProjectionProblem, trial: State | None = None) -> ProjectionResult:
        """The projection by `search` alone, which first tries a state, if one is given."""
        tolerance = tolerance_of(self, problem.target)
        start = point(problem, problem.target, tolerance)
        found = search(problem, start, tolerance, self.max_steps, trial)
        rank, rows = found.taken.rank, problem.level.shape[0]
        regular = (rank >= found.ranks.rank) & ~found.taken.vanishing & (may_be_redundant(problem) | (rank == rows))
        solved = found.solved & regular
        singular = jnp.where(found.taken.acceptable, ~regular, rank < rows)
        x = jnp.where(solved, found.taken.x, problem.target)
        end = point(problem, x, tolerance)
        reason = _reason(problem, start, found.taken.acceptable & ~found.taken.definite, singular)
        return _result(problem, end, x, found.evaluations, solved, reason)

    def _unrolled(self, problem: ProjectionProblem) -> ProjectionResult:
        """Exactly `max_steps` Newton steps from the predictor, each of which JAX can differentiate."""
        tolerance = tolerance_of(self, problem.target)
        start = point(problem, problem.target, tolerance)

        def step(carry: tuple[State, Point]) -> tuple[State, Point]:
            return differentiable_step(problem, *carry, reduced_hessian(problem, *carry), tolerance)

        x, here = iterate_exactly((problem.target, start), step, self.max_steps)
        definite = reduced_hessian(problem, x, here).definite
        regular = is_regular(problem, x, here.space)
        solved = here.acceptable & definite & regular
        if here.g.shape[0] > SMALL:  # what is dropped there is dropped without derivatives
            solved = solved & ~here.space.singular
        singular = jnp.where(here.acceptable, ~regular, here.space.singular)
        x, end = tree_where(solved, (x, here), (problem.target, start))
        reason = _reason(problem, start, here.acceptable & ~definite, singular)
        return _result(problem, end, x, jnp.array(self.max_steps), solved, reason)

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


class _Unsolved(eqx.Module):
    """What a search starts from, and then what it has found."""

    target: State
    result: ProjectionResult


def _reason(problem: ProjectionProblem, start: Point, saddle: Flag, singular: Flag) -> RESULTS:
    """Why a projection has failed, if it has."""
    result = RESULTS.where(saddle, RESULTS.second_order, RESULTS.not_converged)
    # Constraints that depend on each other are not the reason where they hold, and do so all around.
    result = RESULTS.where(singular, RESULTS.singular, result)
    return failure_reason(problem, start.g, start.finite, result)


def _result(
    problem: ProjectionProblem, end: Point, x: State, steps: Count, solved: Flag, reason: RESULTS
) -> ProjectionResult:
    """The nearest point x, or the unprojected state with the reason; `end` is what is known of it."""
    return ProjectionResult(
        x=x,
        multiplier=jnp.where(solved, end.space.multipliers(problem.target - x), 0),
        violation=jnp.abs(end.g),
        steps=steps,
        result=RESULTS.where(solved, RESULTS.successful, reason),
        redundant=jnp.where(end.finite, end.g.shape[0] - end.space.rank, 0),
    )
