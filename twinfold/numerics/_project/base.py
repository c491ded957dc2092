"""Back to the manifold: what a projection is given, and what it reports."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._core import RESULTS, Frozen, finite_jvp
from twinfold.numerics._constraint import AbstractConstraint, has_inequalities
from twinfold.typing import ConstraintVector, Count, Flag, Parameters, Scalar, State

# How a projection is differentiated: the exact derivative by the implicit function theorem, the tangent projector
# of the paper's Eq. 7 (curvature neglected), or by differentiating each iteration.
Derivative: TypeAlias = Literal["implicit", "tangent", "loop"]


class ProjectionResult(eqx.Module):
    """The projected state and how it was reached. A failed projection leaves the state as it was, flagged.

    `redundant` counts the constraints that depend on others where the projection ended: they hold together with
    these, with a multiplier of zero, or the projection has failed.
    """

    x: State
    multiplier: ConstraintVector
    violation: ConstraintVector
    steps: Count
    result: RESULTS
    redundant: Count = eqx.field(default_factory=lambda: jnp.array(0))


class ProjectionProblem(eqx.Module):
    """min 1/2 ||x - target||^2 subject to g(t, x, p) = level, with every array that the solution depends on.

    `anchor` is the last state on the manifold, from which a lost projection may start again.
    """

    constraint: AbstractConstraint
    t: Scalar
    target: State
    p: Parameters
    level: ConstraintVector
    anchor: State | None
    switched: bool = eqx.field(static=True, default=False)  # rows of the constraint may be off: zero, and met

    def residual(self, x: State) -> ConstraintVector:
        return self.constraint.residual(self.t, x, self.p, self.level)


class AbstractProjection(eqx.Module):
    """Maps a predicted state to a state with g(t, x, p) = level."""

    @abc.abstractmethod
    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        """The target of the problem moved to the manifold."""

    def project(
        self,
        constraint: AbstractConstraint,
        t: Scalar,
        x: State,
        p: Parameters,
        level: ConstraintVector,
        *,
        anchor: State | None = None,
    ) -> ProjectionResult:
        """`x` moved to the manifold. `anchor` is the last state on it, from which a lost projection may start again."""
        return self.nearest(ProjectionProblem(constraint, t, x, p, level, anchor))


class NoProjection(AbstractProjection):
    """Leaves the state where it is and reports by how much it violates the constraint."""

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        violation = jnp.abs(problem.residual(problem.target))
        nothing = jnp.zeros_like(problem.level)
        return ProjectionResult(problem.target, nothing, violation, jnp.array(0), RESULTS.successful)


def check_derivative(derivative: str) -> None:
    """A `ValueError` unless the derivative is one of the three."""
    if derivative not in ("implicit", "tangent", "loop"):
        raise ValueError(f'derivative={derivative!r}: give "implicit", "tangent" or "loop".')


class InMetric(AbstractConstraint):
    """A constraint on u = R x, where W = R'R is the metric: nearest in W is nearest, plainly, in u."""

    constraint: AbstractConstraint
    root: Float[Array, "..."]

    def to_state(self, u: State) -> State:
        return u / self.root if self.root.ndim == 1 else jnp.linalg.solve(self.root, u)

    def from_state(self, x: State) -> State:
        return self.root * x if self.root.ndim == 1 else self.root @ x

    def residual(self, t: Scalar, x: State, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return self.constraint.residual(t, self.to_state(x), p, level)

    def level(self, t: Scalar, x0: State, p: Parameters) -> ConstraintVector:
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
    nearest: Callable[[ProjectionProblem], ProjectionResult],
    root: Frozen | None,
    problem: ProjectionProblem,
    *,
    bounds: bool = False,
) -> ProjectionResult:
    """`nearest` in the coordinates of the metric; a problem without constraints is returned as it is.

    `bounds`: whether `nearest` can hold inequalities (it would take them for equations).
    """
    if not bounds and has_inequalities(problem.constraint):
        raise ValueError("constraint: this projection cannot hold Bounds; use projection=Newton() or Tangent().")
    if problem.level.shape[0] == 0:
        return NoProjection().nearest(problem)
    if root is None:
        return nearest(problem)
    metric = InMetric(problem.constraint, root.value.astype(problem.target.dtype))
    anchor = None if problem.anchor is None else metric.from_state(problem.anchor)
    target = metric.from_state(problem.target)
    out = nearest(ProjectionProblem(metric, problem.t, target, problem.p, problem.level, anchor, problem.switched))
    return eqx.tree_at(lambda out: out.x, out, metric.to_state(out.x))


def failure_reason(problem: ProjectionProblem, g: ConstraintVector, finite: Flag, otherwise: RESULTS) -> RESULTS:
    """Why a projection failed: what was wrong with its target, where g was evaluated first, or `otherwise`."""
    result = RESULTS.where(finite, otherwise, RESULTS.not_differentiable)
    result = RESULTS.where(jnp.all(jnp.isfinite(g)), result, RESULTS.outside_domain)
    return RESULTS.where(jnp.all(jnp.isfinite(problem.target)), result, RESULTS.nonfinite)


def result_tangent(
    result: ProjectionResult, tangent: ProjectionProblem, dx: State, dmultiplier: ConstraintVector
) -> ProjectionResult:
    """The tangent of a result; a failed projection returned its target, and so does its derivative."""
    solved = result.result == RESULTS.successful
    target = jnp.zeros_like(result.x) if tangent.target is None else tangent.target
    nothing: Any = jax.tree.map(lambda _: None, result)
    return eqx.tree_at(
        lambda result: (result.x, result.multiplier),
        nothing,
        (jnp.where(solved, dx, target), jnp.where(solved, dmultiplier, 0)),
        is_leaf=lambda node: node is None,
    )


def input_tangents(
    problem: ProjectionProblem, x: State, multiplier: ConstraintVector, tangent: ProjectionProblem
) -> tuple[State, State, ConstraintVector]:
    """Changes of x~, of G(x)' lambda and of g(x), at a fixed x and lambda, for a change of the inputs."""
    target = jnp.zeros_like(x) if tangent.target is None else tangent.target
    rest = eqx.tree_at(lambda tangent: tangent.target, tangent, None, is_leaf=lambda node: node is None)
    if not jax.tree.leaves(rest):
        return target, jnp.zeros_like(x), jnp.zeros_like(multiplier)

    def equations(problem: ProjectionProblem) -> tuple[State, ConstraintVector]:
        value, pullback = jax.vjp(problem.residual, x)
        return pullback(multiplier)[0], value

    _, (slope, change) = eqx.filter_jvp(lambda problem: finite_jvp((problem,), fn=equations), (problem,), (rest,))
    # A change that is zero by structure comes as None.
    slope = jnp.zeros_like(x) if slope is None else slope
    return target, slope, jnp.zeros_like(multiplier) if change is None else change
