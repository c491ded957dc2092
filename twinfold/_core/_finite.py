"""Derivatives that stay finite where a value is not.

Where a step returns a non-finite value, its Jacobian is non-finite too, and a cotangent of zero times infinity is NaN:
one diverging trajectory would spoil the gradients of a whole batch, through the parameters they share. `finite_jvp`
linearises the step and replaces the non-finite coefficients of that linearisation by one (a zero could be a divisor).
Nothing changes where all is finite.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


@eqx.filter_custom_jvp
def finite_jvp(arguments: tuple, *, fn: Callable) -> Any:
    """`fn(*arguments)`, with a derivative that is finite even where the value is not."""
    return fn(*arguments)


@finite_jvp.def_jvp
def _finite_jvp_jvp(primals, tangents, *, fn: Callable):
    (arguments,), (changes,) = primals, tangents
    differentiated = jax.tree.map(lambda change: change is not None, changes, is_leaf=lambda node: node is None)
    moving, fixed = eqx.partition(arguments, differentiated)
    out, push = jax.linearize(lambda moving: fn(*eqx.combine(moving, fixed)), moving)
    push = jax.tree.map(
        lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, 1) if eqx.is_inexact_array(leaf) else leaf, push
    )
    return out, push(eqx.filter(changes, differentiated))
