"""The adaptive projection: fast steps, and the robust iteration only where curvature or what is left asks for it.

    fast       x = x~ - G~'(G~G~')^-1 (g(x~) - level),  then again with the same factors (and again, while g falls)
    accepted   where g(x) = level to rounding,  eta = ||sum_i lambda_i d2g_i|| <= threshold,  and x is close to x~
    robust     elsewhere: the nearest point, from x~, by `Newton`

Use it where most steps are short and some are not: on the manifold to the limit of the dtype like `Newton`, at about
the cost of `Tangent`. An accepted point lies along the normals of x~ rather than those of the nearest point, from which
it differs by about eta ||x - x~||: the threshold bounds that. Each step of each trajectory decides for itself; under
`jax.vmap` the robust iteration runs in those steps alone in which at least one trajectory needs it.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._types import Flag, Jacobian, Level, Parameters, Scalar, State
from twinfold.choose import choose
from twinfold.constraint.base import AbstractConstraint, residual_and_jacobian
from twinfold.field.learned import Frozen
from twinfold.linalg import RowSpace, apply_transposed, factorise, solve_lower, solve_lower_transposed
from twinfold.project.base import AbstractProjection, Correction, Derivative, Problem, in_metric, metric_root
from twinfold.project.derivative import implicit
from twinfold.project.newton import Newton
from twinfold.project.tangent import Tangent
from twinfold.result import RESULTS

FROZEN = 16  # steps with the first factors at most: more than this many, in a report, means that it went robust
ALWAYS = 2  # of these, taken in any case: enough for a field that is known
MORE = 2  # of these, at once where two are not enough: each costs less than to ask whether it is needed
SHORT = 0.05  # a correction longer than this part of the state is left to the robust iteration
ROUNDING = 16  # of a value of g, in units of the dtype's, when it is as small as it gets


class Adaptive(AbstractProjection):
    """A short way to the manifold where it is nearly flat, the nearest point where it is not.

    **Arguments:** `threshold`: the curvature eta up to which the short way is taken, from 0 (never) to below 1 (beyond
    which the nearest point need not be unique); `derivative`: `"implicit"`, exact for the way that was taken, or
    `"tangent"`, curvature neglected; `metric`: weights of the states (a vector, or a matrix W).

    `Correction.steps` above `FROZEN` are those of the robust iteration.
    """

    threshold: float = eqx.field(static=True)
    derivative: Derivative = eqx.field(static=True)
    root: Frozen | None

    def __init__(
        self,
        *,
        threshold: float = 0.1,
        derivative: Derivative = "implicit",
        metric: ArrayLike | Sequence | None = None,
    ):
        if not 0 <= threshold < 1:
            raise ValueError(f"Adaptive(threshold={threshold}): give a curvature from 0 (always robust) to below 1.")
        if derivative not in ("implicit", "tangent"):
            raise ValueError(
                f'Adaptive(derivative={derivative!r}): give "implicit" or "tangent" (a loop whose length depends on '
                "the state cannot be differentiated in reverse)."
            )
        self.threshold = threshold
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
        return in_metric(self._nearby, self.root, Problem(constraint, t, x, p, level, anchor))

    def _nearby(self, problem: Problem) -> Correction:
        return implicit(problem, projection=self)

    def solve(self, problem: Problem) -> Correction:
        """The projection without derivatives."""
        target = problem.target
        g, jacobian = residual_and_jacobian(problem.constraint, problem.t, target, problem.p, problem.level)
        # Whatever is not finite here stays so, and is not accepted.
        normals = Normals(jacobian, factorise(jacobian))
        x, multiplier = target, jnp.zeros_like(g)
        for _ in range(ALWAYS):
            x, multiplier, g = normals.step(problem, multiplier, g)
        enough = normals.rounding(problem, x)
        flat = curvature(problem, target, multiplier) <= self.threshold
        fit = flat & ~normals.space.singular & (jnp.sum((target - x) ** 2) <= SHORT**2 * jnp.sum(x**2))

        def reached(x: State, multiplier: Level, g: Level, steps: int) -> tuple[Correction, Flag]:
            out = Correction(x, multiplier, g, jnp.array(steps), RESULTS.successful)
            return out, fit & jnp.all(jnp.abs(g) <= enough)

        def more(out: Correction) -> tuple[Correction, Flag]:
            x, multiplier, g = out.x, out.multiplier, out.violation
            for _ in range(MORE):
                x, multiplier, g = normals.step(problem, multiplier, g)
            # A loop of steps is entered by those alone that need it: what a step costs is decided by its loops.
            return _unless_done(reached(x, multiplier, g, ALWAYS + MORE), go_on)

        def go_on(out: Correction) -> tuple[Correction, Flag]:
            out = _frozen(problem, normals, out, enough, fit)
            return _robust(problem, out, fit & jnp.all(jnp.abs(out.violation) <= enough)), jnp.array(True)

        out, _ = _unless_done(reached(x, multiplier, g, ALWAYS), more)
        return eqx.tree_at(lambda out: out.violation, out, jnp.abs(out.violation))

    def sensitivity(self, problem: Problem, out: Correction, tangent: Problem) -> tuple[State, Level]:
        """(dx, dmultiplier) for a change of the inputs, from the equations of the way that was taken."""
        nearest = Newton(derivative=self.derivative).sensitivity(problem, out, tangent)
        if self.derivative == "tangent":
            return nearest
        robust = out.steps > FROZEN
        # The predictor of a robust step may lie where g is not defined, which the other formula must not see.
        seen = eqx.tree_at(lambda problem: problem.target, problem, jnp.where(robust, out.x, problem.target))
        frozen = Tangent(max_steps=FROZEN, derivative="implicit").sensitivity(seen, out, tangent)
        return choose(robust, nearest, frozen)


class Normals(eqx.Module):
    """G~ and its factors, which all steps of the short way share."""

    # Given to a loop by itself, G~ is computed once; else XLA would evaluate it anew wherever it is used.
    jacobian: Jacobian
    space: RowSpace

    def step(self, problem: Problem, multiplier: Level, g: Level) -> tuple[State, Level, Level]:
        """x = x~ - G~' mu with the multiplier that removes `g` to first order; x, that multiplier, and g there."""
        lower = self.space.lower
        multiplier = multiplier + solve_lower_transposed(lower, solve_lower(lower, g))
        x = self.moved(problem, multiplier)
        return x, multiplier, problem.residual(x)

    def moved(self, problem: Problem, multiplier: Level) -> State:
        """x~ - G~' mu."""
        return problem.target - apply_transposed(self.jacobian, multiplier)

    def rounding(self, problem: Problem, x: State) -> Level:
        """|g_i| that is left to rounding."""
        lengths = jnp.sqrt(jnp.sum(self.space.lower**2, axis=1) * jnp.sum(x**2))
        return ROUNDING * jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(problem.level), lengths)


