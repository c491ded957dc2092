"""The loop of every iteration: projections, roots of equations, active sets.

An iteration is its first carry (init), a `step` from one carry to the next, and `unfinished` (terminate). What is
carried is separate from what is reported: the caller builds its result from the last carry.
Vmapped, a loop runs until the last lane has finished, and one that no lane enters costs next to nothing.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import tree_where
from twinfold.typing import Flag

Carry = TypeVar("Carry")


def iterate(
    carry: Carry, step: Callable[[Carry], Carry], unfinished: Callable[[Carry], Flag], *, usual: int = 0
) -> Carry:
    """The last carry.

    `usual`: the number of steps that most lanes of a batch need. On an accelerator, where evaluating the condition
    costs more than a step, they run in a loop of known length.
    """
    if usual and jax.default_backend() != "cpu":
        carry = jax.lax.fori_loop(0, usual, lambda _, carry: tree_where(unfinished(carry), step(carry), carry), carry)
    return jax.lax.while_loop(unfinished, step, batched_alike(carry))


def batched_alike(carry: Carry, *others: Any) -> Carry:
    """The same carry; under vmap all of its arrays are batched if one of them, or of the `others`, is.

    JAX finds the batched parts of a carry by transforming the body of the loop until nothing changes any more, which
    nested loops multiply. Here the first pass is the last: it halves the time before a prediction or an epoch begins.
    XLA removes the selections, whose sides are equal.
    """

    def is_number(leaf: Any) -> bool:
        return eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)

    marks = [_mark(leaf) for leaf in jax.tree.leaves((carry, others)) if is_number(leaf) and leaf.size]
    if len(marks) < 2:
        return carry
    mark = functools.reduce(jax.lax.bitwise_or, marks)

    def tied(leaf: Any) -> Any:
        return jax.lax.select(jax.lax.broadcast(mark, leaf.shape), leaf, leaf) if is_number(leaf) else leaf

    return jax.tree.map(tied, carry)


def _mark(leaf: Array) -> Flag:
    """A flag without a meaning that depends on the array."""
    first = jax.lax.slice(leaf, (0,) * leaf.ndim, (1,) * leaf.ndim).reshape(()) if leaf.ndim else leaf
    return jax.lax.ne(first, first)


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
