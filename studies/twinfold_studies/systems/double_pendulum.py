"""Double pendulum in Cartesian coordinates: two constraints on positions, and chaos."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Friction, Multibody
from twinfold.typing import State


def double_pendulum(
    *,
    lengths: tuple[float, float] = (1.0, 1.0),
    masses: tuple[float, float] = (1.0, 1.0),
    gravity: float = 9.81,
    friction: Callable | None = None,
) -> Multibody:
    """Two points a, b on rods, one below the other, q = (a, b).

        Phi = ((|a|^2 - l1^2) / 2, (|b - a|^2 - l2^2) / 2),    V = g (m1 a_y + m2 b_y)

    `friction`: the torque in each joint as a function of its rate; default: conservative.
    """
    first, second = lengths

    def rods(q: Float[Array, " 4"]) -> Float[Array, " 2"]:
        x, y = q[2] - q[0], q[3] - q[1]
        return 0.5 * jnp.stack([q[0] ** 2 + q[1] ** 2 - first**2, x**2 + y**2 - second**2])

    def weight(q: Float[Array, " 4"]) -> Float[Array, ""]:
        return gravity * (masses[0] * q[1] + masses[1] * q[3])

    def joint_rates(q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 2"]:
        x, y, dx, dy = q[2] - q[0], q[3] - q[1], v[2] - v[0], v[3] - v[1]
        upper = (q[0] * v[1] - q[1] * v[0]) / first**2
        return jnp.stack([upper, (x * dy - y * dx) / second**2 - upper])

    force = None if friction is None else Friction(joint_rates, friction, odd=True)
    return Multibody([masses[0], masses[0], masses[1], masses[1]], rods, potential=weight, force=force)


def double_pendulum_state(
    angles: Sequence[float], rates: Sequence[float] = (0.0, 0.0), *, lengths: Sequence[float] = (1.0, 1.0)
) -> State:
    """(q, v) with the angle of each rod from the vertical."""
    angle, rate, length = (jnp.asarray(each) for each in (angles, rates, lengths))
    along = length[:, None] * jnp.stack([jnp.sin(angle), -jnp.cos(angle)], 1)
    across = (length * rate)[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], 1)
    return jnp.concatenate([jnp.cumsum(along, 0).ravel(), jnp.cumsum(across, 0).ravel()])
