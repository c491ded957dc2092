"""Small dense linear algebra without LAPACK: calls to it inside a vmapped scan are what makes projections slow.

Up to `SMALL` rows everything is written out in scalars, which XLA fuses; beyond that JAX's own routines are used.
Everything is linear in the right-hand side, so that JAX can transpose it.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Bool, Float

from twinfold.numerics._iterate import iterate
from twinfold.typing import ConstraintVector, Count, Flag, Jacobian, State

SMALL = 8


def solve_lower(lower: Float[Array, "k k"], b: Float[Array, " k"]) -> Float[Array, " k"]:
    """L^-1 b."""
    size = b.shape[0]
    if size > SMALL:
        return jax.scipy.linalg.solve_triangular(lower, b, lower=True)
    y = []
    for i in range(size):
        known = sum((lower[i, j] * y[j] for j in range(i)), jnp.zeros((), b.dtype))
        y.append((b[i] - known) / lower[i, i])
    return jnp.stack(y) if y else b


def solve_lower_transposed(lower: Float[Array, "k k"], b: Float[Array, " k"]) -> Float[Array, " k"]:
    """L^-T b."""
    return solve_lower(lower.T[::-1, ::-1], b[::-1])[::-1]


def cholesky(matrix: Float[Array, "k k"]) -> tuple[Float[Array, "k k"], Flag]:
    """L with L L' = matrix, and whether the matrix is (safely) positive definite; if not, L is the identity."""
    size = matrix.shape[0]
    # A pivot this small, of a matrix of size one, means that curvature is lost in rounding.
    threshold = 1e2 * jnp.finfo(matrix.dtype).eps
    if size > SMALL:
        # First without derivatives: those of a factor that does not exist are NaN, even if it is not selected.
        pivots = jnp.diagonal(jnp.linalg.cholesky(jax.lax.stop_gradient(matrix))) ** 2
        definite = jnp.all(jnp.isfinite(pivots)) & jnp.all(pivots > threshold)
        lower = jnp.linalg.cholesky(jnp.where(definite, matrix, jnp.eye(size, dtype=matrix.dtype)))
    else:
        rows: list[list[Array]] = []
        definite = jnp.array(True)
        zero = jnp.zeros((), matrix.dtype)
        for i in range(size):
            row: list[Array] = []
            for j in range(i):
                inner = sum((row[k] * rows[j][k] for k in range(j)), zero)
                row.append((matrix[i, j] - inner) / rows[j][j])
            pivot = matrix[i, i] - sum((value**2 for value in row), zero)
            definite = definite & (pivot > threshold)
            row.append(jnp.sqrt(jnp.where(pivot > threshold, pivot, 1)))
            rows.append(row)
        lower = jnp.stack([jnp.stack(row + [zero] * (size - len(row))) for row in rows])
    return jnp.where(definite, lower, jnp.eye(size, dtype=matrix.dtype)), definite


def solve_general(matrix: Float[Array, "k k"], b: Float[Array, " k"]) -> Float[Array, " k"]:
    """matrix^-1 b for a small matrix near a positive definite one (so that no pivoting is needed)."""
    size = b.shape[0]
    if size > SMALL:
        return jnp.linalg.solve(matrix, b)
    a = [[matrix[i, j] for j in range(size)] for i in range(size)]
    y = [b[i] for i in range(size)]
    for k in range(size):
        for i in range(k + 1, size):
            factor = a[i][k] / a[k][k]
            for j in range(k + 1, size):
                a[i][j] = a[i][j] - factor * a[k][j]
            y[i] = y[i] - factor * y[k]
    for i in reversed(range(size)):
        y[i] = (y[i] - sum((a[i][j] * y[j] for j in range(i + 1, size)), jnp.zeros((), b.dtype))) / a[i][i]
    return jnp.stack(y) if y else b


def apply(matrix: Float[Array, "k l"], v: Float[Array, " l"]) -> Float[Array, " k"]:
    """matrix @ v as a sum, which XLA fuses with its neighbours; a small dot is a separate call."""
    return matrix @ v if matrix.size > SMALL**2 else jnp.sum(matrix * v, axis=-1)


def apply_transposed(matrix: Float[Array, "l k"], v: Float[Array, " l"]) -> Float[Array, " k"]:
    """matrix.T @ v, likewise."""
    return v @ matrix if matrix.size > SMALL**2 else jnp.sum(matrix * v[:, None], axis=0)


def product(a: Float[Array, "k l"], b: Float[Array, "l n"]) -> Float[Array, "k n"]:
    """a @ b, likewise."""
    return a @ b if max(a.size, b.size) > SMALL**2 else jnp.sum(a[:, :, None] * b[None], axis=1)


