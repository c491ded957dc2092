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

from twinfold._types import Level, Parameters, Scalar, State
from twinfold.constraint.base import AbstractConstraint, residual_and_jacobian
from twinfold.contain import contained
from twinfold.field.learned import Frozen
from twinfold.linalg import factorise, solve_general
from twinfold.project.base import (
    AbstractProjection,
    Correction,
    Derivative,
    Problem,
    check_derivative,
    in_metric,
    metric_root,
)
from twinfold.project.derivative import implicit, input_tangents
from twinfold.result import RESULTS


class Tangent(AbstractProjection):
    """One step onto the linearised constraint; with `max_steps` > 1, the frozen-factorisation iteration.

    **Arguments:** `max_steps`, 1 for the single step; `derivative`: `"tangent"` (the projector of the paper's
    Eq. 7), `"implicit"` (exact) or `"loop"`; `metric`, weights of the states (a vector, or a matrix W).
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
        return in_metric(self._nearest, self.root, Problem(constraint, t, x, p, level, None))

    def _nearest(self, problem: Problem) -> Correction:
        # A single step is an explicit formula: differentiating it is exact, there is nothing implicit about it.
        if self.derivative == "loop" or (self.derivative == "implicit" and self.max_steps == 1):
            return contained((problem,), fn=self.solve)
        return implicit(problem, projection=self)

    def solve(self, problem: Problem) -> Correction:
        """The projection without a derivative rule of its own."""
        target = problem.target
        g, jacobian = residual_and_jacobian(problem.constraint, problem.t, target, problem.p, problem.level)
        finite = jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(jacobian))
        space = factorise(jnp.where(finite, jacobian, 0))
        sound = finite & ~space.singular
        size = jnp.linalg.norm(jacobian, axis=1) * jnp.linalg.norm(target)
        # The threshold of the public SciML implementation.
        enough = jnp.finfo(target.dtype).eps ** 0.8 * jnp.maximum(jnp.abs(problem.level), size)

        def step(state: tuple) -> tuple:
            x, g, steps = state
            x = x - space.min_norm(g)
            return x, problem.residual(x), steps + 1

        state = step((target, jnp.where(sound, g, 0), jnp.array(0)))
        if self.derivative == "loop":
            state = jax.lax.scan(lambda s, _: (step(s), None), state, length=self.max_steps - 1)[0]
        elif self.max_steps > 1:
            state = jax.lax.while_loop(lambda s: jnp.any(jnp.abs(s[1]) > enough) & (s[2] < self.max_steps), step, state)
        x, left, steps = state
        usable = sound & jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(left))
        solved = usable if self.max_steps == 1 else usable & jnp.all(jnp.abs(left) <= enough)
        result = RESULTS.where(solved, RESULTS.successful, RESULTS.not_converged)
        result = RESULTS.where(finite & space.singular, RESULTS.singular, result)
        result = RESULTS.where(finite, result, RESULTS.outside_domain)
        result = RESULTS.where(jnp.all(jnp.isfinite(target)), result, RESULTS.nonfinite)
        return Correction(
            x=jnp.where(solved, x, target),
            multiplier=jnp.where(solved, space.multipliers(target - x), 0),
            violation=jnp.abs(jnp.where(solved, left, g)),
            steps=steps,
            result=result,
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
        # A failed projection keeps its target, whatever is computed here; it only has to be finite.
        failed = out.result != RESULTS.successful
        jacobian, first = (jnp.where(failed, 0, matrix) for matrix in (jacobian, first))
        matrix = jnp.where(failed, jnp.eye(multiplier.shape[0], dtype=x.dtype), jacobian @ first.T)
        mu = solve_general(matrix, jacobian @ moved + change)
        return moved - first.T @ mu, mu
