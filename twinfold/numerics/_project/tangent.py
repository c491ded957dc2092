"""The fast projection: one linearised step, or an iteration that keeps the factorisation of the first.

    one step   x = x~ - G~'(G~G~')^-1 (g(x~) - level)
    frozen     x <- x - G~'(G~G~')^-1 (g(x) - level)   until g(x) = level, with G~ = G(x~) throughout

Use it where steps are small and every microsecond counts. One step leaves a violation of second order in the
predictor's; the frozen iteration removes it, along normals that are those of x~ rather than of the nearest point.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike

from twinfold._core import RESULTS, Frozen, finite_jvp, stop_gradient_tree
from twinfold.numerics._constraint import residual_and_jacobian
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import AbstractIteration, iterate, iterate_exactly
from twinfold.numerics._linalg.dense import SMALL, RowSpace, apply, factorise, solve_general
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
from twinfold.numerics._project.bounds import has_bounds, linearised, one_active_set, with_bounds
from twinfold.numerics._project.redundant import is_regular, may_be_redundant
from twinfold.typing import ConstraintVector, Count, Flag, State


class Tangent(AbstractProjection):
    """One step onto the linearised constraint; with `max_steps` > 1, the frozen-factorisation iteration.

    **Arguments:** `max_steps`, 1 for the single step; `derivative`: `"tangent"` (the projector of the paper's
    Eq. 7), `"implicit"` (exact) or `"loop"`; `metric`, weights of the states (a vector, or a matrix W).

    `Bounds` enter by the active set of the linearised problem.
    """

    max_steps: int = eqx.field(static=True)
    derivative: Derivative = eqx.field(static=True)
    root: Frozen | None

    def __init__(
        self,
        *,
        max_steps: int = 1,
        derivative: Derivative = "tangent",
        metric: ArrayLike | Sequence | None = None,
    ):
        check_derivative(derivative)
        if max_steps < 1:
            raise ValueError(f"Tangent(max_steps={max_steps}): at least one step is needed.")
        self.max_steps = max_steps
        self.derivative = derivative
        self.root = metric_root(metric)

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        return in_metric(self._nearest, self.root, problem, bounds=True)

    def _nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        if has_bounds(problem):
            out = self._nearest(one_active_set(problem))
            return with_bounds(problem, out, self._holds(problem, out.x))
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
        """The projection without a derivative rule of its own."""
        target = problem.target
        g, jacobian = residual_and_jacobian(problem.constraint, problem.t, target, problem.p, problem.level)
        finite = jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(jacobian))
        space = factorise(jnp.where(finite, jacobian, 0))
        size = jnp.linalg.norm(jacobian, axis=1) * jnp.linalg.norm(target)
        enough = _enough(problem.level, size)

        iteration = FrozenSteps(problem, space, jnp.where(finite, g, 0), enough, self.max_steps)
        exactly = self.derivative == "loop" or self.max_steps == 1
        x, left, steps = iterate_exactly(iteration, self.max_steps - 1) if exactly else iterate(iteration)
        solved = finite & jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(left))
        if self.max_steps > 1:
            solved = solved & jnp.all(jnp.abs(left) <= enough)
        elif may_be_redundant(problem):
            # One step promises no convergence; but a constraint that depends on others, and that the step along these
            # does not bring nearer to first order, contradicts them.
            expected = jnp.abs(g + apply(jnp.where(finite, jacobian, 0), x - target))
            solved = solved & jnp.all(space.kept | (expected <= jnp.maximum(0.5 * jnp.abs(g), enough)))
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
        # A failed projection keeps its target, whatever is computed here; it only has to be finite. So it has where g
        # cannot be differentiated: the iteration has not looked at its derivative at x.
        failed = (solution.result != RESULTS.successful) | ~jnp.all(jnp.isfinite(jacobian))
        jacobian, first = (jnp.where(failed, 0, matrix) for matrix in (jacobian, first))
        # Constraints that depend on others are met with them: their multipliers may stay as they are.
        kept = factorise(first).kept
        matrix = jnp.where(kept[:, None] & kept, jacobian @ first.T, jnp.eye(multiplier.shape[0], dtype=x.dtype))
        mu = solve_general(matrix, jnp.where(kept, jacobian @ moved + change, 0))
        return result_tangent(solution, tangent, moved - first.T @ mu, mu)


class FrozenSteps(AbstractIteration):
    """x <- x - G~'(G~G~')^-1 (g(x) - level), the first step always; carries (x, g - level, steps)."""

    problem: ProjectionProblem
    space: RowSpace
    g: ConstraintVector
    enough: ConstraintVector
    max_steps: int = eqx.field(static=True)

    def init(self) -> tuple[State, ConstraintVector, Count]:
        return self.step((self.problem.target, self.g, jnp.array(0)))

    def unfinished(self, carry: tuple[State, ConstraintVector, Count]) -> Flag:
        _, g, steps = carry
        return jnp.any(jnp.abs(g) > self.enough) & (steps < self.max_steps)

    def step(self, carry: tuple[State, ConstraintVector, Count]) -> tuple[State, ConstraintVector, Count]:
        x, g, steps = carry
        x = x - self.space.min_norm(g)
        return x, self.problem.residual(x), steps + 1


def _enough(level: ConstraintVector, size: ConstraintVector) -> ConstraintVector:
    """The threshold of the public SciML implementation."""
    return jnp.finfo(level.dtype).eps ** 0.8 * jnp.maximum(jnp.abs(level), size)
