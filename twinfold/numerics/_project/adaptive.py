"""The adaptive projection: fast steps, and the robust iteration only where curvature or violation demand it.

    fast       x = x~ - G~'(G~G~')^-1 (g(x~) - level),  then again with the same factors (and again, while g falls)
    accepted   where g(x) = level to rounding,  eta = ||sum_i lambda_i d2g_i|| <= threshold,  and x is close to x~
    robust     elsewhere: the nearest point, from x~, by `Newton`

Use it where most steps are short and some are not: on the manifold to the limit of the dtype like `Newton`, at about
the cost of `Tangent`. An accepted point lies along the normals of x~ rather than those of the nearest point, from which
it differs by about eta ||x - x~||: the threshold bounds that. Each step of each trajectory decides for itself; under
`jax.vmap` the robust iteration runs only in those steps in which at least one trajectory needs it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import RESULTS, tree_where
from twinfold.numerics._constraint import residual_and_jacobian
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import iterate, run_if
from twinfold.numerics._linalg.dense import (
    RowSpace,
    apply_transposed,
    factorise,
)
from twinfold.numerics._project.base import (
    AbstractProjection,
    Derivative,
    Metric,
    ProjectionProblem,
    ProjectionResult,
    as_metric,
    check_settings,
)
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent
from twinfold.typing import ConstraintVector, Count, Flag, Jacobian, State

MAX_FROZEN_STEPS = 16  # with the first factors; more steps than this, in a result, mean that it went robust
FIRST_STEPS = 2  # of these, always taken: enough for a field that is known
MORE_STEPS = 2  # of these, taken at once where the first are not enough: each costs less than to ask for it
MAX_RELATIVE_MOVE = 0.05  # a correction longer than this part of the state is left to the robust iteration
ROUNDING = 16  # errors of g, in units of the dtype's eps, when it is as small as it gets


class Adaptive(AbstractProjection):
    """The fast projection where the manifold is nearly flat, the nearest point where it is not.

    **Arguments:** `threshold`: the curvature eta up to which the fast steps are accepted, from 0 (never) to below 1
    (beyond which the nearest point need not be unique); `derivative`: `"implicit"`, exact for the steps that were
    taken, or `"tangent"`, curvature neglected; `metric`: weights of the states (a vector, or a matrix W).

    `ProjectionResult.steps` above `MAX_FROZEN_STEPS` are those of the robust iteration.

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), constraint=energy, projection=tw.Adaptive())
    twin.simulate([1.0, 0.0], jnp.linspace(0, 10, 51)).trajectory.relative_violation.max()
    ```
    """

    threshold: float = eqx.field(static=True, default=0.1, kw_only=True)
    derivative: Derivative = eqx.field(static=True, default="implicit", kw_only=True)
    metric: Metric | None = eqx.field(converter=as_metric, default=None, kw_only=True)

    def __check_init__(self):
        if not 0 <= self.threshold < 1:
            raise ValueError(
                f"Adaptive(threshold={self.threshold}): give a curvature from 0 (always robust) to below 1."
            )
        # A loop whose length depends on the state cannot be differentiated in reverse.
        check_settings(self, ("implicit", "tangent"))

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        return implicit_solve(problem, solver=self)

    def solve(self, problem: ProjectionProblem) -> ProjectionResult:
        """The projection without derivatives."""
        target = problem.target
        g, jacobian = residual_and_jacobian(problem.constraint, problem.t, target, problem.p, problem.level)
        # Whatever is not finite here stays so, and is not accepted.
        normals = Normals(jacobian, factorise(jacobian))
        x, multiplier = target, jnp.zeros_like(g)
        for _ in range(FIRST_STEPS):
            x, multiplier, g = normals.step(problem, multiplier, g)
        enough = normals.rounding(problem, x)
        flat = curvature(problem, target, multiplier) <= self.threshold
        close = jnp.sum((target - x) ** 2) <= MAX_RELATIVE_MOVE**2 * jnp.sum(x**2)
        suitable = flat & ~normals.space.singular & close

        def reached(multiplier: ConstraintVector, g: ConstraintVector, x: State, steps: Count) -> _Reached:
            out = ProjectionResult(x, multiplier, g, steps, RESULTS.successful)
            return _Reached(out, suitable & jnp.all(jnp.abs(g) <= enough))

        def more_steps(here: _Reached) -> _Reached:
            x, multiplier, g = here.result.x, here.result.multiplier, here.result.violation
            for _ in range(MORE_STEPS):
                x, multiplier, g = normals.step(problem, multiplier, g)
            here = reached(multiplier, g, x, jnp.array(FIRST_STEPS + MORE_STEPS))
            return run_if(~here.accepted, frozen_then_robust, here)

        def frozen_then_robust(here: _Reached) -> _Reached:
            last = _frozen_steps(problem, normals, here.result, enough, suitable)
            here = reached(last.multiplier, last.g, normals.moved(problem, last.multiplier), last.steps)
            return _Reached(_robust_unless(here.accepted, problem, here.result), jnp.array(True))

        # What a step costs is decided by its loops: each is entered only by the lanes that need it.
        here = reached(multiplier, g, x, jnp.array(FIRST_STEPS))
        out = run_if(~here.accepted, more_steps, here).result
        return eqx.tree_at(lambda out: out.violation, out, jnp.abs(out.violation))

    def sensitivity(
        self, problem: ProjectionProblem, solution: ProjectionResult, tangent: ProjectionProblem
    ) -> ProjectionResult:
        """(dx, dmultiplier) for a change of the inputs, from the equations of the way that was taken."""
        nearest = Newton(derivative=self.derivative).sensitivity(problem, solution, tangent)
        if self.derivative == "tangent":
            return nearest
        robust = solution.steps > MAX_FROZEN_STEPS
        # The predictor of a robust step may lie where g is not defined, which the other formula must not see.
        seen = eqx.tree_at(lambda problem: problem.target, problem, jnp.where(robust, solution.x, problem.target))
        frozen = Tangent(max_steps=MAX_FROZEN_STEPS, derivative="implicit").sensitivity(seen, solution, tangent)
        return tree_where(robust, nearest, frozen)


class Normals(eqx.Module):
    """G~ and its factors, which all fast steps share."""

    # Given to a loop by itself, G~ is computed once; else XLA would evaluate it anew wherever it is used.
    jacobian: Jacobian
    space: RowSpace

    def step(
        self, problem: ProjectionProblem, multiplier: ConstraintVector, g: ConstraintVector
    ) -> tuple[State, ConstraintVector, ConstraintVector]:
        """x = x~ - G~' mu with the multiplier that removes `g` to first order; x, that multiplier, and g there."""
        multiplier = multiplier + self.space.solve_transposed(self.space.solve(g))
        x = self.moved(problem, multiplier)
        return x, multiplier, problem.residual(x)

    def moved(self, problem: ProjectionProblem, multiplier: ConstraintVector) -> State:
        """x~ - G~' mu."""
        return problem.target - apply_transposed(self.jacobian, multiplier)

    def rounding(self, problem: ProjectionProblem, x: State) -> ConstraintVector:
        """|g_i| that is left to rounding."""
        lengths = self.space.lengths * jnp.sqrt(jnp.sum(x**2))
        return ROUNDING * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(problem.level), lengths)


class _Reached(eqx.Module):
    """Where the steps so far have led (with g in place of its magnitude), and whether that is accepted."""

    result: ProjectionResult
    accepted: Flag


class _Frozen(eqx.Module):
    # No more than is needed: under vmap each leaf is selected in each step.
    multiplier: ConstraintVector
    g: ConstraintVector
    steps: Count
    falls: Flag


def _frozen_steps(
    problem: ProjectionProblem, normals: Normals, start: ProjectionResult, enough: ConstraintVector, suitable: Flag
) -> _Frozen:
    """Further steps with the first factors, as long as each at least halves the violation."""

    def step(carry: _Frozen) -> _Frozen:
        _, multiplier, g = normals.step(problem, carry.multiplier, carry.g)
        before, left = jnp.max(jnp.abs(carry.g) / enough), jnp.max(jnp.abs(g) / enough)
        falls = (left > 1) & (left < 0.5 * before) & (carry.steps + 1 < MAX_FROZEN_STEPS)
        return _Frozen(multiplier, g, carry.steps + 1, falls)

    first = _Frozen(start.multiplier, start.violation, start.steps, suitable)
    return iterate(first, step, lambda carry: carry.falls)


def _robust_unless(accepted: Flag, problem: ProjectionProblem, result: ProjectionResult) -> ProjectionResult:
    """The nearest point, unless the result is accepted."""

    def nearest(carry: tuple[State, ProjectionResult]) -> tuple[State, ProjectionResult]:
        found = Newton().solve(eqx.tree_at(lambda problem: problem.target, problem, carry[0]))
        found = eqx.tree_at(lambda found: found.steps, found, found.steps + MAX_FROZEN_STEPS)
        return found.x, found

    return run_if(~accepted, nearest, (jnp.where(accepted, result.x, problem.target), result))[1]


def curvature(problem: ProjectionProblem, x: State, multiplier: ConstraintVector) -> Float[Array, ""]:
    """||sum_i lambda_i d2g_i|| (Frobenius, which is at least the paper's eta), estimated.

    Along one fixed probe vector: right on average over directions. All of them would cost a step or two.
    """
    size = x.shape[0]
    direction = np.cos(1.0 + np.arange(size))
    direction = np.sqrt(size) * direction / np.linalg.norm(direction)

    def normal(x: State) -> State:
        return jax.vjp(problem.residual, x)[1](multiplier)[0]

    _, turned = jax.jvp(normal, (x,), (jnp.asarray(direction, x.dtype),))
    return jnp.sqrt(jnp.sum(turned**2))
