"""A Diffrax state of any form as one real vector, which is what a projection moves.

Diffrax solves for any PyTree of arrays; a projection measures distances between vectors. The leaves are laid out one
after the other, a complex one as its real and its imaginary part. A constraint still gets y in its own form.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from twinfold.numerics._constraint import (
    AbstractConstraint,
    AbstractInequality,
    has_inequalities,
    inequality_rows,
    sides,
    state_dtype,
)
from twinfold.typing import ConstraintVector, Parameters, Scalar, State


class Form(eqx.Module):
    """Structure, shapes and dtypes of a state, with the way from it to a vector and back."""

    structure: Any = eqx.field(static=True)
    shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    dtypes: tuple[Any, ...] = eqx.field(static=True)

    @property
    def is_vector(self) -> bool:
        """Whether the state is a real vector already, and stays as it is."""
        one = self.structure == jax.tree.structure(0)
        return one and len(self.shapes[0]) == 1 and not jnp.issubdtype(self.dtypes[0], jnp.complexfloating)

    def flatten(self, y: PyTree) -> State:
        """`y` as a vector."""
        if self.is_vector:
            return y
        dtype, parts = state_dtype(y), []
        for leaf in jax.tree.leaves(y):
            parts += [leaf.real, leaf.imag] if jnp.iscomplexobj(leaf) else [leaf]
        return jnp.concatenate([jnp.zeros(0, dtype), *(part.ravel().astype(dtype) for part in parts)])

    def unflatten(self, x: State) -> PyTree:
        """The state whose vector is `x`."""
        if self.is_vector:
            return x
        leaves, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = math.prod(shape)
            count = 2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1
            parts = [x[start + i * size : start + (i + 1) * size].reshape(shape) for i in range(count)]
            leaves.append((parts[0] if count == 1 else jax.lax.complex(*parts)).astype(dtype))
            start += count * size
        return jax.tree.unflatten(self.structure, leaves)

    def constrain(self, constraint: AbstractConstraint) -> AbstractConstraint:
        """The constraint as one on the vector."""
        return constraint if self.is_vector else OnForm(constraint, self)


def form_of(y: PyTree) -> Form:
    """The form of a state, or a `ValueError` if a leaf is not an array of floats."""
    leaves, structure = jax.tree.flatten(y)
    for leaf in leaves:
        if not eqx.is_inexact_array(leaf):
            got = f"an array of dtype {leaf.dtype}" if eqx.is_array(leaf) else f"a {type(leaf).__name__}"
            raise ValueError(f"Projected: y0 contains {got}; give arrays of floating-point numbers.")
    return Form(structure, tuple(leaf.shape for leaf in leaves), tuple(leaf.dtype for leaf in leaves))


class OnForm(AbstractInequality):
    """A constraint on a state of some form, as a constraint on its vector."""

    constraint: AbstractConstraint
    form: Form

    def residual(self, t: Scalar, x: State, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return self.constraint.residual(t, self.form.unflatten(x), p, level)

    def level(self, t: Scalar, x0: State, p: Parameters) -> ConstraintVector:
        return self.constraint.level(t, self.form.unflatten(x0), p)

    @property
    def has_inequalities(self) -> bool:
        return has_inequalities(self.constraint)

    def inequality_rows(self, t: Scalar, x: State, p: Parameters) -> tuple[bool, ...]:
        return inequality_rows(self.constraint, t, self.form.unflatten(x), p)

    def sides(
        self, t: Scalar, x: State, p: Parameters, level: ConstraintVector
    ) -> tuple[ConstraintVector, ConstraintVector]:
        return sides(self.constraint, t, self.form.unflatten(x), p, level)
