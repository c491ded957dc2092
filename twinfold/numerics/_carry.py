"""The carry of a loop in the form that is compiled and executed fastest."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from twinfold.typing import Flag

Carry = TypeVar("Carry")
MAX_PACKED = 64  # numbers; a count among them must be exact in float32


def packing(carry: Carry) -> tuple[Callable[[Carry], Any], Callable[[Any], Carry]]:
    """Functions to and from one vector that holds all numbers of a small carry, counts and flags too.

    A vmapped loop selects between the old and the new for each array that it carries: of few numbers that takes longer
    than to compute them.
    """
    leaves, structure = jax.tree.flatten(carry)
    shapes, dtypes = [jnp.shape(leaf) for leaf in leaves], [jnp.result_type(leaf) for leaf in leaves]
    sizes = [math.prod(shape) for shape in shapes]
    reals = {dtype for dtype in dtypes if jnp.issubdtype(dtype, jnp.floating)}
    others = {jnp.dtype(kind) for kind in (bool, jnp.int32, jnp.int64)}
    if sum(sizes) > MAX_PACKED or len(reals) != 1 or not set(dtypes) <= reals | others:
        return (lambda carry: carry), (lambda packed: packed)
    (real,) = reals
    ends = list(itertools.accumulate(sizes))

    def pack(carry: Carry) -> Any:
        return jnp.concatenate([jnp.ravel(leaf).astype(real) for leaf in jax.tree.leaves(carry)])

    def unpack(packed: Any) -> Carry:
        parts = (packed[end - size : end] for size, end in zip(sizes, ends, strict=True))
        values = [part.reshape(shape).astype(dtype) for part, shape, dtype in zip(parts, shapes, dtypes, strict=True)]
        return jax.tree.unflatten(structure, values)

    return pack, unpack


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
