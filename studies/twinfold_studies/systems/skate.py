"""Skate on an inclined plane: a blade that cannot move sideways, a constraint on velocities (index 2)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Multibody
from twinfold.typing import Scalar, State


def skate(*, mass: float = 1.0, inertia: float = 0.3, slope: float = 2.0) -> Multibody:
    """q = (x, y, phi), down the plane along x; the blade points along (cos phi, sin phi).

        Psi = x' sin phi - y' cos phi,    V = -m s x

    Nonholonomic: every position can be reached, so positions are not projected. `slope` is s = g sin(inclination).
    """

    def blade(q: Float[Array, " 3"], v: Float[Array, " 3"]) -> Float[Array, ""]:
        return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])

    def weight(q: Float[Array, " 3"]) -> Float[Array, ""]:
        return -mass * slope * q[0]

    return Multibody([mass, mass, inertia], velocity=blade, potential=weight)


def skate_motion(t: Scalar, rate: float, *, slope: float = 2.0) -> State:
    """The state at t of a skate that starts at rest at the origin and turns at `rate`: a cycloid across the slope.

    x = s / (2 rate^2) sin^2(rate t),    y = s / (2 rate^2) (rate t - sin(2 rate t) / 2),    phi = rate t
    """
    size, angle = slope / (2 * rate**2), rate * t
    speed = 2 * size * rate * jnp.sin(angle)
    return jnp.stack(
        [
            size * jnp.sin(angle) ** 2,
            size * (angle - jnp.sin(2 * angle) / 2),
            jnp.asarray(angle),
            speed * jnp.cos(angle),
            speed * jnp.sin(angle),
            jnp.full_like(speed, rate),
        ]
    )
