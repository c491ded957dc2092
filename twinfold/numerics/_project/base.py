"""The contract of projections: problem, result, metric, tolerance, and what happens after a failure."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from twinfold._core import RESULTS, Frozen, finite_jvp
from twinfold.numerics._constraint import (
    AbstractConstraint,
    AbstractInequality,
    AbstractSlack,
    has_inequalities,
    inequality_rows,
    sides,
    slack_of,
    value_and_jacobian,
)
from twinfold.typing import ConstraintVector, Count, Flag, Parameters, Scalar, State

# How a projection is differentiated: the exact derivative by the implicit function theorem, the tangent projector
# of the paper's Eq. 7 (curvature neglected), or by differentiating each iteration.
Derivative: TypeAlias = Literal["implicit", "tangent", "loop"]


class ProjectionResult(eqx.Module):
    """The projected state and how it was reached. A failed projection leaves the state as it was, flagged.

    `redundant` counts the constraints that depend on others where the projection ended: they hold together with
    these, with a multiplier of zero, or the projection has failed.

    **Example:**

    ```python
    circle = tw.Constraint(lambda x: x @ x - 1)
    out = jax.jit(lambda x: tw.Newton().project(circle, 0.0, x, {}, jnp.zeros(1)))(jnp.array([1.1, 0.2]))
    out.x, out.violation, out.steps
    ```
    """

    x: State
    multiplier: ConstraintVector
    violation: ConstraintVector
    steps: Count
    result: RESULTS
    redundant: Count = eqx.field(default_factory=lambda: jnp.array(0))


class ProjectionProblem(eqx.Module):
    """min 1/2 ||x - target||^2 subject to g(t, x, p) = level, with every array that the solution depends on.

    `anchor` is the last state on the manifold, from which a lost projection may start again. `known` is the solution,
    where it has been computed before and only its derivative is wanted.
    """

    constraint: AbstractConstraint
    t: Scalar
    target: State
    p: Parameters
    level: ConstraintVector
    anchor: State | None
    known: ProjectionResult | None = None
    switched: bool = eqx.field(static=True, default=False)  # rows of the constraint may be off: zero, and met

    def residual(self, x: State) -> ConstraintVector:
        return self.constraint.residual(self.t, x, self.p, self.level)


class Metric(eqx.Module):
    """R with R'R = W: the nearest point in the metric W is the nearest one, plainly, in u = R x."""

    root: Frozen

    @property
    def states(self) -> int:
        return self.root.value.shape[0]

    def from_state(self, x: State) -> State:
        root = self.root.value.astype(x.dtype)
        return root * x if root.ndim == 1 else root @ x

    def to_state(self, u: State) -> State:
        root = self.root.value.astype(u.dtype)
        return u / root if root.ndim == 1 else jnp.linalg.solve(root, u)


def as_metric(weights: ArrayLike | Sequence | Metric | None) -> Metric | None:
    """The metric of a vector of weights or a symmetric positive definite matrix; None for the identity."""
    if weights is None or isinstance(weights, Metric):
        return weights
    w = np.asarray(weights, dtype=float)
    if w.ndim == 1 and np.all(np.isfinite(w)) and np.all(w > 0):
        return Metric(Frozen(jnp.asarray(np.sqrt(w))))
    if w.ndim == 2 and w.shape[0] == w.shape[1] and np.allclose(w, w.T):
        values, vectors = np.linalg.eigh(w)
        if np.all(values > 0):
            return Metric(Frozen(jnp.asarray(np.sqrt(values)[:, None] * vectors.T)))
    raise ValueError(
        f"metric of shape {w.shape}: give a vector of positive weights, one for each state, or a symmetric "
        "positive definite matrix."
    )


