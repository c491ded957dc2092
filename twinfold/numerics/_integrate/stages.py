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

from twinfold.numerics._root import AbstractEquations, find_root
from twinfold.typing import Flag, Parameters, Signal, State


class StageEquations(AbstractEquations):
    """z = offset + weights f(x + z), the unknowns z [s, n] as one vector."""

    rates: Callable  # f at each of the stages, [s, n] -> [s, n]; stages do not depend on each other
    weights: Float[Array, "s s"]  # h A
    offset: Float[Array, "s n"]
    x: State

    def residual(self, z: Float[Array, " sn"]) -> Float[Array, " sn"]:
        increments = z.reshape(self.offset.shape)
        return (increments - self.offset - self.weights @ self.rates(self.x + increments)).reshape(-1)

    def jacobian(self, z: Float[Array, " sn"]) -> Float[Array, "sn sn"]:
        """Blocks I - h a_ij J_j."""
        shape = self.offset.shape
        _, push = jax.linearize(self.rates, self.x + z.reshape(shape))
        columns = jax.vmap(lambda e: push(jnp.broadcast_to(e, shape)))(jnp.eye(shape[1], dtype=z.dtype))
        blocks = jnp.einsum("ij,bja->iajb", self.weights, columns)
        return jnp.eye(z.size, dtype=z.dtype) - blocks.reshape(z.size, z.size)

    def scale(self, z: Float[Array, " sn"]) -> Float[Array, " sn"]:
        """The size of each state over the step; for one that is nearly zero, a fraction of the largest.

        The tolerance times that fraction is one rounding error of the largest state.
        """
        increments = z.reshape(self.offset.shape)
        size = jnp.maximum(jnp.abs(self.x), jnp.max(jnp.abs(self.x + increments), axis=0))
        finfo = jnp.finfo(z.dtype)
        size = size + float(finfo.eps) ** (1 / 3) * jnp.max(size) + finfo.tiny
        return jnp.broadcast_to(size, increments.shape).reshape(-1)


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
