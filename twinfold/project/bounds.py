"""Bounds beside the equations: which of them are active, and the projection with these as equations.

    min 1/2 ||x - x~||^2   subject to   g(x) = level,   lower <= c(x) <= upper

Linearised at a state this is a small convex quadratic program, solved by the dual active-set method of Goldfarb and
Idnani (1983): from the solution without bounds, the most violated one is added at a time, and one whose multiplier
would change its sign is given up. The bounds that are active there become equations of the projection proper, which
holds them to its own tolerance; the program is then linearised again, until what is found obeys all bounds with
multipliers of the right sign. Its derivative is that of the projection onto the active ones.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from twinfold._types import Flag, Jacobian, Level, Parameters, Scalar, State
from twinfold.constraint.base import (
    AbstractConstraint,
    has_inequalities,
    inequality_rows,
    sides,
    value_and_jacobian,
)
from twinfold.linalg import apply, apply_transposed, dependent_below, factorise
from twinfold.project.base import Correction, InMetric, Problem, as_data
from twinfold.project.derivative import Solvable
from twinfold.result import RESULTS

ROUNDS = 8  # active sets that are tried
LOOSE = 16  # roundings by which a bound or the sign of a multiplier may be missed


class Active(AbstractConstraint):
    """Bounds as equations where `side` is 1 (upper) or -1 (lower), switched off where it is 0; equations have 1."""

    constraint: AbstractConstraint
    side: Level | None  # None in place of its tangent

    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        below, above = sides(self.constraint, t, x, p, level)
        side = 0 if self.side is None else self.side
        return jnp.where(side > 0, above, jnp.where(side < 0, below, 0))

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        return self.constraint.level(t, x0, p)


def has_bounds(problem: Problem) -> bool:
    """Whether bounds are asked for and not yet decided on."""
    return not problem.switched and has_inequalities(problem.constraint)


def on_active(problem: Problem, side: Level) -> Problem:
    """The problem with the bounds that are active as equations."""
    constraint = _with_side(problem.constraint, side)
    return Problem(constraint, problem.t, problem.target, problem.p, problem.level, problem.anchor, switched=True)


def _with_side(constraint: AbstractConstraint, side: Level | None) -> AbstractConstraint:
    if isinstance(constraint, InMetric):
        return eqx.tree_at(lambda outer: outer.constraint, constraint, Active(constraint.constraint, side))
    return Active(constraint, side)


def _state_constraint(problem: Problem, x: State) -> tuple[AbstractConstraint, State]:
    """What the user gave, and where it is evaluated."""
    inner = problem.constraint
    return (inner.constraint, inner.to_state(x)) if isinstance(inner, InMetric) else (inner, x)


def _sides(problem: Problem, x: State) -> tuple[Level, Level]:
    constraint, at = _state_constraint(problem, x)
    return sides(constraint, problem.t, at, problem.p, problem.level)


def bound_rows(problem: Problem) -> Bool[Array, " m"]:
    """The rows that are bounds."""
    constraint, at = _state_constraint(problem, problem.target)
    return jnp.array(inequality_rows(constraint, problem.t, at, problem.p))


class Linearised(eqx.Module):
    """min 1/2 ||x - target||^2 subject to the rows at x, to first order."""

    jacobian: Jacobian
    below: Level
    above: Level
    bound: Bool[Array, " m"]
    x: State
    target: State

    @property
    def allowed(self) -> Level:
        """What rounding leaves of a bound."""
        size = jnp.maximum(jnp.linalg.norm(self.x), jnp.linalg.norm(self.target))
        return LOOSE * jnp.finfo(self.x.dtype).eps * jnp.linalg.norm(self.jacobian, axis=1) * size

    def active(self) -> Level:
        """The sides of the bounds that are active at its solution (as far as found, where it has none)."""
        rows, bound = self.jacobian, self.bound
        off = jnp.where(bound, 0, jnp.ones_like(self.below))
        space = factorise(rows * jnp.abs(off)[:, None])
        residual = jnp.where(bound, 0, self.below + apply(rows, self.target - self.x))
        start = self.target - space.min_norm(residual)
        state = (start, space.multipliers(self.target - start), off, jnp.zeros_like(off), jnp.array(True), 0)
        most = 4 * bound.shape[0] + 4
        return jax.lax.while_loop(
            lambda state: state[4] & (state[5] < most), lambda state: self._exchange(state), state
        )[2]

    def _exchange(self, state: tuple) -> tuple:
        """Add the most violated bound (`asked` marks it, with its side, until it is in), or drop one in its way."""
        x, multiplier, side, asked, _, count = state
        rows = self.jacobian
        moved = apply(rows, x - self.x)
        below, above = self.below + moved, self.above + moved
        lengths = jnp.maximum(jnp.linalg.norm(rows, axis=1), jnp.finfo(x.dtype).tiny)
        outside = jnp.where(self.bound & (side == 0), jnp.maximum(above, -below) - self.allowed, -jnp.inf)
        worst = jnp.arange(side.shape[0]) == jnp.argmax(outside / lengths)
        waiting = jnp.any(asked != 0)
        asked = jnp.where(waiting, asked, jnp.where(worst & (outside > 0), jnp.where(above > -below, 1, -1), 0))
        excess = jnp.sum(jnp.where(asked > 0, above, jnp.where(asked < 0, -below, 0)))
        normal = apply_transposed(rows, asked)
        space = factorise(rows * jnp.abs(side)[:, None])
        way, change = space.tangent(normal), space.multipliers(normal)
        square = jnp.sum(way**2)
        free = square > dependent_below(x.shape[0], x.dtype) ** 2 * jnp.sum(normal**2)
        # How far until the bound is met, and how far until a multiplier of an active one changes its sign.
        full = jnp.where(free, excess / jnp.where(free, square, 1), jnp.inf)
        falling = self.bound & (side * change > 0)
        until = jnp.where(falling, multiplier / jnp.where(falling, change, 1), jnp.inf)
        length = jnp.minimum(full, jnp.min(until))
        # Nothing is violated any more, or nothing gives way: the bounds contradict each other.
        go = jnp.any(asked != 0) & jnp.isfinite(length)
        length = jnp.where(go, length, 0)
        met = full <= jnp.min(until)
        dropped = ~met & (jnp.arange(side.shape[0]) == jnp.argmin(until))
        multiplier = jnp.where(dropped, 0, multiplier + length * (asked - change))
        side = jnp.where(go, jnp.where(met, side + asked, jnp.where(dropped, 0, side)), side)
        x = x - jnp.where(free, length, 0) * way
        return x, multiplier, side, jnp.where(met, 0, asked), go, count + 1


def linearised(problem: Problem, x: State) -> Linearised:
    """The quadratic program at `x`; where something is not finite there, one without bounds."""
    below, jacobian = value_and_jacobian(lambda x: _sides(problem, x)[0], x)
    above = _sides(problem, x)[1]
    known = jnp.all(jnp.isfinite(jacobian)) & ~jnp.any(jnp.isnan(below) | jnp.isnan(above))
    bound = bound_rows(problem) & known
    jacobian = jnp.where(known, jacobian, 0)
    return Linearised(jacobian, jnp.where(known, below, 0), jnp.where(known, above, 0), bound, x, problem.target)


def one_active_set(problem: Problem) -> Problem:
    """The problem with the bounds as equations that are active when it is linearised at its target."""
    return on_active(problem, linearised(as_data(problem), as_data(problem.target)).active())


def with_bounds(problem: Problem, out: Correction, kept: Flag) -> Correction:
    """The report on the equations as one on all: distances outside the bounds; unprojected where not `kept`."""
    x = jnp.where(kept, out.x, problem.target)
    solved = out.result == RESULTS.successful
    return Correction(
        x=x,
        multiplier=jnp.where(kept, out.multiplier, 0),
        violation=jnp.abs(problem.residual(x)),
        steps=out.steps,
        result=RESULTS.where(solved & ~kept, RESULTS.not_converged, out.result),
        redundant=jnp.maximum(out.redundant - jnp.sum(bound_rows(problem) & (out.multiplier == 0)), 0),
    )


class Bounded(eqx.Module):
    """A projection onto equations as one with bounds, `Solvable` like the former."""

    projection: Solvable

    def solve(self, problem: Problem) -> Correction:
        """Active sets in turn, each solved to the tolerance, until one obeys all bounds."""

        def attempt(state: tuple) -> tuple:
            x, _, _, left = state
            program = linearised(problem, x)
            side = program.active()
            out = self.projection.solve(on_active(problem, side))
            good = _obeys(problem, out, side)
            failed = out.result != RESULTS.successful
            return out.x, out, good, jnp.where(good | failed, 0, left - 1)

        zero = jnp.zeros_like(problem.level)
        nothing = Correction(problem.target, zero, zero, jnp.array(0), RESULTS.not_converged)
        state = (problem.target, nothing, jnp.array(False), jnp.array(ROUNDS))
        _, out, good, _ = jax.lax.while_loop(lambda state: state[3] > 0, attempt, state)
        return with_bounds(problem, out, good)

    def sensitivity(self, problem: Problem, out: Correction, tangent: Problem) -> tuple[State, Level]:
        """That of the equations and the active bounds; a bound that is met with a multiplier of zero is not active."""
        below, above = _sides(problem, out.x)
        held = jnp.where(jnp.abs(above) <= jnp.abs(below), 1, -1)
        side = jnp.where(bound_rows(problem), jnp.where(out.multiplier == 0, 0, held), 1).astype(out.x.dtype)
        inner = on_active(problem, side)
        # Its tangent: the same, with None where nothing changes.
        change = eqx.tree_at(
            lambda problem: (problem.constraint, problem.t, problem.target, problem.p, problem.level, problem.anchor),
            inner,
            (_with_side(tangent.constraint, None), tangent.t, tangent.target, tangent.p, tangent.level, tangent.anchor),
            is_leaf=lambda node: node is None,
        )
        return self.projection.sensitivity(inner, out, change)


def _obeys(problem: Problem, out: Correction, side: Level) -> Flag:
    """Whether a solution for one active set is one of the whole: inside all bounds, and pushed by none of them."""
    program = linearised(problem, out.x)
    outside = jnp.maximum(program.above, -program.below)
    # Those that are active are held by the projection, to its own tolerance.
    inside = jnp.all(~program.bound | (side != 0) | (outside <= 2 * program.allowed))
    gap = jnp.linalg.norm(problem.target - out.x) + jnp.linalg.norm(out.x)
    wrong = -side * out.multiplier * jnp.linalg.norm(program.jacobian, axis=1)
    pulls = program.bound & (wrong > LOOSE * jnp.finfo(out.x.dtype).eps * gap)
    return inside & ~jnp.any(pulls) & (out.result == RESULTS.successful)