class InMetric(AbstractSlack):
    """A constraint on u = R x."""

    constraint: AbstractConstraint
    metric: Metric

    def residual(self, t: Scalar, x: State, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return self.constraint.residual(t, self.metric.to_state(x), p, level)

    def level(self, t: Scalar, x0: State, p: Parameters) -> ConstraintVector:
        return self.constraint.level(t, self.metric.to_state(x0), p)

    def slack(self, t: Scalar, x: State, p: Parameters) -> ConstraintVector | None:
        return slack_of(self.constraint, t, self.metric.to_state(x), p)


class WithSlack(AbstractInequality):
    """g(t, x, p) - level - weights s, on the state and its slack (x, s); a weight of zero is an exact row."""

    constraint: AbstractConstraint
    weights: ConstraintVector
    states: int = eqx.field(static=True)

    def residual(self, t: Scalar, x: State, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return self.constraint.residual(t, x[: self.states], p, level) - self.weights * x[self.states :]

    def level(self, t: Scalar, x0: State, p: Parameters) -> ConstraintVector:
        return self.constraint.level(t, x0[: self.states], p)

    @property
    def has_inequalities(self) -> bool:
        return has_inequalities(self.constraint)

    def inequality_rows(self, t: Scalar, x: State, p: Parameters) -> tuple[bool, ...]:
        return inequality_rows(self.constraint, t, x[: self.states], p)

    def sides(
        self, t: Scalar, x: State, p: Parameters, level: ConstraintVector
    ) -> tuple[ConstraintVector, ConstraintVector]:
        low, high = sides(self.constraint, t, x[: self.states], p, level)
        moved = self.weights * x[self.states :]
        return low - moved, high - moved


class AbstractProjection(eqx.Module):
    """Maps a predicted state to a state with g(t, x, p) = level.

    A projection implements `nearest` for the identity as its metric; `project` transforms to others. `holds_bounds`
    tells whether `nearest` can hold inequalities (it would take them for equations otherwise).

    **Example:**

    ```python
    class OntoUnitSphere(tw.numerics.AbstractProjection):
        # knows its manifold: no iteration is needed
        metric: None = None

        def nearest(self, problem):
            x = problem.target / jnp.linalg.norm(problem.target)
            violation = jnp.abs(problem.residual(x))
            return tw.numerics.ProjectionResult(x, jnp.zeros(1), violation, jnp.array(1), tw.RESULTS.successful)

    sphere = tw.Constraint(lambda x: x @ x - 1)
    twin = tw.Twin(lambda x: jnp.stack([-x[1], x[0]]), constraint=sphere, projection=OntoUnitSphere())
    twin.simulate([1.0, 0.0], jnp.linspace(0, 1, 11)).trajectory.violation.max()
    ```
    """

    metric: eqx.AbstractVar[Metric | None]
    holds_bounds: ClassVar[bool] = False

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
        known: ProjectionResult | None = None,
    ) -> ProjectionResult:
        """`x` moved to the manifold; for `anchor` and `known` see `ProjectionProblem`."""
        if not self.holds_bounds and has_inequalities(constraint):
            raise ValueError("constraint: this projection cannot hold Bounds; use projection=Newton() or Tangent().")
        if level.shape[0] == 0 or self.metric is None:
            return (self if level.shape[0] else NoProjection())._nearest(
                ProjectionProblem(constraint, t, x, p, level, anchor, known)
            )
        inner, metric = InMetric(constraint, self.metric), self.metric
        anchor = None if anchor is None else metric.from_state(anchor)
        if known is not None:
            known = eqx.tree_at(lambda known: known.x, known, metric.from_state(known.x))
        out = self._nearest(ProjectionProblem(inner, t, metric.from_state(x), p, level, anchor, known))
        return eqx.tree_at(lambda out: out.x, out, metric.to_state(out.x))

    def _nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        """`nearest`, of the state together with its slack where the constraint is not exact."""
        constraint, x = problem.constraint, problem.target
        size = slack_of(constraint, problem.t, x, problem.p)
        if size is None or isinstance(self, NoProjection):
            return self.nearest(problem)
        squares = jnp.sum(value_and_jacobian(problem.residual, x)[1] ** 2, axis=1)
        usable = jnp.isfinite(squares) & (squares > 0)
        lengths = jnp.where(usable, jnp.sqrt(jnp.where(usable, squares, 1)), 0)
        none = jnp.zeros_like(problem.level)
        out = self.nearest(
            eqx.tree_at(
                lambda problem: (problem.constraint, problem.target, problem.anchor, problem.known),
                problem,
                (
                    WithSlack(constraint, size * lengths, x.shape[0]),
                    jnp.concatenate([x, none]),
                    None if problem.anchor is None else jnp.concatenate([problem.anchor, none]),
                    None,  # what is known does not include the slack
                ),
                is_leaf=lambda node: node is None,
            )
        )
        moved = out.x[: x.shape[0]]
        return eqx.tree_at(lambda out: (out.x, out.violation), out, (moved, jnp.abs(problem.residual(moved))))


class NoProjection(AbstractProjection):
    """Leaves the state where it is and reports by how much it violates the constraint.

    **Example:**

    ```python
    tw.Twin(lambda x: -x, constraint=tw.Conserved(lambda x: x @ x), projection=tw.NoProjection())
    ```
    """

    metric: Metric | None = None
    holds_bounds: ClassVar[bool] = True

    def nearest(self, problem: ProjectionProblem) -> ProjectionResult:
        violation = jnp.abs(problem.residual(problem.target))
        nothing = jnp.zeros_like(problem.level)
        return ProjectionResult(problem.target, nothing, violation, jnp.array(0), RESULTS.successful)


def check_settings(projection: Any, derivatives: Sequence[str] = ("implicit", "tangent", "loop")) -> None:
    """A `ValueError` that names the argument of a projection that cannot be used."""
    name, derivative = type(projection).__name__, projection.derivative
    if derivative not in derivatives:
        *most, last = (f'"{each}"' for each in derivatives)
        raise ValueError(f"{name}(derivative={derivative!r}): give {', '.join(most)} or {last}.")
    for argument in ("max_steps", "max_iterations"):
        if getattr(projection, argument, 1) < 1:
            raise ValueError(f"{name}({argument}={getattr(projection, argument)}): at least one is needed.")
    tolerance = getattr(projection, "tolerance", None)
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f"{name}(tolerance={tolerance}): must be positive.")


def tolerance_of(projection: Any, x: State) -> float:
    """The relative tolerance: 4 rounding errors of the dtype when it is left out."""
    return float(4 * jnp.finfo(x.dtype).eps) if projection.tolerance is None else projection.tolerance


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
