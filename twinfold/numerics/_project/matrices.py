"""The two sparse matrices of a projection, G G' and [H G'; G 0], from the entries of G and of the curvature.

Where each entry goes is worked out once, with NumPy; filling in is a gather or a sorted sum.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.numerics._project.pattern import Index, NotSparseError, Pattern
from twinfold.typing import Flag

# What the diagonal is raised by (of one), unevenly, so that redundant constraints and vanishing curvature leave no
# pivot of exactly zero.
RAISED = 4e-15
# Products of entries of G per entry, beyond which a state is shared by too many constraints.
MAX_PAIRS = 100


@dataclasses.dataclass(frozen=True, eq=False)
class NormalMatrix:
    """G G' for rows of length one."""

    rows: Index
    columns: Index
    left: Index  # entry k is the sum of left * right over the pairs that belong to it
    right: Index
    belongs: Index

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(pattern: Pattern) -> "NormalMatrix":
        rows, columns = pattern.entries
        left, right = _pairs(columns)
        if len(left) > MAX_PAIRS * max(len(rows), 1):
            raise NotSparseError(
                f"constraint: a state is shared by so many of the {pattern.m} equations that G G' is not sparse; use "
                "Krylov(bandwidth=0), or a constraint that splits the shared state up."
            )
        keys, belongs = np.unique(rows[left].astype(np.int64) * pattern.m + rows[right], return_inverse=True)
        order = np.argsort(belongs, kind="stable")
        return NormalMatrix(
            (keys // pattern.m).astype(np.int32),
            (keys % pattern.m).astype(np.int32),
            left[order],
            right[order],
            belongs[order],
        )

    def values(self, unit: Float[Array, " k"]) -> Float[Array, " l"]:
        """The entries, in order of rows and columns."""
        products = unit[self.left] * unit[self.right]
        summed = jax.ops.segment_sum(products, self.belongs, len(self.rows), indices_are_sorted=True)
        # A row without entries has none here either; its diagonal is missing only if G is all zero there.
        return summed + jnp.where(self.rows == self.columns, _uneven(self.rows) + jnp.where(summed == 0, 1, 0), 0)


def _uneven(rows: Index) -> Float[np.ndarray, "_"]:
    return RAISED * (1 + 0.5 * np.sin(rows))


def _pairs(columns: Index) -> tuple[Index, Index]:
    """All ordered pairs of entries in the same column."""
    order = np.argsort(columns, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(columns[order]) > 0]) if len(columns) else np.zeros(0, int)
    counts = np.diff(np.r_[starts, len(columns)])
    left, right = [], []
    for count in np.unique(counts):
        block = order[starts[counts == count][:, None] + np.arange(count)]
        left.append(np.repeat(block, count, axis=1).ravel())
        right.append(np.tile(block, (1, count)).ravel())
    return np.concatenate([*left, np.zeros(0, int)]), np.concatenate([*right, np.zeros(0, int)])


@dataclasses.dataclass(frozen=True, eq=False)
class SaddleMatrix:
    """[H G'; G 0] for rows of G of length one."""

    n: int
    m: int
    rows: Index
    columns: Index
    order: Index  # from (curvature, a zero, G) to the entries

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(pattern: Pattern) -> "SaddleMatrix":
        n, m = pattern.n, pattern.m
        rows, columns = pattern.entries
        curved = pattern.curved
        count, size = len(curved[0]), n + m
        # The diagonal is always there, whether or not there is curvature on it.
        bare = np.setdiff1d(np.arange(size), curved[0][curved[0] == curved[1]])
        entry = count + 1 + np.arange(len(rows))
        all_rows = np.concatenate([curved[0], bare, n + rows, columns]).astype(np.int64)
        all_columns = np.concatenate([curved[1], bare, columns, n + rows]).astype(np.int64)
        source = np.concatenate([np.arange(count), np.full(len(bare), count), entry, entry])
        order = np.argsort(all_rows * size + all_columns)
        return SaddleMatrix(n, m, all_rows[order].astype(np.int32), all_columns[order].astype(np.int32), source[order])

    def values(self, curvature: Float[Array, " k"], unit: Float[Array, " l"]) -> Float[Array, " e"]:
        """The entries, in order of rows and columns."""
        source = jnp.concatenate([curvature, jnp.zeros((1,), unit.dtype), unit])
        diagonal = self.rows == self.columns
        raised = np.where(self.rows < self.n, 1.0, -1.0) * _uneven(self.rows)
        return (
            source[self.order] + np.where(diagonal & (self.rows < self.n), 1.0, 0.0) + np.where(diagonal, raised, 0.0)
        )


def dominant(pattern: Pattern, curvature: Float[Array, " k"]) -> Flag:
    """Whether each diagonal entry of H is larger than the others of its row together: then H is definite."""
    rows, columns = pattern.curved
    signed = jnp.where(rows == columns, curvature, -jnp.abs(curvature))
    return jnp.all(1 + jax.ops.segment_sum(signed, rows, pattern.n) > 1e-8)
