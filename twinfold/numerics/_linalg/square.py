"""Solving with a small square matrix that need not be definite, by elimination with pivoting.

For Newton's method on equations whose matrices have zeros on the diagonal (the row of a voltage source). Rows and
columns are scaled to size one first: an equation in ampere beside one in volt must not look singular. Up to `SMALL`
rows the inverse is written out in a plain loop, as fast as LAPACK there and without its calls inside a vmapped scan;
beyond that JAX's LU factorisation is used. Differentiable.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float

from twinfold.numerics._linalg.dense import SMALL
from twinfold.typing import Flag

Square = Float[Array, "k k"]
Vector = Float[Array, " k"]


class SquareFactors(eqx.Module):
    """A factorised matrix; `solve` returns zero where it is singular in its dtype."""

    rows: Vector
    columns: Vector
    factors: Any  # the inverse of the scaled matrix, or its LU factors
    singular: Flag
    negative: Flag  # whether the determinant is

    def solve(self, b: Vector) -> Vector:
        """matrix^-1 b."""
        scaled = self.rows * b
        if isinstance(self.factors, tuple):
            found = jax.scipy.linalg.lu_solve(self.factors, scaled)
        else:
            found = self.factors @ scaled
        return jnp.where(self.singular, 0, self.columns * found)


def factorise_square(matrix: Square) -> SquareFactors:
    """Factorise a square matrix."""
    size = matrix.shape[0]
    rows = _reciprocal(jnp.max(jnp.abs(matrix), axis=1, initial=0))
    columns = _reciprocal(jnp.max(jnp.abs(matrix) * rows[:, None], axis=0, initial=0))
    scaled = rows[:, None] * matrix * columns[None]
    if size <= SMALL:
        return SquareFactors(rows, columns, *_eliminated(scaled))
    # First without derivatives: those of a singular matrix are NaN, even if they are not selected.
    pivots = jnp.diagonal(jax.scipy.linalg.lu_factor(jax.lax.stop_gradient(scaled))[0])
    singular = ~(jnp.min(jnp.abs(pivots)) > _smallest_pivot(size, matrix.dtype))
    factors = jax.scipy.linalg.lu_factor(jnp.where(singular, jnp.eye(size, dtype=matrix.dtype), scaled))
    lower, swaps = jax.lax.stop_gradient(factors)
    signs = jnp.sum(jnp.diagonal(lower) < 0) + jnp.sum(swaps != jnp.arange(size, dtype=swaps.dtype))
    return SquareFactors(rows, columns, factors, singular, signs % 2 == 1)


def _smallest_pivot(size: int, dtype: Any) -> float:
    return 4 * size * float(jnp.finfo(dtype).eps)


def _reciprocal(largest: Vector) -> Vector:
    """The scales do not change the solution, so they are not differentiated."""
    largest = jax.lax.stop_gradient(largest)
    return 1 / jnp.where((largest > 0) & jnp.isfinite(largest), largest, 1)


def _eliminated(matrix: Square) -> tuple[Square, Flag, Flag]:
    """The inverse by Gauss-Jordan elimination, whether a pivot was lost, and whether the determinant is negative."""
    size = matrix.shape[0]
    smallest = _smallest_pivot(size, matrix.dtype)

    def clear(k: Array, state: tuple[Array, Flag, Flag]) -> tuple[Array, Flag, Flag]:
        both, singular, negative = state
        best = jnp.argmax(jnp.where(jnp.arange(size) >= k, jnp.abs(both[:, k]), -1))
        here, there = both[k], both[best]
        lost = ~(jnp.abs(there[k]) > smallest)  # also where it is NaN
        row = there / jnp.where(lost, 1, there[k])
        both = both.at[best].set(here)
        negative = negative ^ (there[k] < 0) ^ (best != k)
        return (both - both[:, k, None] * row[None]).at[k].set(row), singular | lost, negative

    both = jnp.concatenate([matrix, jnp.eye(size, dtype=matrix.dtype)], axis=1)
    no = jnp.array(False)
    both, singular, negative = jax.lax.fori_loop(0, size, clear, (both, no, no))
    return both[:, size:], singular, negative
