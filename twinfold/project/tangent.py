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

from twinfold._types import Flag, Level, Parameters, Scalar, State
from twinfold.constraint.base import AbstractConstraint, residual_and_jacobian
from twinfold.contain import contained
from twinfold.field.learned import Frozen
from twinfold.linalg import SMALL, apply, factorise, solve_general
from twinfold.project.base import (
    AbstractProjection,
    Correction,
    Derivative,
    Problem,
    as_data,
    check_derivative,
    in_metric,
    metric_root,
)
from twinfold.project.bounds import has_bounds, linearised, one_active_set, with_bounds
from twinfold.project.derivative import implicit, input_tangents
from twinfold.project.redundant import may_be_redundant, regular
from twinfold.result import RESULTS


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

    def project(
        self,
        constraint: AbstractConstraint,
        t: Scalar,
        x: State,
        p: Parameters,
        level: Level,
        *,
        anchor: State | None = None,
    ) -> Correction:
        return in_metric(self._nearest, self.root, Problem(constraint, t, x, p, level, None), bounds=True)

    def _nearest(self, problem: Problem) -> Correction:
        if has_bounds(problem):
            out = self._nearest(one_active_set(problem))
            return with_bounds(problem, out, self._holds(problem, out.x))
        # A single step is an explicit formula: differentiating it is exact, there is nothing implicit about it.
        if self.derivative == "loop" or (self.derivative == "implicit" and self.max_steps == 1):
            return contained((problem,), fn=self.solve)
        return implicit(problem, projection=self)

    def _holds(self, problem: Problem, x: State) -> Flag:
        """Whether all bounds are held at x, where that is promised."""
        if self.max_steps == 1:
            return jnp.array(True)
        outside = jnp.abs(as_data(problem.residual(x)))
        program = linearised(as_data(problem), as_data(x))
        scale = jnp.linalg.norm(program.jacobian, axis=1) * jnp.linalg.norm(as_data(problem.target))
        return jnp.all(outside <= _enough(problem.level, scale))

    def solve(self, problem: Problem) -> Correction:
        """The projection without a derivative rule of its own."""
        target = problem.target
        g, jacobian = residual_and_jacobian(problem.constraint, problem.t, target, problem.p, problem.level)
        finite = jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(jacobian))
        space = factorise(jnp.where(finite, jacobian, 0))
        size = jnp.linalg.norm(jacobian, axis=1) * jnp.linalg.norm(target)
        enough = _enough(problem.level, size)

        def step(state: tuple) -> tuple:
            x, g, steps = state
            x = x - space.min_norm(g)
            return x, problem.residual(x), steps + 1

        state = step((target, jnp.where(finite, g, 0), jnp.array(0)))
        if self.derivative == "loop":
            state = jax.lax.scan(lambda s, _: (step(s), None), state, length=self.max_steps - 1)[0]
        elif self.max_steps > 1:
            state = jax.lax.while_loop(lambda s: jnp.any(jnp.abs(s[1]) > enough) & (s[2] < self.max_steps), step, state)
        x, left, steps = state
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
        solved = solved & regular(problem, target, space)
        result = RESULTS.where(space.singular, RESULTS.singular, RESULTS.not_converged)
        result = RESULTS.where(solved, RESULTS.successful, result)
        result = RESULTS.where(finite, result, RESULTS.not_differentiable)
        result = RESULTS.where(jnp.all(jnp.isfinite(g)), result, RESULTS.outside_domain)
        result = RESULTS.where(jnp.all(jnp.isfinite(target)), result, RESULTS.nonfinite)
        return Correction(
            x=jnp.where(solved, x, target),
            multiplier=jnp.where(solved, space.multipliers(target - x), 0),
            violation=jnp.abs(jnp.where(solved, left, g)),
            steps=steps,
            result=result,
            redundant=jnp.where(finite, g.shape[0] - space.rank, 0),
        )

    def sensitivity(self, problem: Problem, out: Correction, tangent: Problem) -> tuple[State, Level]:
        """(dx, dmu) for a change of the inputs, from x - x~ + G(x~)'mu = 0 and g(x) = level."""
        x, multiplier = out.x, out.multiplier
        _, jacobian = residual_and_jacobian(problem.constraint, problem.t, x, problem.p, problem.level)
        target, _, change = input_tangents(problem, x, multiplier, tangent)
        if self.derivative == "tangent":
            space = factorise(jnp.where(jnp.isfinite(jacobian), jacobian, 0))
            dx = space.tangent(target) - space.min_norm(change)
            return dx, space.multipliers(target - dx)

        def correction(problem: Problem) -> State:
            _, pullback = jax.vjp(problem.residual, problem.target)
            return pullback(multiplier)[0]

        _, turned = eqx.filter_jvp(lambda problem: contained((problem,), fn=correction), (problem,), (tangent,))
        _, first = residual_and_jacobian(problem.constraint, problem.t, problem.target, problem.p, problem.level)
        moved = target if turned is None else target - turned
        # A failed projection keeps its target, whatever is computed here; it only has to be finite. So it has where g
        # cannot be differentiated: the iteration has not looked at its derivative at x.
        failed = (out.result != RESULTS.successful) | ~jnp.all(jnp.isfinite(jacobian))
        jacobian, first = (jnp.where(failed, 0, matrix) for matrix in (jacobian, first))
        # Constraints that depend on others are met with them: their multipliers may stay as they are.
        kept = factorise(first).kept
        matrix = jnp.where(kept[:, None] & kept, jacobian @ first.T, jnp.eye(multiplier.shape[0], dtype=x.dtype))
        mu = solve_general(matrix, jnp.where(kept, jacobian @ moved + change, 0))
        return moved - first.T @ mu, mu


def _enough(level: Level, size: Level) -> Level:
    """The threshold of the public SciML implementation."""
    return jnp.finfo(level.dtype).eps ** 0.8 * jnp.maximum(jnp.abs(level), size)
