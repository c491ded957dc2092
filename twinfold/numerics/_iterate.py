"""The loop of every iteration: projections, roots of equations, active sets.

An iteration is its first carry (init), a `step` from one carry to the next, and `unfinished` (terminate). What is
carried is separate from what is reported: the caller builds its result from the last carry.
Vmapped, a loop runs until the last lane has finished, and one that no lane enters costs next to nothing.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import tree_where
from twinfold.numerics._carry import batched_alike, packing
from twinfold.typing import Flag

Carry = TypeVar("Carry")


def iterate(
    carry: Carry, step: Callable[[Carry], Carry], unfinished: Callable[[Carry], Flag], *, usual: int = 0
) -> Carry:
    """The last carry.

    `usual`: the number of steps that most lanes of a batch need. On an accelerator, where evaluating the condition
    costs more than a step, they run in a loop of known length.
    """
    pack, unpack = packing(carry)

    def advance(packed: Any) -> Any:
        return pack(step(unpack(packed)))

    def goes_on(packed: Any) -> Flag:
        return unfinished(unpack(packed))

    packed = pack(carry)
    if usual and jax.default_backend() != "cpu":
        packed = jax.lax.fori_loop(0, usual, lambda _, at: tree_where(goes_on(at), advance(at), at), packed)
    return unpack(jax.lax.while_loop(goes_on, advance, batched_alike(packed)))


def iterate_exactly(carry: Carry, step: Callable[[Carry], Carry], steps: int) -> Carry:
    """The carry after a given number of steps, differentiable step by step."""
    return jax.lax.scan(lambda carry, _: (step(carry), None), carry, length=steps)[0]


def run_if(needed: Flag, fn: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """`fn(carry)` where needed.

    Unlike `jax.lax.cond`, of which vmap computes both branches, it costs next to nothing where no lane needs it. Let
    `fn` read its arguments from `carry` and return them changed: XLA moves all else out of the loop.
    """
    return iterate((needed, carry), lambda state: (jnp.array(False), fn(state[1])), lambda state: state[0])[1]


def backtrack(
    attempt: Callable[[Float[Array, ""]], tuple[Any, Flag]], untried: Any, *, shortest: float, dtype: Any
) -> tuple[Float[Array, ""], Any]:
    """The first of the step lengths 1, 1/2, 1/4, ... that is accepted, or 0, and the result of the last attempt.

    **Arguments:** `attempt` returns its result and whether it is accepted; `untried`, a result of the same structure;
    `shortest`: no length at or below half of this is tried.
    """

    def shorter(state: tuple) -> tuple:
        length = 0.5 * state[0]
        return length, *attempt(length)

    start = (jnp.full((), 2, dtype), untried, jnp.array(False))
    length, result, accepted = iterate(start, shorter, lambda state: ~state[2] & (state[0] > shortest))
    return jnp.where(accepted, length, 0), result
