"""Where the derivatives of a constraint can be different from zero, and how to fill that in with few products.

Found once for a constraint by asdex, which follows the computation and not its values: a pattern holds for all states,
and an index that depends on the state counts as coupled to all of them.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from twinfold.numerics._project.base import ProjectionProblem
from twinfold.typing import ConstraintVector, State

Index = Int[np.ndarray, "_"]
# A pattern that needs more products than this is not worth calling sparse.
MAX_COLOURS = 200
_FOUND: dict[Any, "Pattern"] = {}


class NotSparseError(ValueError):
    """A constraint whose equations are each about too many states."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pattern:
    """The sparse derivatives of one constraint: of G = dg/dx and of sum_i lambda_i d2g_i."""

    m: int
    n: int
    jacobian: Any  # coloured patterns of asdex
    hessian: Any

    @functools.cached_property
    def entries(self) -> tuple[Index, Index]:
        """Rows and columns of G."""
        return np.asarray(self.jacobian.sparsity.rows), np.asarray(self.jacobian.sparsity.cols)

    @functools.cached_property
    def curved(self) -> tuple[Index, Index]:
        """Rows and columns of the curvature."""
        return np.asarray(self.hessian.sparsity.rows), np.asarray(self.hessian.sparsity.cols)

    @functools.cached_property
    def bandwidth(self) -> int:
        """The largest |i - j| of two constraints that share a state."""
        rows, columns = self.entries
        order = np.lexsort((rows, columns))
        first = np.r_[True, np.diff(columns[order]) > 0]
        last = np.r_[first[1:], True]
        return int(np.max(rows[order][last] - rows[order][first], initial=0))

    @functools.cached_property
    def explicit(self) -> bool:
        """Whether each constraint has a state that no other has, and could be solved for it."""
        rows, columns = self.entries
        alone = np.bincount(columns, minlength=self.n)[columns] == 1
        return len(np.unique(rows[alone])) == self.m

    def gradients(self, residual: Callable, x: State) -> Float[Array, " k"]:
        """The entries of G at x."""
        import asdex

        return asdex.jacobian_from_coloring(residual, self.jacobian)(x).data

    def curvatures(self, residual: Callable, x: State, multiplier: ConstraintVector) -> Float[Array, " k"]:
        """The entries of sum_i lambda_i d2g_i at x."""
        import asdex

        if self.hessian.sparsity.nnz == 0:
            return jnp.zeros((0,), x.dtype)
        return asdex.hessian_from_coloring(lambda x: jnp.sum(multiplier * residual(x)), self.hessian)(x).data


def find_pattern(problem: ProjectionProblem) -> Pattern:
    """The pattern of a constraint, found again for the same one."""
    need_asdex()
    rest = (problem.constraint, problem.t, problem.p, problem.level)
    # Traced arrays have no values: they are arguments. The others may be indices, on which the pattern depends.
    unknown, known = eqx.partition(rest, lambda leaf: isinstance(leaf, Tracer))
    like = np.zeros(problem.target.shape, problem.target.dtype)
    key = _key(known, unknown, like)
    if key is None or key not in _FOUND:
        pattern = _detect(problem, known, unknown, like)
        if key is None:
            return pattern
        _FOUND[key] = pattern
    return _FOUND[key]


def need_asdex() -> None:
    """An `ImportError` that says what to install."""
    try:
        import asdex  # noqa: F401
    except ImportError as error:
        raise ImportError("sparse projections need asdex and klujax: pip install 'twinfold[sparse]'") from error


def _key(known: Any, unknown: Any, like: np.ndarray) -> Any:
    """What a pattern is remembered by; None where that cannot be."""

    def described(leaf: Any) -> Any:
        if not eqx.is_array_like(leaf):
            return leaf
        value = np.asarray(leaf)
        # Of floating-point numbers, only the shape matters.
        return value.shape, value.dtype.str, b"" if np.issubdtype(value.dtype, np.inexact) else value.tobytes()

    shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(unknown))
    leaves, structure = jax.tree.flatten(known)
    key = (tuple(described(leaf) for leaf in leaves), structure, shapes, like.shape, like.dtype)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _detect(problem: ProjectionProblem, known: Any, unknown: Any, like: np.ndarray) -> Pattern:
    import asdex

    shapes = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), unknown)

    def residual(x: State, arrays: Any) -> ConstraintVector:
        constraint, t, p, level = eqx.combine(arrays, known)
        return constraint.residual(t, x, p, level)

    def lagrangian(x: State, multiplier: ConstraintVector, arrays: Any) -> Float[Array, ""]:
        return jnp.sum(multiplier * residual(x, arrays))

    multiplier = np.zeros(problem.level.shape, problem.target.dtype)
    m, n = multiplier.shape[0], like.shape[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", asdex.DenseColoringWarning)
        try:
            found = asdex.jacobian_sparsity(residual, like, shapes, argnums=0)
            curved = asdex.hessian_sparsity(lagrangian, like, multiplier, shapes, argnums=0)
        except jax.errors.TracerArrayConversionError as error:
            raise ValueError(
                "constraint: its function closes over traced arrays, so its sparsity cannot be found. Pass them as "
                "parameters p, or build the constraint outside of jit."
            ) from error
        except (ValueError, NotImplementedError) as error:
            raise NotSparseError(_dense(m, n, f"asdex cannot follow them: {error}")) from error
        _check_sparse(found.nnz, m, n)
        jacobian = asdex.jacobian_coloring_from_sparsity(_plain(found))
        hessian = asdex.hessian_coloring_from_sparsity(_plain(curved))
    colours = max(jacobian.num_colors, hessian.num_colors)
    if m > MAX_COLOURS and colours > MAX_COLOURS:
        raise NotSparseError(_dense(m, n, f"{colours} products are needed to fill in its derivatives"))
    return Pattern(m, n, jacobian, hessian)


def _plain(found: Any) -> Any:
    """The pattern as one of a function of the state alone."""
    import asdex

    return asdex.SparsityPattern.from_coo(found.rows, found.cols, found.shape)


def _check_sparse(entries: int, m: int, n: int) -> None:
    if m > MAX_COLOURS and entries > 0.2 * m * n:
        raise NotSparseError(_dense(m, n, f"{entries / (m * n):.0%} of its Jacobian can be different from zero"))


def _dense(m: int, n: int, why: str) -> str:
    return (
        f"constraint: {m} equations for {n} states are not sparse ({why}). Index with constant NumPy arrays rather "
        "than with values that depend on the state; for a constraint that is dense, use Newton() up to about 500 "
        "equations and Krylov(bandwidth=0) beyond."
    )
