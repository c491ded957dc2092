"""A hanging chain of many links, described by the positions of its nodes: a constraint of arbitrary size.

G G' is tridiagonal; its condition number grows as the square of the number of links.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Constraint
from twinfold.typing import ConstraintVector, State


def stretch(x: State) -> ConstraintVector:
    """g_i = (|r_i - r_(i-1)|^2 / l^2 - 1) / 2, the relative strain of each link; r_0 = 0, l = 1 / links."""
    nodes = jnp.concatenate([jnp.zeros((1, 2), x.dtype), x.reshape(-1, 2)])
    relative = (nodes[1:] - nodes[:-1]) * (x.shape[0] // 2)
    return 0.5 * (jnp.sum(relative**2, axis=1) - 1)


@dataclasses.dataclass(frozen=True)
class Chain:
    """A chain of unit length that hangs from the origin, with 2 `links` states and `links` constraints g(x) = 0."""

    links: int
    constraint: Constraint = dataclasses.field(default_factory=lambda: Constraint(stretch))

    @property
    def state(self) -> Float[Array, " n"]:
        """Nearly straight: the direction oscillates by 0.3 rad about the vertical, once along the chain."""
        position = (jnp.arange(self.links) + 0.5) / self.links
        angle = 0.3 * jnp.sin(2 * jnp.pi * position)
        links = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1) / self.links
        return jnp.cumsum(links, axis=0).reshape(-1)

    def predictor(self, strain: float) -> Float[Array, " n"]:
        """The chain after an unconstrained step: smoothly stretched and displaced sideways.

        A compressed chain has no smooth nearest point: it buckles (A6' fails).
        """
        nodes = self.state.reshape(-1, 2)
        position = jnp.arange(1, self.links + 1) / self.links
        stretched = nodes * (1 + strain * (1 + 0.3 * jnp.sin(3 * position)))[:, None]
        return stretched.at[:, 0].add(0.3 * strain * jnp.sin(5 * position)).reshape(-1)
