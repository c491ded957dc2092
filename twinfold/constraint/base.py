"""The algebraic invariants g(t, x, p) = level that a twin has to obey."""

import abc
from collections.abc import Callable, Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._types import Jacobian, Level, Parameters, Scalar, State
from twinfold.field.arguments import call_by_name


class AbstractConstraint(eqx.Module):
    """m equations on the state. What differs from run to run is the `level`, an argument, never part of the object."""

    @abc.abstractmethod
    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        """g(t, x, p) - level, zero on the manifold."""

    @abc.abstractmethod
    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        """The level of a run that starts at (t, x0)."""


def evaluate_constraint(g: Callable, t: Scalar, x: State, p: Parameters) -> Level:
    """The user's g as a vector; a scalar is one constraint."""
    value = jnp.asarray(call_by_name(g, "constraint", t=t, x=x, p=p))
    if value.ndim > 1:
        raise ValueError(
            f"constraint: g(t, x, p) returned shape {value.shape}; it must be a scalar or a vector of m values."
        )
    return jnp.atleast_1d(value)


class Constraint(AbstractConstraint):
    """A fixed manifold, g(t, x, p) = 0: a unit quaternion, a linkage that closes, a tip that follows a path."""

    g: Callable

    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        return evaluate_constraint(self.g, t, x, p) - level

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        shape = jax.eval_shape(lambda: evaluate_constraint(self.g, t, x0, p))
        return jnp.zeros(shape.shape, x0.dtype)


class Conserved(AbstractConstraint):
    """A conserved quantity, q(t, x, p) = q(t0, x0, p): each run keeps the value it started with."""

    quantity: Callable

    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        return evaluate_constraint(self.quantity, t, x, p) - level

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        return evaluate_constraint(self.quantity, t, x0, p)


class Stack(AbstractConstraint):
    """Several constraints at once, one under the other."""

    parts: tuple[AbstractConstraint, ...]

    def __init__(self, parts: Sequence[AbstractConstraint]):
        if not parts:
            raise ValueError("Stack(parts=[]): give at least one constraint.")
        self.parts = tuple(parts)

    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        sizes = [jax.eval_shape(part.level, t, x, p).shape[0] for part in self.parts]
        bounds = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        levels = [level[a:b] for a, b in pairwise(bounds)]
        return jnp.concatenate([part.residual(t, x, p, own) for part, own in zip(self.parts, levels, strict=True)])

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        return jnp.concatenate([part.level(t, x0, p) for part in self.parts])


class Unconstrained(AbstractConstraint):
    """No constraint: m = 0."""

    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        return jnp.zeros((0,), x.dtype)

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        return jnp.zeros((0,), x0.dtype)


def residual_and_jacobian(
    constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters, level: Level
) -> tuple[Level, Jacobian]:
    """g - level and G = dg/dx, by m pullbacks (m is small)."""
    value, pullback = jax.vjp(lambda x: constraint.residual(t, x, p, level), x)
    (jacobian,) = jax.vmap(pullback)(jnp.eye(value.shape[0], dtype=value.dtype))
    return value, jacobian


def violation_scale(
    constraint: AbstractConstraint, t: Scalar, x0: State, p: Parameters, level: Level
) -> Float[Array, " m"]:
    """What a violation is divided by to be relative: max(|level_i|, ||dg_i/dx(x0)|| ||x0||)."""
    _, jacobian = residual_and_jacobian(constraint, t, x0, p, level)
    size = jnp.linalg.norm(jacobian, axis=1) * jnp.linalg.norm(x0)
    return jnp.maximum(jnp.abs(level), size)


def check_constraint(constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters) -> int:
    """m, or a `ValueError` that names what does not fit, before anything is compiled."""
    level = jax.eval_shape(constraint.level, t, x, p)
    value = jax.eval_shape(constraint.residual, t, x, p, jnp.zeros(level.shape, x.dtype))
    if value.ndim != 1 or value.shape != level.shape:
        raise ValueError(
            f"constraint: residual has shape {value.shape} and level {level.shape}; both must be vectors of m values."
        )
    if value.shape[0] > x.shape[0]:
        raise ValueError(
            f"constraint: {value.shape[0]} equations for {x.shape[0]} states; there can be at most as many "
            "constraints as states."
        )
    return value.shape[0]
