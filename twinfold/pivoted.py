"""The inverse of a small matrix that need not be definite, by elimination with pivoting.

For the equations of algebraic variables, whose matrices have zeros on the diagonal (the row of a voltage source). Rows
and columns are brought to size one first: an equation in ampere beside one in volt must not look singular. Up to
`SMALL` rows it is a plain loop, as fast as LAPACK there; beyond that JAX's own routine is used. Differentiable.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._types import Flag
from twinfold.linalg import SMALL

Square = Float[Array, "k k"]


def inverse(matrix: Square) -> tuple[Square, Flag]:
    """matrix^-1, and whether the matrix is singular in its dtype; if so, the inverse is zero."""
    size = matrix.shape[0]
    rows = _reciprocal(jnp.max(jnp.abs(matrix), axis=1, initial=0))
    columns = _reciprocal(jnp.max(jnp.abs(matrix) * rows[:, None], axis=0, initial=0))
    scaled = rows[:, None] * matrix * columns
    found, singular = (_eliminated if size <= SMALL else _factorised)(scaled)
    return jnp.where(singular, 0, columns[:, None] * found * rows), singular


def _reciprocal(largest: Float[Array, " k"]) -> Float[Array, " k"]:
    """Scales are no part of the derivative: whatever they are, the inverse is the same."""
    largest = jax.lax.stop_gradient(largest)
    return 1 / jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)


def _eliminated(matrix: Square) -> tuple[Square, Flag]:
    size = matrix.shape[0]
    least = 4 * size * jnp.finfo(matrix.dtype).eps

    def clear(k: Array, state: tuple[Array, Flag]) -> tuple[Array, Flag]:
        both, singular = state
        best = jnp.argmax(jnp.where(jnp.arange(size) >= k, jnp.abs(both[:, k]), -1))
        here, there = both[k], both[best]
        lost = ~(jnp.abs(there[k]) > least)  # also where it is NaN
        row = there / jnp.where(lost, 1, there[k])
        both = both.at[best].set(here)
        return (both - both[:, k, None] * row).at[k].set(row), singular | lost

    both = jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1)
    both, singular = jax.lax.fori_loop(0, size, clear, (both, jnp.array(False)))
    return both[:, size:], singular


def _factorised(matrix: Square) -> tuple[Square, Flag]:
    size = matrix.shape[0]
    # Tried first without derivatives: those of an inverse that does not exist are NaN, whatever selects it away.
    tried = jnp.linalg.inv(jax.lax.stop_gradient(matrix))
    singular = ~(jnp.max(jnp.abs(tried)) * 4 * size * jnp.finfo(matrix.dtype).eps < 1)
    return jnp.linalg.inv(jnp.where(singular, jnp.eye(size, dtype=matrix.dtype), matrix)), singular
