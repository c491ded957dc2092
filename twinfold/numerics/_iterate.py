"""The loop of every iteration: projections, roots of equations, active sets.

An iteration is an object with three functions: `init` makes the first carry, `step` the next, and `unfinished` tells
whether to go on. What is carried is apart from what is reported: whoever calls `iterate` makes the report of the last
carry. Vmapped, a loop runs until the last lane has finished, and one that no lane enters costs next to nothing.
"""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import tree_where
from twinfold.typing import Flag

Carry = TypeVar("Carry")


class AbstractIteration(eqx.Module):
    """What `iterate` runs."""

    @abc.abstractmethod
    def init(self) -> Any:
        """The first carry."""

    @abc.abstractmethod
    def step(self, carry: Any) -> Any:
        """The next carry."""

    @abc.abstractmethod
    def unfinished(self, carry: Any) -> Flag:
        """Whether to take another step."""


def iterate(iteration: AbstractIteration, *, usual: int = 0) -> Any:
    """The last carry.

    `usual`: the number of steps that most lanes of a batch need. They run in a loop of known length, since on an
    accelerator a look at the condition costs more than a step.
    """
    carry = iteration.init()
    if usual:
        carry = jax.lax.fori_loop(
            0, usual, lambda _, carry: tree_where(iteration.unfinished(carry), iteration.step(carry), carry), carry
        )
    # Not the methods themselves: JAX hashes them, and with them the traced arrays that the iteration holds.
    return jax.lax.while_loop(lambda carry: iteration.unfinished(carry), lambda carry: iteration.step(carry), carry)


def iterate_exactly(iteration: AbstractIteration, steps: int) -> Any:
    """The carry after a given number of steps, differentiable step by step."""
    return jax.lax.scan(lambda carry, _: (iteration.step(carry), None), iteration.init(), length=steps)[0]


def run_if(needed: Flag, fn: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """`fn(carry)` where needed.

    Unlike `jax.lax.cond`, of which vmap computes both branches, it costs next to nothing where no lane needs it. Let
    `fn` read its arguments from `carry` and return them changed: XLA moves all else out of the loop.
    """
    return jax.lax.while_loop(lambda state: state[0], lambda state: (jnp.array(False), fn(state[1])), (needed, carry))[
        1
    ]


def backtrack(
    attempt: Callable[[Float[Array, ""]], tuple[Any, Flag]], untried: Any, *, shortest: float, dtype: Any
) -> tuple[Float[Array, ""], Any]:
    """The first of the step lengths 1, 1/2, 1/4, ... that is accepted, or 0, and the result of the last attempt.

    **Arguments:** `attempt` returns its result and whether it is accepted; `untried`, a result of the same structure;
    `shortest`: no length at or below half of this is tried.
    """

    def shorter(state: tuple) -> tuple:
        length = 0.5 * state[0]
        result, accepted = attempt(length)
        return length, result, accepted

    start = (jnp.full((), 2, dtype), untried, jnp.array(False))
    length, result, accepted = jax.lax.while_loop(lambda state: ~state[2] & (state[0] > shortest), shorter, start)
    return jnp.where(accepted, length, 0), result
