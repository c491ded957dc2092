"""The fast projection: one linearised step, or an iteration that keeps the factorisation of the first.

    one step   x = x~ - G~'(G~G~')^-1 (g(x~) - level)
    frozen     x <- x - G~'(G~G~')^-1 (g(x) - level)   until g(x) = level, with G~ = G(x~) throughout

Use it where steps are small and every microsecond counts. One step leaves a violation of second order in the
predictor's; the frozen iteration removes it, along normals that are those of x~ rather than of the nearest point.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from twinfold._core import RESULTS, finite_jvp, stop_gradient_tree
from twinfold.numerics._constraint import residual_and_jacobian
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import iterate, iterate_exactly
from twinfold.numerics._linalg.dense import SMALL, RowSpace, apply, factorise, solve_general
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
)
from twinfold.numerics._project.bounds import has_bounds, linearised, one_active_set, with_bounds
from twinfold.numerics._project.redundant import is_regular, may_be_redundant
from twinfold.typing import ConstraintVector, Count, Flag, State

COLLAPSED = 1e-4  # the part of the volume between gradients below which they have become dependent


class Tangent(AbstractProjection):
    """One step onto the linearised constraint; with `max_steps` > 1, the frozen-factorisation iteration.

    **Arguments:** `max_steps`, 1 for the single step; `derivative`: `"tangent"` (the projector of the paper's
    Eq. 7), `"implicit"` (exact) or `"loop"`; `metric`, weights of the states (a vector, or a matrix W).

    With `"implicit"` the iteration is flagged where constraints depend on each other on the manifold and not beside it:
    which point of the manifold it reaches is then not determined by its equations.

    `Bounds` enter by the active set of the linearised problem.

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), constraint=energy, projection=tw.Tangent())
    twin.simulate([1.0, 0.0], jnp.linspace(0, 10, 51)).trajectory.relative_violation.max()
    ```
    """

    max_steps: int = eqx.field(static=True, default=1, kw_only=True)
    derivative: Derivative = eqx.field(static=True, default="tangent", kw_only=True)
    metric: Metric | None = eqx.field(converter=as_metric, default=None, kw_only=True)

    holds_bounds: ClassVar[bool] = True

    def __check_init__(self):
        check_settings(self)

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        if has_bounds(problem):
            out = self.nearest(one_active_set(problem))
            return with_bounds(problem, out, self._holds(problem, out.x))
        problem = dataclasses.replace(problem, anchor=None)  # no second start
        # A single step is an explicit formula: differentiating it is exact, there is nothing implicit about it.
        if self.derivative == "loop" or (self.derivative == "implicit" and self.max_steps == 1):
            return finite_jvp((problem,), fn=self.solve)
        return implicit_solve(problem, solver=self)

    def _holds(self, problem: ProjectionProblem, x: State) -> Flag:
        """Whether all bounds are held at x, where that is promised."""
        if self.max_steps == 1:
            return jnp.array(True)
        outside = jnp.abs(stop_gradient_tree(problem.residual(x)))
        program = linearised(stop_gradient_tree(problem), stop_gradient_tree(x))
        scale = jnp.linalg.norm(program.jacobian, axis=1) * jnp.linalg.norm(stop_gradient_tree(problem.target))
        return jnp.all(outside <= _enough(problem.level, scale))

    def solve(self, problem: ProjectionProblem) -> ProjectionResult:
        """The projection without a derivative rule."""
        target = problem.target
        g, jacobian = residual_and_jacobian(problem.constraint, problem.t, target, problem.p, problem.level)
        finite = jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(jacobian))
        space = factorise(jnp.where(finite, jacobian, 0))
        size = jnp.linalg.norm(jacobian, axis=1) * jnp.linalg.norm(target)
        enough = _enough(problem.level, size)

        def step(carry: tuple[State, ConstraintVector, Count]) -> tuple[State, ConstraintVector, Count]:
            x, g, steps = carry
            x = x - space.min_norm(g)
            return x, problem.residual(x), steps + 1

        first = step((target, jnp.where(finite, g, 0), jnp.array(0)))
        if self.derivative == "loop" or self.max_steps == 1:
            x, left, steps = iterate_exactly(first, step, self.max_steps - 1)
        else:
            x, left, steps = iterate(first, step, lambda c: jnp.any(jnp.abs(c[1]) > enough) & (c[2] < self.max_steps))
        solved = finite & jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(left))
        if self.max_steps > 1:
            solved = solved & jnp.all(jnp.abs(left) <= enough)
        elif may_be_redundant(problem):
            # One step promises no convergence; but a constraint that depends on others, and that the step along these
            # does not bring nearer to first order, contradicts them.
            expected = jnp.abs(g + apply(jnp.where(finite, jacobian, 0), x - target))
            solved = solved & jnp.all(space.kept | (expected <= jnp.maximum(0.5 * jnp.abs(g), enough)))
        if self.derivative == "implicit" and self.max_steps > 1 and may_be_redundant(problem):
            solved = solved & ~_collapses(problem, x, space)
        if self.derivative == "loop" and g.shape[0] > SMALL:  # what is dropped there is dropped without derivatives
            solved = solved & ~space.singular
        solved = solved & is_regular(problem, target, space)
        result = RESULTS.where(space.singular, RESULTS.singular, RESULTS.not_converged)
        result = RESULTS.where(solved, RESULTS.successful, failure_reason(problem, g, finite, result))
        return ProjectionResult(
            x=jnp.where(solved, x, target),
            multiplier=jnp.where(solved, space.multipliers(target - x), 0),
            violation=jnp.abs(jnp.where(solved, left, g)),
            steps=steps,
            result=result,
            redundant=jnp.where(finite, g.shape[0] - space.rank, 0),
        )

    def sensitivity(
        self, problem: ProjectionProblem, solution: ProjectionResult, tangent: ProjectionProblem
    ) -> ProjectionResult:
        """(dx, dmu) for a change of the inputs, from x - x~ + G(x~)'mu = 0 and g(x) = level."""
        x, multiplier = solution.x, solution.multiplier
        _, jacobian = residual_and_jacobian(problem.constraint, problem.t, x, problem.p, problem.level)
        target, _, change = input_tangents(problem, x, multiplier, tangent)
        if self.derivative == "tangent":
            space = factorise(jnp.where(jnp.isfinite(jacobian), jacobian, 0))
            dx = space.tangent(target) - space.min_norm(change)
            return result_tangent(solution, tangent, dx, space.multipliers(target - dx))

        def correction(problem: ProjectionProblem) -> State:
            _, pullback = jax.vjp(problem.residual, problem.target)
            return pullback(multiplier)[0]

        _, turned = eqx.filter_jvp(lambda problem: finite_jvp((problem,), fn=correction), (problem,), (tangent,))
        _, first = residual_and_jacobian(problem.constraint, problem.t, problem.target, problem.p, problem.level)
        moved = target if turned is None else target - turned
        # The derivative of a failed projection is not used but has to be finite, also where that of g at x is not.
        failed = (solution.result != RESULTS.successful) | ~jnp.all(jnp.isfinite(jacobian))
        jacobian, first = (jnp.where(failed, 0, matrix) for matrix in (jacobian, first))
        # Constraints that depend on others are met with them: their multipliers may stay as they are.
        kept = factorise(first).kept
        matrix = jnp.where(kept[:, None] & kept[None], jacobian @ first.T, jnp.eye(multiplier.shape[0], dtype=x.dtype))
        mu = solve_general(matrix, jnp.where(kept, jacobian @ moved + change, 0))
        return result_tangent(solution, tangent, moved - first.T @ mu, mu)


def _collapses(problem: ProjectionProblem, x: State, space: RowSpace) -> Flag:
    """Whether constraints that are independent at the target depend on each other at x.

    Then x is a point of the manifold, but the normals of the target and g(x) = level do not determine which.
    """
    _, jacobian = residual_and_jacobian(problem.constraint, problem.t, x, problem.p, problem.level)
    there = factorise(jnp.where(jnp.isfinite(jacobian), jacobian, 0))
    return (there.rank < space.rank) | (there.volume < COLLAPSED * space.volume)


def _enough(level: ConstraintVector, size: ConstraintVector) -> ConstraintVector:
    """The threshold of the public SciML implementation."""
    return jnp.finfo(level.dtype).eps ** 0.8 * jnp.maximum(jnp.abs(level), size)
