"""Redundant constraints: whether they depend on each other everywhere, or only at a singular point.

The same constraint twice, a sum of others, or a multiple has no effect on the nearest point nor on its derivative,
since the rank of G is the same everywhere. Where two curves touch, or at the tip of a cone, the rank is lower than
in the neighbourhood: the linearisation does not describe the manifold there, and the projection is flagged.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twinfold._core import stop_gradient_tree
from twinfold.numerics._constraint import residual_and_jacobian
from twinfold.numerics._iterate import run_if
from twinfold.numerics._linalg.dense import RowSpace, dependent_below, factorise
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.typing import ConstraintVector, Count, Flag, State

# How far around a state its rank is compared: far enough to tell curves that touch to fourth order.
AROUND = 0.01


def may_be_redundant(problem: ProjectionProblem) -> bool:
    """One constraint alone depends on others only where its gradient is zero, which is a singular point."""
    return problem.level.shape[0] > 1 or problem.switched


def beside(x: State) -> State:
    """A state near x, along one fixed probe vector."""
    way = np.cos(1.0 + np.arange(x.shape[0])) * np.sqrt(2 / x.shape[0])
    length = jnp.linalg.norm(x)
    return x + AROUND * jnp.where(length > 0, length, 1) * jnp.asarray(way, x.dtype)


class RankHistory(eqx.Module):
    """The highest rank of G over the iterates of a projection, and its longest rows over those on the manifold."""

    rank: Count
    lengths: ConstraintVector

    def updated(self, space: RowSpace, on_manifold: Flag) -> "RankHistory":
        # Off the manifold a gradient may have any length, such as that of a logarithm near zero.
        lengths = jnp.where(on_manifold, _lengths(space), 0)
        return RankHistory(jnp.maximum(self.rank, space.rank), jnp.maximum(self.lengths, lengths))

    def vanishing(self, space: RowSpace) -> Flag:
        """Whether a gradient vanishes, as it does gradually at a crossing."""
        least = dependent_below(space.q.shape[1], space.q.dtype)
        return jnp.any(space.kept & (_lengths(space) <= least * self.lengths))


def _lengths(space: RowSpace) -> ConstraintVector:
    return jnp.where(space.kept, space.lengths, 0)


def is_regular(problem: ProjectionProblem, x: State, space: RowSpace) -> Flag:
    """Whether the rank at `x`, where it is not full, is that of the neighbourhood."""
    if not may_be_redundant(problem):
        return ~space.singular
    problem, x, space = stop_gradient_tree((problem, x, space))

    def rank_beside(carry: tuple[State, Flag]) -> tuple[State, Flag]:
        x = beside(carry[0])
        g, jacobian = residual_and_jacobian(problem.constraint, problem.t, x, problem.p, problem.level)
        finite = jnp.all(jnp.isfinite(g)) & jnp.all(jnp.isfinite(jacobian))
        return x, factorise(jnp.where(finite, jacobian, 0)).rank <= space.rank

    return run_if(space.singular, rank_beside, (x, jnp.array(True)))[1]
