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
from twinfold.linalg import SMALL, apply
from twinfold.project.base import (
    AbstractProjection,
    Correction,
    Derivative,
    Problem,
    check_derivative,
    in_metric,
    metric_root,
)
from twinfold.project.bounds import Bounded, has_bounds
from twinfold.project.derivative import implicit, input_tangents
from twinfold.project.iterate import (
    ON_MANIFOLD,
    attempt,
    descent_step,
    differentiable_step,
    newton_step,
    plain_step,
)
from twinfold.project.kkt import Point, lagrangian_curvature, point, reduced_hessian, sqp_direction
from twinfold.project.redundant import Seen, beside, may_be_redundant, regular
from twinfold.result import RESULTS

USUAL = 4  # plain steps that most predictors of a batch need


class Newton(AbstractProjection):
    """min ||x - x~||_W subject to g(t, x, p) = level, solved to a tolerance that follows the dtype.

    **Arguments:** `derivative`: `"implicit"` (exact), `"tangent"` (curvature neglected) or `"loop"` (through
    exactly `max_steps` iterations); `metric`: weights of the states (a vector, or a matrix W), the identity when
    left out; `max_steps` per attempt; `tolerance`, relative, 4 rounding errors when left out.

    `Bounds` beside the equations are obeyed too, with the derivative on the active ones (`project/bounds.py`);
    constraints that depend on others are met with them, and counted in the report.
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
        return in_metric(self._nearest, self.root, Problem(constraint, t, x, p, level, anchor), bounds=True)

    def _nearest(self, problem: Problem) -> Correction:
        if self.derivative == "loop":
            if has_bounds(problem):
                raise ValueError('Newton(derivative="loop"): with Bounds use "implicit" or "tangent".')
            return contained((problem,), fn=self._unrolled)
        return implicit(problem, projection=Bounded(self) if has_bounds(problem) else self)

    def _tolerance(self, x: State) -> float:
        return float(4 * jnp.finfo(x.dtype).eps) if self.tolerance is None else self.tolerance

    def solve(self, problem: Problem) -> Correction:
        """The projection without derivatives."""
        tolerance = self._tolerance(problem.target)
        start = point(problem, problem.target, tolerance)
        x, here, steps, around = self._near(problem, start, tolerance)
        # Small curvature is sufficient for a minimum; otherwise the second-order condition is checked in full.
        flat = jnp.linalg.norm(lagrangian_curvature(problem, x, here)) < 1
        solved = here.acceptable & flat & _is_local(problem, x)
        seen = Seen(jnp.maximum(around, start.space.rank), jnp.zeros_like(problem.level))
        if problem.anchor is not None:
            # From the anchor it starts over: gradients at a predictor far off (ln near 0) are of another size.
            seen = Seen(seen.rank, jnp.where(solved, seen.lengths, 0))
        x, here, steps, seen, solved, definite = self._far(problem, x, here, steps, seen, solved, tolerance)
        same = seen.same(here.space) & (may_be_redundant(problem) | ~here.space.singular)
        return _report(problem, start, x, here, steps, same, solved, definite)

    def _near(self, problem: Problem, start: Point, tolerance: float) -> tuple[State, Point, Count, Count]:
        """Plain steps from the predictor: at least one, and as long as each brings it much closer.

        The last number is the rank of G near by. Where that at the solution is not full, one more evaluation tells.
        """

        def closer(state: tuple) -> Flag:
            _, here, steps, _, taken = state
            return (steps == 0) | (~here.converged & taken & (steps < self.max_steps))

        def step(state: tuple) -> tuple:
            x, here, steps, around, _ = state
            x, here, taken = plain_step(problem, x, here, tolerance)
            return x, here, steps + 1, around, taken

        def in_question(state: tuple) -> Flag:
            _, here, _, around, _ = state
            return here.converged & here.space.singular & (around < 0)

        def step_or_look(state: tuple) -> tuple:
            x, here, steps, around, _ = state
            look = in_question(state)
            x1 = jnp.where(look, beside(x), x + sqp_direction(problem, x, here))
            x2, best, taken, there = attempt(problem, x, here, x1, tolerance)
            around = jnp.where(look, there.space.rank, around)
            return jnp.where(look, x, x2), choose(look, here, best), steps + ~look, around, taken

        # A loop of known length first: on an accelerator each look at a condition costs more than a step.
        state = (problem.target, start, jnp.array(0), jnp.array(-1), jnp.array(True))
        state = jax.lax.fori_loop(0, USUAL, lambda _, state: choose(closer(state), step(state), state), state)
        if not may_be_redundant(problem):
            return jax.lax.while_loop(closer, step, state)[:4]
        return jax.lax.while_loop(lambda state: closer(state) | in_question(state), step_or_look, state)[:4]

    def _far(
        self, problem: Problem, x: State, here: Point, steps: Count, seen: Seen, solved: Flag, tolerance: float
    ) -> tuple[State, Point, Count, Seen, Flag, Flag]:
        """Guarded steps, from the anchor along the manifold, or else from where the plain steps ended."""
        advance = newton_step if problem.anchor is None else descent_step
        start = x if problem.anchor is None else jnp.where(solved, x, problem.anchor)

        def unfinished(state: tuple) -> Flag:
            _, _, _, _, solved, _, left = state
            return ~solved & (left > 0)

        def step(state: tuple) -> tuple:
            x, _, steps, seen, _, _, left = state
            here = point(problem, x, tolerance)
            curvature = reduced_hessian(problem, x, here)
            x1, _, taken = advance(problem, x, here, curvature, tolerance)
            # It ends at a solution, where no step helps (at a saddle, say), or when it takes too long.
            solved = here.acceptable & curvature.definite & (here.converged | ~taken | (left == 1))
            left = jnp.where(taken, left - 1, 0)
            seen = seen.and_of(here.space, here.infeasible <= ON_MANIFOLD)
            return jnp.where(solved, x, x1), here, steps + 1, seen, solved, curvature.definite, left

        state = (start, here, steps, seen, solved, jnp.array(True), jnp.array(self.max_steps))
        return jax.lax.while_loop(unfinished, step, state)[:6]

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
        solved = here.acceptable & definite
        if here.g.shape[0] > SMALL:  # what is dropped there is dropped without derivatives
            solved = solved & ~here.space.singular
        same = regular(problem, x, here.space)
        return _report(problem, start, x, here, steps, same, solved, definite)

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
    problem: Problem, start: Point, x: State, here: Point, steps: Count, same: Flag, solved: Flag, definite: Flag
) -> Correction:
    """The nearest point, or the unprojected state with the reason; `same`: the rank there is that around it."""
    solved = solved & same
    # Constraints that depend on each other are not the reason where they are met, and do so all around.
    lost = jnp.where(here.acceptable, ~same, here.space.singular)
    result = RESULTS.where(here.acceptable & ~definite, RESULTS.second_order, RESULTS.not_converged)
    result = RESULTS.where(lost, RESULTS.singular, result)
    result = RESULTS.where(start.finite, result, RESULTS.not_differentiable)
    result = RESULTS.where(jnp.all(jnp.isfinite(start.g)), result, RESULTS.outside_domain)
    result = RESULTS.where(jnp.all(jnp.isfinite(problem.target)), result, RESULTS.nonfinite)
    result = RESULTS.where(solved, RESULTS.successful, result)
    return Correction(
        x=jnp.where(solved, x, problem.target),
        multiplier=jnp.where(solved, here.space.multipliers(problem.target - x), 0),
        violation=jnp.abs(jnp.where(solved, here.g, start.g)),
        steps=steps,
        result=result,
        redundant=jnp.where(here.finite, here.g.shape[0] - here.space.rank, 0),
    )
