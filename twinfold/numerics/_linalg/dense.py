"""Small dense linear algebra without LAPACK: calls to it inside a vmapped scan are what makes projections slow.

Up to `SMALL` rows everything is written out in scalars, which XLA fuses; beyond that JAX's own routines are used.
Everything is linear in the right-hand side, so that JAX can transpose it.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jaxtyping import Array, Bool, Float

from twinfold._core import tree_where
from twinfold.numerics._iterate import iterate
from twinfold.numerics._linalg.probe import probe
from twinfold.typing import ConstraintVector, Count, Flag, Jacobian, State

SMALL = 8
MUCH_SHORTER = 0.1  # a row of which less than this part is left, relative to another, is not taken before it


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
    threshold = _least_pivot(matrix.dtype)
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


def _least_pivot(dtype: Any) -> float:
    """Below it, in a matrix of size one, curvature is lost in rounding."""
    return 1e2 * float(jnp.finfo(dtype).eps)


class SymmetricSolver(eqx.Module):
    """Solves with a symmetric matrix of size one."""

    factor: Float[Array, "k k"]  # the inverse of a small matrix, else its Cholesky factor
    definite: Flag  # safely positive definite

    def solve(self, b: Float[Array, " k"]) -> Float[Array, " k"]:
        """matrix^-1 b."""
        if b.shape[0] <= SMALL:
            return apply(self.factor, b)
        return solve_lower_transposed(self.factor, solve_lower(self.factor, b))


def symmetric_solver(matrix: Float[Array, "k k"], *, least: float) -> SymmetricSolver:
    """For a small matrix that is not positive definite: with the magnitudes of its pivots, which are at least `least`.

    For a larger one: with the identity.
    """
    size = matrix.shape[0]
    if size > SMALL:
        return SymmetricSolver(*cholesky(matrix))
    # By sweeps: a few operations on the whole matrix, where a factor takes many on scalars.
    definite = jnp.array(True)
    for k in range(size):
        here = np.arange(size) == k
        column, pivot = matrix[k], matrix[k, k]
        sound = pivot > _least_pivot(matrix.dtype)
        definite = definite & sound
        inverse = 1 / jnp.where(sound, pivot, jnp.maximum(jnp.abs(pivot), least))
        scaled = inverse * column
        edge = jnp.where(here, -0.5 * inverse, scaled)
        edges = jnp.where(here[None], edge[:, None], 0) + jnp.where(here[:, None], edge[None], 0)
        matrix = jnp.where(here[:, None] | here[None], edges, matrix - scaled[:, None] * column[None])
    return SymmetricSolver(-matrix, definite)


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
    return matrix @ v if matrix.size > SMALL**2 else jnp.sum(matrix * v[None], axis=-1)


def apply_transposed(matrix: Float[Array, "l k"], v: Float[Array, " l"]) -> Float[Array, " k"]:
    """matrix.T @ v, likewise."""
    return v @ matrix if matrix.size > SMALL**2 else jnp.sum(matrix * v[:, None], axis=0)


def product(a: Float[Array, "k l"], b: Float[Array, "l n"]) -> Float[Array, "k n"]:
    """a @ b, likewise."""
    return a @ b if max(a.size, b.size) > SMALL**2 else jnp.sum(a[:, :, None] * b[None], axis=1)


class RowSpace(eqx.Module):
    """G = F Q with orthonormal rows of Q: the normal space of the manifold, without forming G G'.

    A row of G that depends on others has no row of Q: it takes no part in a correction (which is then the shortest for
    the rows that are kept, and for all of them where they agree) and has no multiplier. Q has rows of zeros for those.
    """

    q: Jacobian
    factor: Float[Array, "m m"]  # lower triangular, with its rows in `order`
    kept: Bool[Array, " m"]
    order: Float[Array, "m m"] | None  # the permutation, as a matrix; None: as they are

    @property
    def rank(self) -> Count:
        return jnp.sum(self.kept)

    @property
    def singular(self) -> Flag:
        """Whether some row depends on the others."""
        return ~jnp.all(self.kept)

    @property
    def lengths(self) -> ConstraintVector:
        """The lengths of the rows of G."""
        return jnp.sqrt(jnp.sum(self.factor**2, axis=1))

    @property
    def volume(self) -> Float[Array, ""]:
        """The volume spanned by the rows that are kept, each of length one: 1 if they are orthogonal."""
        chosen = jnp.eye(self.factor.shape[0], dtype=self.factor.dtype) if self.order is None else self.order.T
        pivots = jnp.sum(self.factor * chosen, axis=1)
        return jnp.prod(jnp.where(self.kept, jnp.abs(pivots) / self.lengths, 1))

    def solve(self, b: ConstraintVector) -> ConstraintVector:
        """F^-1 b."""
        if self.order is None:
            return solve_lower(self.factor, b)
        return solve_lower(product(self.order, self.factor), apply(self.order, b))

    def solve_transposed(self, b: ConstraintVector) -> ConstraintVector:
        """F^-T b."""
        if self.order is None:
            return solve_lower_transposed(self.factor, b)
        return apply_transposed(self.order, solve_lower_transposed(product(self.order, self.factor), b))

    def min_norm(self, b: ConstraintVector) -> State:
        """The shortest d with G d = b."""
        return apply_transposed(self.q, self.solve(b))

    def multipliers(self, v: State) -> ConstraintVector:
        """The multipliers that fit G' multipliers = v best."""
        return self.solve_transposed(apply(self.q, v))

    def tangent(self, v: State) -> State:
        """The part of v along the manifold, (I - Q' Q) v: the paper's Eq. 7."""
        return v - apply_transposed(self.q, apply(self.q, v))


