"""Equations that a twin has to obey: a fixed manifold, a conserved quantity, several at once."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from twinfold._core import select_arguments
from twinfold.numerics import AbstractConstraint, AbstractInequality, AbstractSlack
from twinfold.numerics._constraint import (
    constraint_count,
    has_inequalities,
    inequality_rows,
    sides,
    slack_of,
    state_dtype,
)
from twinfold.typing import ConstraintVector, Parameters, Scalar


def evaluate_constraint(g: Callable, t: Scalar, x: PyTree, p: Parameters) -> ConstraintVector:
    """The user's g as a vector; a scalar is one constraint."""
    value = jnp.asarray(g(**select_arguments(g, "constraint", t=t, x=x, p=p)))
    if value.ndim > 1:
        raise ValueError(
            f"constraint: g(t, x, p) returned shape {value.shape}; it must be a scalar or a vector of m values."
        )
    return jnp.atleast_1d(value)


class Constraint(AbstractConstraint):
    """A fixed manifold, g(t, x, p) = 0: a unit quaternion, a linkage that closes, a tip that follows a path.

    **Example:**

    ```python
    rod = tw.Constraint(lambda x, p: x[:2] @ x[:2] - p["length"] ** 2)
    ```
    """

    g: Callable

    def residual(self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return evaluate_constraint(self.g, t, x, p) - level

    def level(self, t: Scalar, x0: PyTree, p: Parameters) -> ConstraintVector:
        shape = jax.eval_shape(lambda: evaluate_constraint(self.g, t, x0, p))
        return jnp.zeros(shape.shape, state_dtype(x0))


class Conserved(AbstractConstraint):
    """A conserved quantity, q(t, x, p) = q(t0, x0, p): each run keeps the value it started with.

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    energy.level(0.0, jnp.array([3.0, 4.0]), {})  # [12.5]
    ```
    """

    quantity: Callable

    def residual(self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return evaluate_constraint(self.quantity, t, x, p) - level

    def level(self, t: Scalar, x0: PyTree, p: Parameters) -> ConstraintVector:
        return evaluate_constraint(self.quantity, t, x0, p)


class Stack(AbstractInequality, AbstractSlack):
    """Several constraints at once, one under the other.

    **Example:**

    ```python
    tw.Stack([tw.Conserved(lambda x: jnp.sum(x)), tw.Bounds(lambda x: x, lower=0.0)])
    ```
    """

    parts: tuple[AbstractConstraint, ...]

    def __init__(self, parts: Sequence[AbstractConstraint]):
        if not parts:
            raise ValueError("Stack(parts=[]): give at least one constraint.")
        self.parts = tuple(parts)

    def residual(self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return jnp.concatenate([part.residual(t, x, p, own) for part, own in self.split(t, x, p, level)])

    def level(self, t: Scalar, x0: PyTree, p: Parameters) -> ConstraintVector:
        return jnp.concatenate([part.level(t, x0, p) for part in self.parts])

    def split(
        self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector
    ) -> list[tuple[AbstractConstraint, Array]]:
        """Each part with its share of the level."""
        sizes = [constraint_count(part, t, x, p) for part in self.parts]
        ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        return [(part, level[a:b]) for part, (a, b) in zip(self.parts, pairwise(ends), strict=True)]

    def slack(self, t: Scalar, x: PyTree, p: Parameters) -> ConstraintVector | None:
        sizes = [slack_of(part, t, x, p) for part in self.parts]
        if all(size is None for size in sizes):
            return None
        counts = [constraint_count(part, t, x, p) for part in self.parts]
        exact = [jnp.zeros(count, state_dtype(x)) for count in counts]
        return jnp.concatenate([zero if size is None else size for size, zero in zip(sizes, exact, strict=True)])

    @property
    def has_inequalities(self) -> bool:
        return any(has_inequalities(part) for part in self.parts)

    def inequality_rows(self, t: Scalar, x: PyTree, p: Parameters) -> tuple[bool, ...]:
        return sum((inequality_rows(part, t, x, p) for part in self.parts), ())

    def sides(
        self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector
    ) -> tuple[ConstraintVector, ConstraintVector]:
        both = [sides(part, t, x, p, own) for part, own in self.split(t, x, p, level)]
        return jnp.concatenate([low for low, _ in both]), jnp.concatenate([high for _, high in both])
