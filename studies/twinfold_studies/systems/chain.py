"""A hanging chain of many links, as positions of its nodes: a constraint that can be made as large as one likes.

Its G G' is tridiagonal, with a condition number that grows as the square of the number of links.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Constraint
from twinfold.typing import ConstraintVector, State


def stretch(x: State) -> ConstraintVector:
    """g_i = (|r_i - r_(i-1)|^2 / l^2 - 1) / 2, the relative stretch of each link; r_0 = 0, l = 1 / (links)."""
    nodes = jnp.concatenate([jnp.zeros((1, 2), x.dtype), x.reshape(-1, 2)])
    relative = (nodes[1:] - nodes[:-1]) * (x.shape[0] // 2)
    return 0.5 * (jnp.sum(relative**2, axis=1) - 1)


@dataclasses.dataclass(frozen=True)
class Chain:
    """A chain of unit length that hangs from the origin: 2 `links` states, `links` constraints g(x) = 0."""

    links: int
    constraint: Constraint = dataclasses.field(default_factory=lambda: Constraint(stretch))

    @property
    def state(self) -> Float[Array, " n"]:
        """Nearly straight: its direction swings by 0.3 rad about the vertical, once along the chain."""
        along = (jnp.arange(self.links) + 0.5) / self.links
        angle = 0.3 * jnp.sin(2 * jnp.pi * along)
        links = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1) / self.links
        return jnp.cumsum(links, axis=0).reshape(-1)

    def predictor(self, strain: float) -> Float[Array, " n"]:
        """The chain as a step without its constraint leaves it: smoothly stretched, and moved sideways.

        Stretched, not compressed: a compressed chain has no smooth nearest neighbour, it kinks (A6' fails).
        """
        nodes = self.state.reshape(-1, 2)
        along = jnp.arange(1, self.links + 1) / self.links
        moved = nodes * (1 + strain * (1 + 0.3 * jnp.sin(3 * along)))[:, None]
        return moved.at[:, 0].add(0.3 * strain * jnp.sin(5 * along)).reshape(-1)
