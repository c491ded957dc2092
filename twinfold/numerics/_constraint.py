"""What the numerics need to know of a constraint: m equations or inequalities on the state, and their scale."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from twinfold.typing import ConstraintVector, Jacobian, Parameters, Scalar, State

# Beyond this number of constraints no matrix of size m x n is formed.
MAX_DENSE_CONSTRAINTS = 500


class AbstractConstraint(eqx.Module):
    """m equations on the state. What differs from run to run is the `level`, an argument, never part of the object.

    The state is a vector, except inside `Projected`, where it has the form of Diffrax's y.

    **Example:**

    ```python
    class UnitLength(tw.numerics.AbstractConstraint):
        def residual(self, t, x, p, level):
            return (x @ x)[None] - level

        def level(self, t, x0, p):
            return jnp.ones(1)

    tw.Twin(lambda x: -x, constraint=UnitLength(), projection=tw.Newton())
    ```
    """

    @abc.abstractmethod
    def residual(self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        """g(t, x, p) - level, zero on the manifold."""

    @abc.abstractmethod
    def level(self, t: Scalar, x0: PyTree, p: Parameters) -> ConstraintVector:
        """The level of a run that starts at (t, x0)."""


class AbstractInequality(AbstractConstraint):
    """A constraint of which some rows are inequalities: there `residual` is the distance outside, zero inside.

    **Example:**

    ```python
    constraint = tw.Bounds(lambda x: x, lower=0.0)
    isinstance(constraint, tw.numerics.AbstractInequality)  # True
    ```
    """

    @property
    @abc.abstractmethod
    def has_inequalities(self) -> bool:
        """Whether any row is an inequality."""

    @abc.abstractmethod
    def inequality_rows(self, t: Scalar, x: PyTree, p: Parameters) -> tuple[bool, ...]:
        """For each row whether it is an inequality."""

    @abc.abstractmethod
    def sides(
        self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector
    ) -> tuple[ConstraintVector, ConstraintVector]:
        """c - lower, negative where violated, and c - upper, positive where violated; infinite without a bound.

        An equation has its residual on both sides.
        """


class AbstractSlack(AbstractConstraint):
    """A constraint of which some rows are only nearly true.

    **Example:**

    ```python
    isinstance(tw.Slack(tw.Conserved(lambda x: x @ x)), tw.numerics.AbstractSlack)  # True
    ```
    """

    @abc.abstractmethod
    def slack(self, t: Scalar, x: PyTree, p: Parameters) -> ConstraintVector | None:
        """How much slack each row has, see `Slack`; zero for one that is exact, None if all are."""


class Unconstrained(AbstractConstraint):
    """No constraint: m = 0.

    **Example:**

    ```python
    tw.Twin(lambda x: -x).constraint  # Unconstrained()
    ```
    """

    def residual(self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return jnp.zeros((0,), state_dtype(x))

    def level(self, t: Scalar, x0: PyTree, p: Parameters) -> ConstraintVector:
        return jnp.zeros((0,), state_dtype(x0))


def state_dtype(x: PyTree) -> jnp.dtype:
    """The real dtype that holds every leaf of a state, a vector or a tree."""
    dtypes = [jnp.finfo(leaf.dtype).dtype for leaf in jax.tree.leaves(x)]
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*dtypes) if dtypes else jnp.zeros(0).dtype


def constraint_count(constraint: AbstractConstraint, t: Scalar, x: PyTree, p: Parameters) -> int:
    """m, found without evaluating the constraint."""
    return jax.eval_shape(lambda: constraint.level(t, x, p)).shape[0]


def has_inequalities(constraint: AbstractConstraint) -> bool:
    """Whether any row, however deep inside, is an inequality."""
    nodes = jax.tree.leaves(constraint, is_leaf=lambda node: isinstance(node, AbstractInequality))
    return any(isinstance(node, AbstractInequality) and node.has_inequalities for node in nodes)


def inequality_rows(constraint: AbstractConstraint, t: Scalar, x: PyTree, p: Parameters) -> tuple[bool, ...]:
    """For each row whether it is an inequality."""
    if isinstance(constraint, AbstractInequality):
        return constraint.inequality_rows(t, x, p)
    if has_inequalities(constraint):
        kind = type(constraint).__name__
        raise ValueError(
            f"constraint: {kind} cannot contain Bounds; put them beside it: Stack([{kind}(...), Bounds(...)])."
        )
    return (False,) * constraint_count(constraint, t, x, p)


def sides(
    constraint: AbstractConstraint, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector
) -> tuple[ConstraintVector, ConstraintVector]:
    """`AbstractInequality.sides` of any constraint."""
    if isinstance(constraint, AbstractInequality):
        return constraint.sides(t, x, p, level)
    residual = constraint.residual(t, x, p, level)
    return residual, residual


def slack_of(constraint: AbstractConstraint, t: Scalar, x: PyTree, p: Parameters) -> ConstraintVector | None:
    """`AbstractSlack.slack` of any constraint."""
    return constraint.slack(t, x, p) if isinstance(constraint, AbstractSlack) else None


def residual_and_jacobian(
    constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters, level: ConstraintVector
) -> tuple[ConstraintVector, Jacobian]:
    """g - level and G = dg/dx, by m pullbacks (m is small)."""
    return value_and_jacobian(lambda x: constraint.residual(t, x, p, level), x)


def value_and_jacobian(fn: Callable[[State], ConstraintVector], x: State) -> tuple[ConstraintVector, Jacobian]:
    """fn(x) and its derivative, row by row."""
    value, pullback = jax.vjp(fn, x)
    (jacobian,) = jax.vmap(pullback)(jnp.eye(value.shape[0], dtype=value.dtype))
    return value, jacobian


def violation_scale(
    constraint: AbstractConstraint, t: Scalar, x0: State, p: Parameters, level: ConstraintVector
) -> Float[Array, " m"]:
    """What a violation is divided by to be relative: max(|level_i|, ||dg_i/dx(x0)|| ||x0||), with c_i for a bound.

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    x0 = jnp.array([1.0, 0.0])
    tw.numerics.violation_scale(energy, 0.0, x0, {}, energy.level(0.0, x0, {}))  # [1.]
    ```
    """

    def side(x: State) -> ConstraintVector:
        return sides(constraint, t, x, p, level)[0]

    if level.shape[0] > MAX_DENSE_CONSTRAINTS:
        # A Jacobian of this size is never written out: the mean of (G z)^2 over signs z is ||dg_i/dx||^2, nearly.
        _, push = jax.linearize(side, x0)
        signs = jax.random.rademacher(jax.random.key(0), (64, x0.shape[0]), x0.dtype)
        lengths = jnp.sqrt(jnp.mean(jax.lax.map(push, signs) ** 2, axis=0))
    else:
        lengths = jnp.linalg.norm(value_and_jacobian(side, x0)[1], axis=1)
    return jnp.maximum(jnp.abs(level), lengths * jnp.linalg.norm(x0))


def check_constraint(constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters) -> int:
    """m, or a `ValueError` that names what does not fit, before anything is compiled."""
    level = jax.eval_shape(lambda: constraint.level(t, x, p))
    value = jax.eval_shape(lambda: constraint.residual(t, x, p, jnp.zeros(level.shape, x.dtype)))
    if value.ndim != 1 or value.shape != level.shape:
        raise ValueError(
            f"constraint: residual has shape {value.shape} and level {level.shape}; both must be vectors of m values."
        )
    equations = value.shape[0] - sum(inequality_rows(constraint, t, x, p))
    if equations > x.shape[0]:
        raise ValueError(
            f"constraint: {equations} equations for {x.shape[0]} states; there can be at most as many "
            "constraints as states."
        )
    return value.shape[0]
