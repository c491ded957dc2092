"""The stage equations of an implicit method.

z = c + h (A x I) f(x + z),        z_i = x_i - x the increments of s stages, A the method's coefficients

Newton's matrix is exact (n push-forwards for all stages at once), and so is the derivative of the solution, in
everything that the field depends on, closed over or not.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.numerics._linalg.square import SquareFactors, factorise_square
from twinfold.numerics._root import AbstractEquations, find_root
from twinfold.typing import Flag, Parameters, Scalar, Signal, State

FOLDS = 3  # growth by e^3 within one step


def state_size(x: State, others: Float[Array, "s n"]) -> State:
    """The largest magnitude of each state; of one that is nearly zero, a fraction of the largest of all.

    The tolerance of Newton's iteration times that fraction is one rounding error of the largest state.
    """
    size, finfo = jnp.maximum(jnp.abs(x), jnp.max(jnp.abs(others), axis=0)), jnp.finfo(x.dtype)
    return size + float(finfo.eps) ** (1 / 3) * jnp.max(size) + finfo.tiny


def step_error(
    field: Callable[..., State],
    t: Scalar,
    h: Scalar,
    x: State,
    x1: State,
    difference: State,
    damping: float,
    w: Signal,
    p: Parameters,
) -> Float[Array, ""]:
    """The largest part of its size by which a state is wrong after a step from x to x1: data, without a derivative.

    `difference` is that from another formula. What decays within the step is damped in it as it is in the step itself,
    (I - damping h J)^-2. The error is infinite where something grows e-fold several times within the step at its end:
    no solution stays there, but an implicit step can lead there and look smooth, from one branch to another.
    """
    x, x1, difference = (jax.lax.stop_gradient(each) for each in (x, x1, difference))

    def factors(t: Scalar, x: State, length: Scalar) -> SquareFactors:
        slope = jax.jacfwd(lambda x: field(t, x, w(t), p))(x)
        return factorise_square(jax.lax.stop_gradient(jnp.eye(x.shape[0], dtype=x.dtype) - length * slope))

    damped = factors(t, x, damping * h)
    error = jnp.max(jnp.abs(damped.solve(damped.solve(difference))) / state_size(x, x1[None]))
    return jax.lax.stop_gradient(jnp.where(factors(t + h, x1, h / FOLDS).negative, jnp.inf, error))


class StageEquations(AbstractEquations):
    """z = offset + weights f(x + z), the unknowns z [s, n] as one vector."""

    rates: Callable  # f at each of the stages, [s, n] -> [s, n]; stages do not depend on each other
    weights: Float[Array, "s s"]  # h A
    offset: Float[Array, "s n"]
    x: State

    def residual(self, z: Float[Array, " sn"]) -> Float[Array, " sn"]:
        increments = z.reshape(self.offset.shape)
        return (increments - self.offset - self.weights @ self.rates(self.x[None] + increments)).reshape(-1)

    def jacobian(self, z: Float[Array, " sn"]) -> Float[Array, "sn sn"]:
        """Blocks I - h a_ij J_j."""
        shape = self.offset.shape
        _, push = jax.linearize(self.rates, self.x[None] + z.reshape(shape))
        columns = jax.vmap(lambda e: push(jnp.broadcast_to(e, shape)))(jnp.eye(shape[1], dtype=z.dtype))
        blocks = jnp.einsum("ij,bja->iajb", self.weights, columns)
        return jnp.eye(z.size, dtype=z.dtype) - blocks.reshape(z.size, z.size)

    def scale(self, z: Float[Array, " sn"]) -> Float[Array, " sn"]:
        """The size of each state over the step."""
        increments = z.reshape(self.offset.shape)
        return jnp.broadcast_to(state_size(self.x, self.x[None] + increments), increments.shape).reshape(-1)


def solve_stages(
    field: Callable[..., State],
    ts: Float[Array, " s"],
    weights: Float[Array, "s s"],
    offset: Float[Array, "s n"],
    x: State,
    w: Signal,
    p: Parameters,
) -> tuple[Float[Array, "s n"], Flag]:
    """The increments of stages at the times `ts`, and whether they were found; zero, without a derivative, if not."""

    def rates(states: Float[Array, "s n"]) -> Float[Array, "s n"]:
        return jax.vmap(lambda t, x: field(t, x, w(t), p))(ts, states)

    # What the field closes over becomes part of the equations, and so of their derivative.
    equations = StageEquations(eqx.filter_closure_convert(rates, offset), weights, offset, x)
    root = find_root(equations, jnp.zeros_like(offset).reshape(-1))
    return jnp.where(root.solved, root.z, 0).reshape(offset.shape), root.solved
