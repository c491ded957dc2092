"""Back to the manifold: what a projection is given, and what it reports."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._types import Count, Level, Parameters, Scalar, State
from twinfold.constraint.base import AbstractConstraint, has_inequalities
from twinfold.field.learned import Frozen
from twinfold.result import RESULTS

# How a projection is differentiated: the exact derivative by the implicit function theorem, the tangent projector
# of the paper's Eq. 7 (curvature neglected), or by differentiating each iteration.
Derivative: TypeAlias = Literal["implicit", "tangent", "loop"]


class Correction(eqx.Module):
    """The projected state and how it was reached. A failed projection leaves the state as it was, flagged.

    `redundant` counts the constraints that depend on others where the projection ended: they are met together with
    these, with a multiplier of zero, or the projection has failed.
    """

    x: State
    multiplier: Level
    violation: Level
    steps: Count
    result: RESULTS
    redundant: Count = eqx.field(default_factory=lambda: jnp.array(0))


class AbstractProjection(eqx.Module):
    """Maps a predicted state to a state with g(t, x, p) = level."""

    @abc.abstractmethod
    def project(
        self,
        constraint: AbstractConstraint,
        t: Scalar,
        x: State,
        p: Parameters,
        level: Level,
        *,
        anchor: State | None = None,
    ) -> Correction:
        """`x` moved to the manifold. `anchor` is the last state on it, from which a lost projection may start over."""


class NoProjection(AbstractProjection):
    """Leaves the state where it is and reports by how much it violates the constraint."""

    def project(
        self,
        constraint: AbstractConstraint,
        t: Scalar,
        x: State,
        p: Parameters,
        level: Level,
        *,
        anchor: State | None = None,
    ) -> Correction:
        return unprojected(constraint, t, x, p, level)


def unprojected(constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters, level: Level) -> Correction:
    """The report of a state that was not moved."""
    violation = jnp.abs(constraint.residual(t, x, p, level))
    return Correction(x, jnp.zeros_like(level), violation, jnp.array(0), RESULTS.successful)


def as_data(tree: Any) -> Any:
    """The same values, without derivatives."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)


def check_derivative(derivative: str) -> None:
    """A `ValueError` unless the derivative is one of the three."""
    if derivative not in ("implicit", "tangent", "loop"):
        raise ValueError(f'derivative={derivative!r}: give "implicit", "tangent" or "loop".')


class Problem(eqx.Module):
    """min 1/2 ||x - target||^2 subject to g(t, x, p) = level, with all that it can be differentiated in."""

    constraint: AbstractConstraint
    t: Scalar
    target: State
    p: Parameters
    level: Level
    anchor: State | None
    switched: bool = eqx.field(static=True, default=False)  # rows of the constraint may be off: zero, and met

    def residual(self, x: State) -> Level:
        return self.constraint.residual(self.t, x, self.p, self.level)


class InMetric(AbstractConstraint):
    """A constraint on u = R x, where W = R'R is the metric: nearest in W is nearest, plainly, in u."""

    constraint: AbstractConstraint
    root: Float[Array, "..."]

    def to_state(self, u: State) -> State:
        return u / self.root if self.root.ndim == 1 else jnp.linalg.solve(self.root, u)

    def from_state(self, x: State) -> State:
        return self.root * x if self.root.ndim == 1 else self.root @ x

    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        return self.constraint.residual(t, self.to_state(x), p, level)

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        return self.constraint.level(t, self.to_state(x0), p)


def metric_root(metric: ArrayLike | Sequence | None) -> Frozen | None:
    """R with R'R = W, for a vector of weights or a symmetric positive definite matrix; None for the identity."""
    if metric is None:
        return None
    weights = np.asarray(metric, dtype=float)
    if weights.ndim == 1 and np.all(np.isfinite(weights)) and np.all(weights > 0):
        return Frozen(jnp.asarray(np.sqrt(weights)))
    if weights.ndim == 2 and weights.shape[0] == weights.shape[1] and np.allclose(weights, weights.T):
        values, vectors = np.linalg.eigh(weights)
        if np.all(values > 0):
            return Frozen(jnp.asarray(np.sqrt(values)[:, None] * vectors.T))
    raise ValueError(
        f"metric of shape {weights.shape}: give a vector of positive weights, one for each state, or a symmetric "
        "positive definite matrix."
    )


def in_metric(
    nearest: Callable[[Problem], Correction], root: Frozen | None, problem: Problem, *, bounds: bool = False
) -> Correction:
    """`nearest` in the coordinates of the metric; a problem without constraints is returned as it is.

    `bounds`: whether `nearest` knows what to do with them (it would take them for equations).
    """
    if not bounds and has_inequalities(problem.constraint):
        raise ValueError("constraint: this projection cannot hold Bounds; use projection=Newton() or Tangent().")
    if problem.level.shape[0] == 0:
        return unprojected(problem.constraint, problem.t, problem.target, problem.p, problem.level)
    if root is None:
        return nearest(problem)
    metric = InMetric(problem.constraint, root.value.astype(problem.target.dtype))
    anchor = None if problem.anchor is None else metric.from_state(problem.anchor)
    target = metric.from_state(problem.target)
    out = nearest(Problem(metric, problem.t, target, problem.p, problem.level, anchor, problem.switched))
    return eqx.tree_at(lambda out: out.x, out, metric.to_state(out.x))
