"""Where a condition crosses zero inside a step: the root of c after a step of length s, as a function of s.

Steps of other lengths from the same state are taken until s is known to rounding: the event lies on the integrator's
own solution, not on an interpolant. The root is bracketed from the start, and ITP (Oliveira & Takahashi 2020) needs no
more steps than bisection and usually as few as the secant method. The derivative is that of the implicit function
theorem, ds = -dc / (dc/ds).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold._core import stop_gradient_tree
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import iterate
from twinfold.typing import Flag

SLACK = 1  # steps more than bisection that ITP may take: n0


class Crossing(eqx.Module):
    """The conditions after steps of any length from one state, and those that cross zero within `longest`.

    `fresh`: the condition is zero at the start, after its own event: that root does not count.
    """

    conditions: Callable  # s -> [K]; a module, so that its arrays are part of the problem
    longest: Float[Array, ""]
    side: Float[Array, " K"]
    crossed: Bool[Array, " K"]
    fresh: Bool[Array, " K"]
    ends: Float[Array, " K"]  # the conditions after the longest step

    def nearest_event(self, values: Float[Array, " K"]) -> tuple[Float[Array, ""], Int[Array, ""]]:
        """Positive before the first event and not after it; and which event that is."""
        signed = jnp.where(self.crossed, self.side * values, jnp.inf)
        return jnp.min(signed), jnp.argmax(signed <= 0)

    def distance(self, s: Float[Array, ""]) -> tuple[Float[Array, ""], Int[Array, ""]]:
        """`nearest_event` after a step of length s."""
        return self.nearest_event(self.conditions(s))


class Located(eqx.Module):
    """The length of the step to the first event, which event it is, and whether its condition jumped there."""

    length: Float[Array, ""]
    index: Int[Array, ""]
    jumped: Flag


class _Bracket(eqx.Module):
    """The event is after `lower` and not after `upper`; the distances there, and how far from the middle to look."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]
    below: Float[Array, ""]
    above: Float[Array, ""]
    index: Int[Array, ""]
    radius: Float[Array, ""]
    jumped: Flag
    tried: Flag  # the first point


def shortest_length(longest: Float[Array, ""]) -> Float[Array, ""]:
    """The length of a step after which a condition that was zero has a sign of its own."""
    return jnp.sqrt(jnp.finfo(longest.dtype).eps).astype(longest.dtype) * longest


def locate(crossing: Crossing) -> Located:
    """The first event within a step in which at least one condition crosses zero."""
    return implicit_solve(crossing, solver=_Bracketing())


class _Bracketing(eqx.Module):
    def solve(self, crossing: Crossing) -> Located:
        crossing = stop_gradient_tree(crossing)
        longest = crossing.longest
        # The first point to try: a condition that is past zero there has jumped.
        nearest = jnp.where(
            jnp.any(crossing.fresh & crossing.crossed), shortest_length(longest), jnp.zeros_like(longest)
        )
        tolerance = 4 * float(jnp.finfo(longest.dtype).eps) * longest
        halvings = -int(jnp.finfo(longest.dtype).machep) - 3 + SLACK

        def unfinished(here: _Bracket) -> Flag:
            return ~here.tried | (here.upper - here.lower > 2 * tolerance)

        def step(here: _Bracket) -> _Bracket:
            lower, upper = here.lower, here.upper
            middle, gap = (lower + upper) / 2, here.above - here.below
            secant = (here.above * lower - here.below * upper) / jnp.where(gap == 0, 1, gap)
            towards = jnp.sign(middle - secant)
            truncation = 0.2 * (upper - lower) ** 2 / jnp.where(longest == 0, 1, longest)
            near = jnp.where(truncation <= jnp.abs(middle - secant), secant + towards * truncation, middle)
            reach = here.radius - (upper - lower) / 2
            at = jnp.clip(jnp.where(jnp.abs(near - middle) <= reach, near, middle - towards * reach), lower, upper)
            at = jnp.where(here.tried, at, nearest)
            value, index = crossing.distance(at)
            past = value <= 0
            jumped = here.jumped | (past & ~here.tried)
            return _Bracket(
                jnp.where(past & (value < 0) & ~jumped, lower, at),
                jnp.where(past, at, upper),
                jnp.where(past, here.below, value),
                jnp.where(past, value, here.above),
                jnp.where(past, index, here.index),
                jnp.where(here.tried, here.radius / 2, here.radius),
                jumped,
                jnp.array(True),
            )

        no, zero = jnp.array(False), jnp.zeros_like(longest)
        ended, index = crossing.nearest_event(crossing.ends)
        first = _Bracket(zero, longest, zero, ended, index, tolerance * 2.0**halvings, no, ~jnp.any(crossing.crossed))
        # Where there is nothing to search, the bracket is a point.
        first = eqx.tree_at(lambda first: first.lower, first, jnp.where(first.tried, longest, zero))
        last = iterate(first, step, unfinished)
        return Located(last.upper, last.index, last.jumped)

    def sensitivity(self, crossing: Crossing, found: Located, tangent: Any) -> Located:
        def value(crossing: Crossing, s: Float[Array, ""]) -> Float[Array, ""]:
            return crossing.conditions(s)[found.index]

        _, change = eqx.filter_jvp(lambda crossing: value(crossing, found.length), (crossing,), (tangent,))
        change = jnp.zeros_like(found.length) if change is None else change
        _, slope = jax.jvp(lambda s: value(crossing, s), (found.length,), (jnp.ones_like(found.length),))
        # A jump happens at the time of its sample, whatever the parameters.
        fixed = found.jumped | (slope == 0)
        moved = jnp.where(fixed, 0, -change / jnp.where(fixed, 1, slope))
        nothing: Any = jax.tree.map(lambda _: None, found)
        return eqx.tree_at(lambda found: found.length, nothing, moved, is_leaf=lambda node: node is None)
