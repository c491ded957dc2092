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

# From this number of constraints on, nothing of size m x n is formed.
MANY = 500


class AbstractConstraint(eqx.Module):
    """m equations on the state. What differs from run to run is the `level`, an argument, never part of the object."""

    @abc.abstractmethod
    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        """g(t, x, p) - level, zero on the manifold."""

    @abc.abstractmethod
    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        """The level of a run that starts at (t, x0)."""


class AbstractInequality(AbstractConstraint):
    """Rows that need not be met with equality: `residual` is how far they are outside, zero inside."""

    @abc.abstractmethod
    def sides(self, t: Scalar, x: State, p: Parameters, level: Level) -> tuple[Level, Level]:
        """c - lower, negative where it is violated, and c - upper, positive where it is; infinite without a bound."""


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
        return jnp.concatenate([part.residual(t, x, p, own) for part, own in self.split(t, x, p, level)])

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        return jnp.concatenate([part.level(t, x0, p) for part in self.parts])

    def split(self, t: Scalar, x: State, p: Parameters, level: Level) -> list[tuple[AbstractConstraint, Array]]:
        """Each part with its own of the levels."""
        sizes = [_rows(part, t, x, p) for part in self.parts]
        ends = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
        return [(part, level[a:b]) for part, (a, b) in zip(self.parts, pairwise(ends), strict=True)]


class Unconstrained(AbstractConstraint):
    """No constraint: m = 0."""

    def residual(self, t: Scalar, x: State, p: Parameters, level: Level) -> Level:
        return jnp.zeros((0,), x.dtype)

    def level(self, t: Scalar, x0: State, p: Parameters) -> Level:
        return jnp.zeros((0,), x0.dtype)


def _rows(constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters) -> int:
    return jax.eval_shape(lambda: constraint.level(t, x, p)).shape[0]


def has_inequalities(constraint: AbstractConstraint) -> bool:
    """Whether any row, however deep inside, is an inequality."""
    nodes = jax.tree.leaves(constraint, is_leaf=lambda node: isinstance(node, AbstractInequality))
    return any(isinstance(node, AbstractInequality) for node in nodes)


def _no_place_for(constraint: AbstractConstraint) -> ValueError:
    kind = type(constraint).__name__
    return ValueError(f"constraint: {kind} cannot hold Bounds; put these beside it, Stack([{kind}(...), Bounds(...)]).")


def inequality_rows(constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters) -> tuple[bool, ...]:
    """For each row whether it is an inequality."""
    if isinstance(constraint, Stack):
        return sum((inequality_rows(part, t, x, p) for part in constraint.parts), ())
    inequality = isinstance(constraint, AbstractInequality)
    if not inequality and has_inequalities(constraint):
        raise _no_place_for(constraint)
    return (inequality,) * _rows(constraint, t, x, p)


def sides(constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters, level: Level) -> tuple[Level, Level]:
    """`AbstractInequality.sides` of every row; an equation has the same residual on both."""
    if isinstance(constraint, Stack):
        both = [sides(part, t, x, p, own) for part, own in constraint.split(t, x, p, level)]
        return jnp.concatenate([low for low, _ in both]), jnp.concatenate([high for _, high in both])
    if isinstance(constraint, AbstractInequality):
        return constraint.sides(t, x, p, level)
    residual = constraint.residual(t, x, p, level)
    return residual, residual


def residual_and_jacobian(
    constraint: AbstractConstraint, t: Scalar, x: State, p: Parameters, level: Level
) -> tuple[Level, Jacobian]:
    """g - level and G = dg/dx, by m pullbacks (m is small)."""
    return value_and_jacobian(lambda x: constraint.residual(t, x, p, level), x)


def value_and_jacobian(fn: Callable[[State], Level], x: State) -> tuple[Level, Jacobian]:
    """fn(x) and its derivative, row by row."""
    value, pullback = jax.vjp(fn, x)
    (jacobian,) = jax.vmap(pullback)(jnp.eye(value.shape[0], dtype=value.dtype))
    return value, jacobian


def violation_scale(
    constraint: AbstractConstraint, t: Scalar, x0: State, p: Parameters, level: Level
) -> Float[Array, " m"]:
    """What a violation is divided by to be relative: max(|level_i|, ||dg_i/dx(x0)|| ||x0||), with c_i for a bound."""

    def side(x: State) -> Level:
        return sides(constraint, t, x, p, level)[0]

    if level.shape[0] > MANY:
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
