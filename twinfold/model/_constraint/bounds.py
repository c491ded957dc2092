"""Bounds: a state of charge between 0 and 1, concentrations that are not negative, a joint with end stops.

    lower <= c(t, x, p) <= upper

Stack them beside the equations, `Stack([Conserved(mass), Bounds(lambda x: x, lower=0.0)])`: one projection then gives
the nearest state that obeys all (`Newton`), or one linearised step towards it (`Tangent`).
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from twinfold._core import Frozen
from twinfold.model._constraint.base import evaluate_constraint
from twinfold.numerics import AbstractInequality
from twinfold.numerics._constraint import constraint_count, state_dtype
from twinfold.typing import ConstraintVector, Parameters, Scalar


def _as_bound(bound: ArrayLike | Sequence | Frozen) -> Frozen:
    if isinstance(bound, Frozen):
        return bound
    with jax.ensure_compile_time_eval():  # a number also where the bounds are made inside `jit`
        return Frozen(jnp.asarray(np.asarray(bound, float)))


class Bounds(AbstractInequality):
    """lower <= c(t, x, p) <= upper, for each of the k values of c. Its violation is the distance outside.

    **Arguments:** `c`, a function of what it names of t, x, p; `lower` and `upper`, a number for all values or one
    for each, infinite where there is none. A bound that is itself a parameter goes into c: `x[0] / p["q_max"]` <= 1.

    **Example:**

    ```python
    tank = tw.Bounds(lambda x: x, lower=0.0, upper=[1.0, 2.0])
    project = jax.jit(lambda x: tw.Tangent().project(tank, 0.0, x, {}, jnp.zeros(2)).x)
    project(jnp.array([1.2, -0.1]))  # [1., 0.]
    ```
    """

    c: Callable
    lower: Frozen = eqx.field(default=-np.inf, converter=_as_bound, kw_only=True)
    upper: Frozen = eqx.field(default=np.inf, converter=_as_bound, kw_only=True)

    def __check_init__(self):
        low, high = np.asarray(self.lower.value), np.asarray(self.upper.value)
        given = f"Bounds(lower={low}, upper={high})"
        if low.ndim > 1 or high.ndim > 1:
            raise ValueError(f"{given}: give numbers or vectors, one for each value of c.")
        if np.isnan(low).any() or np.isnan(high).any() or not np.all(low <= high):
            raise ValueError(f"{given}: each lower bound must be at most the upper one.")
        if np.all(low == -np.inf) and np.all(high == np.inf):
            raise ValueError("Bounds: give lower=, upper=, or both; there is nothing to bound.")

    def residual(self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        below, above = self.sides(t, x, p, level)
        return jnp.where(above > 0, above, jnp.where(below < 0, below, jnp.where(jnp.isnan(below), below, 0)))

    def level(self, t: Scalar, x0: PyTree, p: Parameters) -> ConstraintVector:
        """Zero: bounds are the same for all runs (a level would shift both)."""
        return jnp.zeros(self._value(t, x0, p).shape, state_dtype(x0))

    @property
    def has_inequalities(self) -> bool:
        return True

    def inequality_rows(self, t: Scalar, x: PyTree, p: Parameters) -> tuple[bool, ...]:
        return (True,) * constraint_count(self, t, x, p)

    def sides(
        self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector
    ) -> tuple[ConstraintVector, ConstraintVector]:
        value = self._value(t, x, p) - level
        return value - self.lower.value.astype(value.dtype), value - self.upper.value.astype(value.dtype)

    def _value(self, t: Scalar, x: PyTree, p: Parameters) -> Float[Array, " k"]:
        value = evaluate_constraint(self.c, t, x, p)
        for name, bound in (("lower", self.lower.value), ("upper", self.upper.value)):
            if bound.ndim == 1 and bound.shape != value.shape:
                raise ValueError(f"Bounds({name}=...): {bound.shape[0]} bounds for the {value.shape[0]} values of c.")
        return value
