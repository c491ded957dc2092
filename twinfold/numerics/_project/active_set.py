"""The bounds that are active in a small convex quadratic program, by the dual method of Goldfarb and Idnani (1983).

    min 1/2 ||x - target||^2   subject to   linear equations   and   lower <= c x <= upper

From the solution without bounds, the most violated one is added at a time, and one whose multiplier would change its
sign is dropped.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool

from twinfold.numerics._iterate import iterate
from twinfold.numerics._linalg.dense import apply, apply_transposed, dependent_below, factorise
from twinfold.typing import ConstraintVector, Count, Flag, Jacobian, State

TOLERATED_ROUNDINGS = 16  # by which a bound or the sign of a multiplier may be missed


class LinearisedProgram(eqx.Module):
    """min 1/2 ||x - target||^2 subject to the rows at x, to first order."""

    jacobian: Jacobian
    below: ConstraintVector
    above: ConstraintVector
    bound: Bool[Array, " m"]
    x: State
    target: State

    @property
    def allowed(self) -> ConstraintVector:
        """The violation of a bound that is left to rounding."""
        size = jnp.maximum(jnp.linalg.norm(self.x), jnp.linalg.norm(self.target))
        return TOLERATED_ROUNDINGS * jnp.finfo(self.x.dtype).eps * jnp.linalg.norm(self.jacobian, axis=1) * size

    def active(self) -> ConstraintVector:
        """The sides of the bounds that are active at its solution (as far as found, where it has none)."""
        return _exchange(self).side


class _ActiveSet(eqx.Module):
    x: State
    multiplier: ConstraintVector
    side: ConstraintVector  # 1 or -1 for an active bound, 0 for one that is not; equations have 1
    asked: ConstraintVector  # marks the bound that is being added, with its side, until it is active
    changing: Flag
    steps: Count


def _exchange(program: LinearisedProgram) -> _ActiveSet:
    rows = program.jacobian

    def step(carry: _ActiveSet) -> _ActiveSet:
        """Add the most violated bound, or drop one in its way."""
        x, multiplier, side, asked = carry.x, carry.multiplier, carry.side, carry.asked
        moved = apply(rows, x - program.x)
        below, above = program.below + moved, program.above + moved
        lengths = jnp.maximum(jnp.linalg.norm(rows, axis=1), jnp.finfo(x.dtype).tiny)
        outside = jnp.where(program.bound & (side == 0), jnp.maximum(above, -below) - program.allowed, -jnp.inf)
        worst = jnp.arange(side.shape[0]) == jnp.argmax(outside / lengths)
        waiting = jnp.any(asked != 0)
        asked = jnp.where(waiting, asked, jnp.where(worst & (outside > 0), jnp.where(above > -below, 1, -1), 0))
        excess = jnp.sum(jnp.where(asked > 0, above, jnp.where(asked < 0, -below, 0)))
        normal = apply_transposed(rows, asked)
        space = factorise(rows * jnp.abs(side)[:, None])
        direction, change = space.tangent(normal), space.multipliers(normal)
        square = jnp.sum(direction**2)
        free = square > dependent_below(x.shape[0], x.dtype) ** 2 * jnp.sum(normal**2)
        # How far until the bound is met, and how far until a multiplier of an active one changes its sign.
        full = jnp.where(free, excess / jnp.where(free, square, 1), jnp.inf)
        falling = program.bound & (side * change > 0)
        until = jnp.where(falling, multiplier / jnp.where(falling, change, 1), jnp.inf)
        length = jnp.minimum(full, jnp.min(until))
        # Nothing is violated any more, or nothing gives way: the bounds contradict each other.
        go = jnp.any(asked != 0) & jnp.isfinite(length)
        length = jnp.where(go, length, 0)
        met = full <= jnp.min(until)
        dropped = ~met & (jnp.arange(side.shape[0]) == jnp.argmin(until))
        multiplier = jnp.where(dropped, 0, multiplier + length * (asked - change))
        side = jnp.where(go, jnp.where(met, side + asked, jnp.where(dropped, 0, side)), side)
        x = x - jnp.where(free, length, 0) * direction
        return _ActiveSet(x, multiplier, side, jnp.where(met, 0, asked), go, carry.steps + 1)

    side = jnp.where(program.bound, 0, jnp.ones_like(program.below))
    space = factorise(rows * jnp.abs(side)[:, None])
    moved = program.below + apply(rows, program.target - program.x)
    x = program.target - space.min_norm(jnp.where(program.bound, 0, moved))
    multiplier = space.multipliers(program.target - x)
    first = _ActiveSet(x, multiplier, side, jnp.zeros_like(side), jnp.array(True), jnp.array(0))
    max_steps = 4 * side.shape[0] + 4
    return iterate(first, step, lambda carry: carry.changing & (carry.steps < max_steps))
