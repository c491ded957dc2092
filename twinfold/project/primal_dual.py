"""Nearest point under many constraints: Newton's method on the KKT system, guarded by a line search.

    x - x~ + G(x)' lambda = 0,    g(x) = level                                             (the paper's Eq. 5)

The linear systems are solved by a method that is passed in (`krylov.py`, `sparse.py`), so that nothing here is dense.
State and multipliers move together; the first step, with lambda = 0, is the one with unit Hessian.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._types import Count, Flag, Level, State
from twinfold.choose import choose
from twinfold.project.base import Correction, Derivative, Problem
from twinfold.project.derivative import input_tangents
from twinfold.project.saddle import AbstractMethod, AbstractSystem, probe
from twinfold.result import RESULTS

# A step length below which the line search gives up.
SHORTEST = 1e-6


class Residual(eqx.Module):
    """How far (x, lambda) is from a solution."""

    g: Level
    gap: State  # x~ - x - G' lambda
    error: Float[Array, ""]  # distance from a solution, to first order
    infeasible: Float[Array, ""]  # violation, over the tolerated one
    drifted: Float[Array, ""]  # distance from stationarity, over the tolerated one

    @property
    def converged(self) -> Flag:
        return (self.infeasible <= 1) & (self.drifted <= 1)

    @property
    def acceptable(self) -> Flag:
        """As near as rounding lets it come."""
        return (self.infeasible <= 4) & (self.drifted <= 64)


class Scales(eqx.Module):
    """What the residuals are measured in: ||dg_i/dx||, and a size of H."""

    lengths: Level
    stiffness: Float[Array, ""]


def scales(system: AbstractSystem, like: State) -> Scales:
    """The scales at a point; the size of H is seen in what it does to a vector without structure."""
    signs = jnp.where(probe(like.shape[0], like.dtype) > 0, 1, -1).astype(like.dtype)
    return Scales(system.lengths, jnp.maximum(1, jnp.max(jnp.abs(system.linear.bend(signs)))))


def residual(problem: Problem, x: State, multiplier: Level, scales: Scales, tolerance: float) -> Residual:
    """The KKT residual, in units of what rounding in x does to it.

    Largest entries throughout: the norm of a state grows with the number of its parts, and what one constraint can
    resolve does not.
    """
    lengths = scales.lengths
    g, pull = jax.vjp(problem.residual, x)
    normal = pull(multiplier)[0]
    gap = problem.target - x - normal
    size, tiny = jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny
    infeasible = jnp.max(jnp.abs(g) / (jnp.maximum(jnp.abs(problem.level), lengths * size) + tiny))
    drift = jnp.max(jnp.abs(gap))
    # Rounding enters G' lambda through x, and through terms that cancel.
    reach = 4 * (size * scales.stiffness + jnp.max(lengths * jnp.abs(multiplier))) + tiny
    error = jnp.maximum(drift, jnp.max(jnp.abs(g) / lengths))
    finite = jnp.isfinite(error)
    return Residual(
        g=g,
        gap=gap,
        error=jnp.where(finite, error, jnp.inf),
        infeasible=jnp.where(finite, infeasible / tolerance, jnp.inf),
        drifted=jnp.where(finite, drift / reach / tolerance, jnp.inf),
    )


class PrimalDual(eqx.Module):
    """The projection with its derivative, for any method of solving the linear systems."""

    method: AbstractMethod
    derivative: Derivative = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    tolerance: float | None = eqx.field(static=True)

    def solve(self, problem: Problem) -> Correction:
        """The projection without derivatives."""
        target = problem.target
        tolerance = float(4 * jnp.finfo(target.dtype).eps) if self.tolerance is None else self.tolerance
        nothing = jnp.zeros_like(problem.level)
        first, pull = jax.vjp(problem.residual, target)
        smooth = jnp.all(jnp.isfinite(pull(jnp.ones_like(first))[0]))
        unknown = Residual(first, jnp.zeros_like(target), *3 * (jnp.full((), jnp.inf, target.dtype),))

        def unfinished(state: tuple) -> Flag:
            _, _, here, steps, moving, _ = state
            return (steps == 0) | (~here.converged & moving & (steps < self.max_steps))

        def step(state: tuple) -> tuple:
            x, multiplier, _, steps, _, starts = state
            system = self.method.at(problem, x, multiplier)
            here = residual(problem, x, multiplier, scales(system, x), tolerance)
            x, multiplier, there, moving = _advance(problem, x, multiplier, system, here, tolerance)
            # Where rounding rules, the error goes up and down and never reaches the tolerance.
            moving = moving & ~(here.acceptable & (there.error > 0.5 * here.error))
            here = there
            if problem.anchor is not None:
                # Lost: once more, from the last state on the manifold.
                again = ~moving & ~here.acceptable & (starts > 0)
                x, multiplier = jnp.where(again, problem.anchor, x), jnp.where(again, 0, multiplier)
                moving, starts = moving | again, jnp.where(again, 0, starts)
            return x, multiplier, here, steps + 1, moving, starts

        state = (target, nothing, unknown, jnp.array(0), jnp.array(True), jnp.array(1))
        x, multiplier, here, steps, _, _ = jax.lax.while_loop(unfinished, step, state)
        found = jnp.isfinite(here.error)
        system = self.method.at(problem, jnp.where(found, x, target), jnp.where(found, multiplier, 0))
        definite = system.definite()
        return _report(problem, system, (first, smooth), x, multiplier, here, steps, definite)

    def sensitivity(self, problem: Problem, out: Correction, tangent: Problem) -> tuple[State, Level]:
        """(dx, dlambda) for a change of the inputs: [H G'; G 0] [dx; dlambda] = [dx~ - d(G'lambda); -dg]."""
        system = self.method.at(problem, out.x, out.multiplier)
        target, slope, change = input_tangents(problem, out.x, out.multiplier, tangent)
        unit = self.derivative == "tangent"

        n = target.shape[0]
        failed = out.result != RESULTS.successful

        def product(vector: Float[Array, " both"]) -> Float[Array, " both"]:
            d, mu = vector[:n], vector[n:]
            bent = d if unit else system.linear.bend(d)
            return jnp.concatenate([bent + system.linear.pull(mu), system.linear.push(d)])

        def solve(_, right: Float[Array, " both"]) -> Float[Array, " both"]:
            v, b = right[:n], right[n:]
            d, mu = system.split(v, b) if unit else system.saddle(v, b, exact=True)[:2]
            # Nothing is asked of a failed projection; its matrices may be anything, and the answer has to be finite.
            return jnp.where(failed, right, jnp.concatenate([d, mu]))

        # The system is symmetric: reverse mode is the same solve, with a cotangent on the right.
        right = jnp.concatenate([target if unit else target - slope, -change])
        both = jax.lax.custom_linear_solve(product, right, solve, symmetric=True)
        return both[:n], both[n:]


def _advance(
    problem: Problem, x: State, multiplier: Level, system: AbstractSystem, here: Residual, tolerance: float
) -> tuple[State, Level, Residual, Flag]:
    """A Newton step, shortened until the merit or the KKT error falls and g is defined."""
    dx, dmu, _ = system.saddle(here.gap, -here.g, exact=False)
    # l1 merit 1/2 |x - x~|^2 + nu sum |g_i| / |dg_i|, with a weight above the multipliers that the full step has.
    measure = scales(system, x)
    nu = 2 * jnp.max(jnp.abs(multiplier + dmu) * system.lengths) + jnp.max(jnp.abs(dx))

    def merit(x: State, g: Level) -> Float[Array, ""]:
        return 0.5 * jnp.sum((x - problem.target) ** 2) + nu * jnp.sum(jnp.abs(g) / system.lengths)

    before = merit(x, here.g)
    slope = jnp.sum((x - problem.target) * dx) - nu * jnp.sum(jnp.abs(here.g) / system.lengths)

    def shorter(trial: tuple) -> tuple:
        length = 0.5 * trial[0]
        x1, multiplier1 = x + length * dx, multiplier + length * dmu
        there = residual(problem, x1, multiplier1, measure, tolerance)
        falls = (slope < 0) & (merit(x1, there.g) <= before + 1e-4 * length * slope)
        good = jnp.isfinite(there.error) & (falls | (there.error <= 0.5 * here.error) | there.converged)
        return length, x1, multiplier1, there, good

    start = (jnp.full((), 2, x.dtype), x, multiplier, here, jnp.array(False))
    _, x1, multiplier1, there, good = jax.lax.while_loop(
        lambda trial: ~trial[4] & (trial[0] > SHORTEST), shorter, start
    )
    return jnp.where(good, x1, x), jnp.where(good, multiplier1, multiplier), choose(good, there, here), good


def _report(
    problem: Problem,
    system: AbstractSystem,
    start: tuple[Level, Flag],
    x: State,
    multiplier: Level,
    here: Residual,
    steps: Count,
    definite: Flag,
) -> Correction:
    """The nearest point, or the unprojected state with the reason; redundant constraints are met, not counted."""
    first, smooth = start
    solved = here.acceptable & definite & ~system.degenerate
    stuck = ~here.acceptable | system.degenerate
    singular = jax.lax.cond(stuck, lambda: system.degenerate | _grows(system, x.dtype), lambda: jnp.array(False))
    result = RESULTS.where(here.acceptable & ~definite, RESULTS.second_order, RESULTS.not_converged)
    result = RESULTS.where(singular, RESULTS.singular, result)
    result = RESULTS.where(smooth, result, RESULTS.not_differentiable)
    result = RESULTS.where(jnp.all(jnp.isfinite(first)), result, RESULTS.outside_domain)
    result = RESULTS.where(jnp.all(jnp.isfinite(problem.target)), result, RESULTS.nonfinite)
    result = RESULTS.where(solved, RESULTS.successful, result)
    return Correction(
        x=jnp.where(solved, x, problem.target),
        multiplier=jnp.where(solved, multiplier, 0),
        violation=jnp.abs(jnp.where(solved, here.g, first)),
        steps=steps,
        result=result,
    )


def _grows(system: AbstractSystem, dtype: jnp.dtype) -> Flag:
    """Whether (G G')^-1 makes a vector larger than rounding allows."""
    b = probe(system.lengths.shape[0], dtype)
    _, mu = system.split(jnp.zeros_like(system.linear.pull(b)), b * system.lengths)
    growth = jnp.linalg.norm(mu * system.lengths) / jnp.linalg.norm(b)
    return ~(growth < 1e-3 / jnp.finfo(dtype).eps)