class RowSpace(eqx.Module):
    """G = L Q with orthonormal rows of Q: the normal space of the manifold, without forming G G'.

    A row of G that depends on those above it has a row of zeros in Q: it takes no part in a correction (which is then
    the shortest for the rows that are kept, and for all of them where they agree) and has no multiplier.
    """

    q: Jacobian
    lower: Float[Array, "m m"]
    kept: Bool[Array, " m"]

    @property
    def rank(self) -> Count:
        return jnp.sum(self.kept)

    @property
    def singular(self) -> Flag:
        """Whether some row depends on the others."""
        return ~jnp.all(self.kept)

    def min_norm(self, b: ConstraintVector) -> State:
        """The shortest d with G d = b."""
        return apply_transposed(self.q, solve_lower(self.lower, b))

    def multipliers(self, v: State) -> ConstraintVector:
        """The multipliers that fit G' multipliers = v best."""
        return solve_lower_transposed(self.lower, apply(self.q, v))

    def tangent(self, v: State) -> State:
        """The part of v along the manifold, (I - Q' Q) v: the paper's Eq. 7."""
        return v - apply_transposed(self.q, apply(self.q, v))


def dependent_below(n: int, dtype: Any) -> float:
    """The part of a row, relative to its length, below which it counts as dependent on others: rounding."""
    eps = float(jnp.finfo(dtype).eps)
    return max(10 * n * eps, eps**0.75)


def factorise(jacobian: Jacobian) -> RowSpace:
    """LQ factorisation that reveals the rank: rows that depend on those above them are dropped.

    By Gram-Schmidt, done twice: orthogonal to rounding even for nearly parallel constraints. Rows are compared with
    their own length, so that the units of a constraint do not matter.
    """
    m, n = jacobian.shape
    if m == 0:
        return RowSpace(jacobian, jnp.zeros((0, 0), jacobian.dtype), jnp.zeros((0,), bool))
    if m > SMALL:
        return _factorised(jacobian)
    least = dependent_below(n, jacobian.dtype)
    zero = jnp.zeros((), jacobian.dtype)
    rows: list[Array] = []
    lower_rows: list[Array] = []
    kept: list[Array] = []
    for i in range(m):
        v = jacobian[i]
        size = jnp.sum(v**2)
        entries = [zero] * m
        for _ in range(2 if i else 1):
            for j, row in enumerate(rows):
                along = jnp.sum(row * v)
                entries[j] = entries[j] + along
                v = v - along * row
        square = jnp.sum(v**2) if i else size
        keep = square > (least**2 * size if i else 0)
        # The pivot of a dropped row has the size of the row: its inverse meets zeros only, and units are kept.
        length = jnp.sqrt(jnp.where(keep, square, _positive(jax.lax.stop_gradient(size)) if i else 1))
        entries[i] = length
        kept.append(keep)
        rows.append(jnp.where(keep, v / length, 0))
        lower_rows.append(jnp.stack(entries))
    return RowSpace(jnp.stack(rows), jnp.stack(lower_rows), jnp.stack(kept))


def _positive(size: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.where(size > 0, size, 1)


def _factorised(jacobian: Jacobian) -> RowSpace:
    """The same by LAPACK where all rows are independent, else row by row; the latter is data without derivatives."""
    m, n = jacobian.shape
    data = jax.lax.stop_gradient(jacobian)
    if m > n:
        return _row_by_row(data, jnp.array(True))
    lengths = jnp.linalg.norm(data, axis=1)
    diagonal = jnp.abs(jnp.diagonal(jnp.linalg.qr(data.T)[1]))
    full = jnp.all(diagonal > dependent_below(n, data.dtype) * lengths)
    q, upper = jnp.linalg.qr(jnp.where(full, jacobian, jnp.eye(m, n, dtype=data.dtype)).T)
    # A loop that is not entered costs nothing, under vmap too.
    found = _row_by_row(data, ~full)
    return RowSpace(jnp.where(full, q.T, found.q), jnp.where(full, upper.T, found.lower), full | found.kept)


def _row_by_row(jacobian: Jacobian, wanted: Flag) -> RowSpace:
    m, n = jacobian.shape
    least = dependent_below(n, jacobian.dtype)

    def add(state: tuple) -> tuple:
        i, q, lower, kept = state
        v = jacobian[i]
        size = jnp.sum(v**2)
        first = q @ v
        v = v - first @ q
        second = q @ v
        v = v - second @ q
        square = jnp.sum(v**2)
        keep = square > least**2 * size
        length = jnp.sqrt(jnp.where(keep, square, _positive(size)))
        entries = (first + second).at[i].set(length)
        return i + 1, q.at[i].set(jnp.where(keep, v / length, 0)), lower.at[i].set(entries), kept.at[i].set(keep)

    empty = (jnp.array(0), jnp.zeros((m, n), jacobian.dtype), jnp.eye(m, dtype=jacobian.dtype), jnp.zeros(m, bool))
    return RowSpace(*iterate(empty, add, lambda state: wanted & (state[0] < m))[1:])
