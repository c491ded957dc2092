"""The robust projection: the nearest point of the manifold, to the limit of the dtype.

Steps with unit Hessian are cheap, and enough when the predictor is close. Where they are not, and only there (a vmapped
loop of zero iterations costs nothing): a walk along the manifold from the last state on it towards the predictor, which
stays inside the domain of g and always comes nearer; or, where no such state is known, Newton's method on the full KKT
system with a line search.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike

from twinfold._types import Count, Flag, Level, Parameters, Scalar, State
from twinfold.choose import choose
from twinfold.constraint.base import AbstractConstraint
from twinfold.contain import contained
from twinfold.field.learned import Frozen
from twinfold.linalg import apply
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
from twinfold.project.iterate import descent_step, differentiable_step, newton_step, plain_step
from twinfold.project.kkt import Point, lagrangian_curvature, point, reduced_hessian
from twinfold.result import RESULTS

USUAL = 4  # plain steps that most predictors of a batch need


class Newton(AbstractProjection):
    """min ||x - x~||_W subject to g(t, x, p) = level, solved to a tolerance that follows the dtype.

    **Arguments:** `derivative`: `"implicit"` (exact), `"tangent"` (curvature neglected) or `"loop"` (through
    exactly `max_steps` iterations); `metric`: weights of the states (a vector, or a matrix W), the identity when
    left out; `max_steps` per attempt; `tolerance`, relative, 4 rounding errors when left out.
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
        return in_metric(self._nearest, self.root, Problem(constraint, t, x, p, level, anchor))

    def _nearest(self, problem: Problem) -> Correction:
        if self.derivative == "loop":
            return contained((problem,), fn=self._unrolled)
        return implicit(problem, projection=self)

    def _tolerance(self, x: State) -> float:
        return float(4 * jnp.finfo(x.dtype).eps) if self.tolerance is None else self.tolerance

    def solve(self, problem: Problem) -> Correction:
        """The projection without derivatives."""
        tolerance = self._tolerance(problem.target)
        start = point(problem, problem.target, tolerance)
        x, here, steps = self._near(problem, start, tolerance)
        # Small curvature is sufficient for a minimum; otherwise the second-order condition is checked in full.
        flat = jnp.linalg.norm(lagrangian_curvature(problem, x, here)) < 1
        solved = here.acceptable & flat & _is_local(problem, x)
        x, here, steps, solved, definite = self._far(problem, x, here, steps, solved, tolerance)
        return _report(problem, start, x, here, steps, solved, definite)

    def _near(self, problem: Problem, start: Point, tolerance: float) -> tuple[State, Point, Count]:
        """Plain steps from the predictor: at least one, and as long as each brings it much closer."""

        def unfinished(state: tuple) -> Flag:
            _, here, steps, taken = state
            return (steps == 0) | (~here.converged & taken & (steps < self.max_steps))

        def step(state: tuple) -> tuple:
            x, here, steps, _ = state
            x, here, taken = plain_step(problem, x, here, tolerance)
            return x, here, steps + 1, taken

        # A loop of known length first: on an accelerator each look at a condition costs more than a step.
        state = (problem.target, start, jnp.array(0), jnp.array(True))
        state = jax.lax.fori_loop(0, USUAL, lambda _, state: choose(unfinished(state), step(state), state), state)
        return jax.lax.while_loop(unfinished, step, state)[:3]

    def _far(
        self, problem: Problem, x: State, here: Point, steps: Count, solved: Flag, tolerance: float
    ) -> tuple[State, Point, Count, Flag, Flag]:
        """Guarded steps, from the anchor along the manifold, or else from where the plain steps ended."""
        advance = newton_step if problem.anchor is None else descent_step
        start = x if problem.anchor is None else jnp.where(solved, x, problem.anchor)

        def unfinished(state: tuple) -> Flag:
            _, _, _, solved, _, left = state
            return ~solved & (left > 0)

        def step(state: tuple) -> tuple:
            x, _, steps, _, _, left = state
            here = point(problem, x, tolerance)
            curvature = reduced_hessian(problem, x, here)
            x1, _, taken = advance(problem, x, here, curvature, tolerance)
            # It ends at a solution, where no step helps (at a saddle, say), or when it takes too long.
            solved = here.acceptable & curvature.definite & (here.converged | ~taken | (left == 1))
            left = jnp.where(taken, left - 1, 0)
            return jnp.where(solved, x, x1), here, steps + 1, solved, curvature.definite, left

        state = (start, here, steps, solved, jnp.array(True), jnp.array(self.max_steps))
        return jax.lax.while_loop(unfinished, step, state)[:5]

    def _unrolled(self, problem: Problem) -> Correction:
        """Exactly `max_steps` Newton steps from the predictor, each of which JAX can differentiate."""
        tolerance = self._tolerance(problem.target)
        start = point(problem, problem.target, tolerance)

        def step(state: tuple, _: None) -> tuple:
            x, here = state
            curvature = reduced_hessian(problem, x, here)
            return differentiable_step(problem, x, here, curvature, tolerance)[:2], None

        (x, here), _ = jax.lax.scan(step, (problem.target, start), length=self.max_steps)
        definite = reduced_hessian(problem, x, here).definite
        steps = jnp.array(self.max_steps)
        return _report(problem, start, x, here, steps, here.acceptable & definite, definite)

    def sensitivity(self, problem: Problem, out: Correction, tangent: Problem) -> tuple[State, Level]:
        """(dx, dlambda) for a change of the inputs: [H G'; G 0] [dx; dlambda] = [dx~ - d(G'lambda); -dg]."""
        here = point(problem, out.x, self._tolerance(out.x))
        target, slope, change = input_tangents(problem, out.x, out.multiplier, tangent)
        normal = -here.space.min_norm(change)
        if self.derivative == "tangent":
            dx = here.space.tangent(target) + normal
            return dx, here.space.multipliers(target - dx)
        curvature = reduced_hessian(problem, out.x, here)
        dx = normal + curvature.solve(here.space, target - slope - apply(curvature.hessian, normal))
        return dx, here.space.multipliers(target - slope - apply(curvature.hessian, dx))


def _is_local(problem: Problem, x: State) -> Flag:
    """Whether a correction is short, or at least shorter than going back to the anchor: the same branch, that is."""
    if problem.anchor is None:
        return jnp.array(True)
    move = jnp.linalg.norm(x - problem.target)
    return (move <= 0.05 * jnp.linalg.norm(x)) | (move <= jnp.linalg.norm(problem.anchor - problem.target))


def _report(
    problem: Problem, start: Point, x: State, here: Point, steps: Count, solved: Flag, definite: Flag
) -> Correction:
    """The nearest point, or the unprojected state with the reason."""
    result = RESULTS.where(here.acceptable & ~definite, RESULTS.second_order, RESULTS.not_converged)
    result = RESULTS.where(here.space.singular, RESULTS.singular, result)
    result = RESULTS.where(jnp.all(jnp.isfinite(start.g)), result, RESULTS.outside_domain)
    result = RESULTS.where(jnp.all(jnp.isfinite(problem.target)), result, RESULTS.nonfinite)
    result = RESULTS.where(solved, RESULTS.successful, result)
    return Correction(
        x=jnp.where(solved, x, problem.target),
        multiplier=jnp.where(solved, here.space.multipliers(problem.target - x), 0),
        violation=jnp.abs(jnp.where(solved, here.g, start.g)),
        steps=steps,
        result=result,
    )