def complement(q: Jacobian) -> Float[Array, "k n"]:
    """Orthonormal rows that are orthogonal to those of q, which are orthonormal, by Householder reflections."""
    m, n = q.shape
    rest, reflections = list(q), []
    for i in range(m):
        row, *rest = rest
        # What is left of a row has length one, so that no root is needed.
        v, here = jnp.where(np.arange(n) < i, 0, row), np.arange(n) == i
        reflection = v + jnp.where(here, jnp.where(v[i] < 0, -1, 1), 0), 1 / (1 + jnp.abs(v[i]))
        reflections.append(reflection)
        rest = [_reflected(other, *reflection) for other in rest]
    rows = list(jnp.eye(n, dtype=q.dtype)[m:])
    for reflection in reversed(reflections):
        rows = [_reflected(row, *reflection) for row in rows]
    return jnp.stack(rows)


def _reflected(row: State, v: State, scale: Float[Array, ""]) -> State:
    return row - scale * jnp.sum(v * row) * v


def dependent_below(n: int, dtype: Any) -> float:
    """The part of a row, relative to its length, below which it counts as dependent on others: rounding."""
    eps = float(jnp.finfo(dtype).eps)
    return max(10 * n * eps, eps**0.75)


def factorise(jacobian: Jacobian) -> RowSpace:
    """LQ factorisation that reveals the rank: rows that depend on others are dropped.

    By Gram-Schmidt, done twice: orthogonal to rounding even for nearly parallel constraints. Rows are compared with
    their own length, so that the units of a constraint do not matter for the rank. Of the rows of which enough is left,
    the one with the longest part along a fixed vector is taken: the choice, and with it which of several dependent rows
    is dropped, does not depend on their order.
    """
    m = jacobian.shape[0]
    if m == 0:
        return RowSpace(jacobian, jnp.zeros((0, 0), jacobian.dtype), jnp.zeros((0,), bool), None)
    if m > SMALL:
        return _factorised(jacobian)
    if m <= 2:
        return _in_order(jacobian)
    state = _Pivoting.start(jacobian)
    for i in range(m):
        state = state.add(i)
    return state.space


def _in_order(jacobian: Jacobian) -> RowSpace:
    """The factorisation of one row, or of two: relative to its length the first is whole, so there is no choice."""
    first, *others = (_Row.of(v) for v in jacobian)
    if not others:
        return RowSpace(first.q[None], first.length[None, None], first.kept[None], None)
    v, zero = jacobian[1], jnp.zeros((), jacobian.dtype)
    along = jnp.sum(first.q * v)
    rest = v - along * first.q
    again = jnp.sum(first.q * rest)
    second = _Row.of(rest - again * first.q, size=jnp.sum(v**2))
    factor = jnp.stack([jnp.stack([first.length, zero]), jnp.stack([along + again, second.length])])
    return RowSpace(jnp.stack([first.q, second.q]), factor, jnp.stack([first.kept, second.kept]), None)