def _unless_done(
    state: tuple[Correction, Flag], go_on: Callable[[Correction], tuple[Correction, Flag]]
) -> tuple[Correction, Flag]:
    """`go_on` where the flag is not set. Not `cond`, of which vmap runs both sides: a loop that no trajectory enters
    costs next to nothing."""
    return jax.lax.while_loop(lambda state: ~state[1], lambda state: go_on(state[0]), state)


def _frozen(problem: Problem, normals: Normals, out: Correction, enough: Level, fit: Flag) -> Correction:
    """Further steps with the first factors, as long as each at least halves what is left of g."""

    def step(state: tuple) -> tuple:
        multiplier, g, steps, _ = state
        _, multiplier, after = normals.step(problem, multiplier, g)
        before, left = jnp.max(jnp.abs(g) / enough), jnp.max(jnp.abs(after) / enough)
        return multiplier, after, steps + 1, (left > 1) & (left < 0.5 * before) & (steps + 1 < FROZEN)

    # Of what changes, no more than is needed: under vmap each of it is selected in each step.
    state = (out.multiplier, out.violation, out.steps, fit)
    multiplier, g, steps, _ = jax.lax.while_loop(lambda state: state[3], step, state)
    return Correction(normals.moved(problem, multiplier), multiplier, g, steps, out.result, out.redundant)


def _robust(problem: Problem, out: Correction, solved: Flag) -> Correction:
    """The nearest point, unless `solved`."""

    def nearest(state: tuple[State, Correction, Flag]) -> tuple[State, Correction, Flag]:
        # The predictor is read from what the loop changes: all that depends on nothing else is lifted out of it.
        problem_here = eqx.tree_at(lambda problem: problem.target, problem, state[0])
        found = Newton().solve(problem_here)
        found = eqx.tree_at(lambda found: found.steps, found, found.steps + FROZEN)
        return found.x, found, jnp.array(True)

    start = jnp.where(solved, out.x, problem.target)
    return jax.lax.while_loop(lambda state: ~state[2], nearest, (start, out, solved))[1]


def curvature(problem: Problem, x: State, multiplier: Level) -> Float[Array, ""]:
    """||sum_i lambda_i d2g_i|| (Frobenius, which is at least the paper's eta), estimated.

    From one direction of no special meaning: right on average over directions. All of them would cost a step or two.
    """
    size = x.shape[0]
    way = np.cos(1.0 + np.arange(size))
    way = np.sqrt(size) * way / np.linalg.norm(way)

    def normal(x: State) -> State:
        return jax.vjp(problem.residual, x)[1](multiplier)[0]

    _, turned = jax.jvp(normal, (x,), (jnp.asarray(way, x.dtype),))
    return jnp.sqrt(jnp.sum(turned**2))