class _Row(eqx.Module):
    """What a row adds to the row space."""

    q: State
    length: Float[Array, ""]
    kept: Flag

    @staticmethod
    def of(v: State, size: Float[Array, ""] | None = None) -> "_Row":
        """Of what is left of a row whose squared length was `size`."""
        square = jnp.sum(v**2)
        size = square if size is None else size
        kept = square > dependent_below(v.shape[0], v.dtype) ** 2 * size
        # The pivot of a dropped row has the size of the row: its inverse meets zeros only, and units are kept.
        length = jnp.sqrt(jnp.where(kept, square, _positive(jax.lax.stop_gradient(size))))
        return _Row(jnp.where(kept, v / length, 0), length, kept)


class _Pivoting(eqx.Module):
    """A pivoted factorisation in progress."""

    rest: Jacobian  # of each row, what is orthogonal to Q
    sizes: ConstraintVector  # squared lengths of the rows
    keys: ConstraintVector  # which of them comes first
    free: Bool[Array, " m"]  # the rows that were not taken yet
    space: RowSpace

    @staticmethod
    def start(jacobian: Jacobian) -> "_Pivoting":
        m, nothing = jacobian.shape[0], jnp.zeros((), jacobian.dtype)
        square, no = jnp.full((m, m), nothing), jnp.zeros(m, bool)
        empty = RowSpace(jnp.full(jacobian.shape, nothing), square, no, square)
        # The rows as they are: parallel ones are told apart by their length, not by rounding.
        keys = jnp.abs(apply(jax.lax.stop_gradient(jacobian), probe(jacobian.shape[1], jacobian.dtype)))
        return _Pivoting(jacobian, jnp.sum(jacobian**2, axis=1), keys, ~no, empty)

    def add(self, i: Any) -> "_Pivoting":
        """Take one more row, and make the others orthogonal to it."""
        rest, space, rows = self.rest, self.space, jnp.arange(self.rest.shape[0])
        assert space.order is not None
        part = jax.lax.stop_gradient(jnp.where(self.free, jnp.sum(rest**2, axis=1) / _positive(self.sizes), -1))
        suitable = self.free & (part >= MUCH_SHORTER**2 * jnp.max(part))
        column, chosen = rows == i, rows == jnp.argmax(jnp.where(suitable, self.keys, -1))
        v = jnp.sum(jnp.where(chosen[:, None], rest, 0), axis=0)
        again = apply(space.q, v)
        v = v - apply_transposed(space.q, again)
        new = _Row.of(v, size=jnp.sum(jnp.where(chosen, self.sizes, 0)))
        along = apply(rest, new.q)
        entries = jnp.where(chosen, new.length, jnp.where(self.free, along, 0))
        factor = space.factor + jnp.where(chosen[:, None], again[None], 0)
        factor = factor + jnp.where(column[None], entries[:, None], 0)
        space = RowSpace(
            q=jnp.where(column[:, None], new.q[None], space.q),
            factor=factor,
            kept=space.kept | (chosen & new.kept),
            order=jnp.where(column[:, None], chosen[None].astype(v.dtype), space.order),
        )
        return _Pivoting(rest - along[:, None] * new.q[None], self.sizes, self.keys, self.free & ~chosen, space)


def _positive(size: Float[Array, "..."]) -> Float[Array, "..."]:
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
    unchanged = RowSpace(q.T, upper.T, jnp.ones(m, bool), jnp.eye(m, dtype=data.dtype))
    return tree_where(full, unchanged, found)


def _row_by_row(jacobian: Jacobian, wanted: Flag) -> RowSpace:
    m = jacobian.shape[0]
    start = (jnp.array(0), _Pivoting.start(jacobian))
    add = iterate(start, lambda at: (at[0] + 1, at[1].add(at[0])), lambda at: wanted & (at[0] < m))
    return add[1].space
