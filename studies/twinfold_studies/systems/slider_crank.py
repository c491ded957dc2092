"""Slider-crank: a closed linkage of two rods and a piston, three constraints for four coordinates."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.model import Friction, Multibody
from twinfold.typing import State


def slider_crank(
    *,
    crank: float = 0.5,
    rod: float = 1.5,
    masses: tuple[float, float, float] = (1.0, 1.0, 0.5),
    gravity: float = 9.81,
    friction: Callable | None = None,
) -> Multibody:
    """A crank turns about the origin, a rod joins its end a to a slider b on the horizontal axis, q = (a, b).

        Phi = ((|a|^2 - r^2) / 2, (|b - a|^2 - l^2) / 2, b_y)
        M from uniform rods: m_r / 3 at a, m_l / 6 [2 1; 1 2] between a and b, m_s at b; V from their weight

    The rod must be longer than the crank, so that no configuration is singular.

    **Arguments:** the lengths; `masses` of crank, rod and slider; `friction`: the resistance of the slider as a
    function of its velocity; default: conservative.
    """
    if not 0 < crank < rod:
        raise ValueError(f"slider_crank(crank={crank}, rod={rod}): the rod must be longer than the crank.")

    def linkage(q: Float[Array, " 4"]) -> Float[Array, " 3"]:
        x, y = q[2] - q[0], q[3] - q[1]
        return jnp.stack([0.5 * (q[0] ** 2 + q[1] ** 2 - crank**2), 0.5 * (x**2 + y**2 - rod**2), q[3]])

    def weight(q: Float[Array, " 4"]) -> Float[Array, ""]:
        return gravity * (0.5 * (masses[0] + masses[1]) * q[1] + (0.5 * masses[1] + masses[2]) * q[3])

    def slider_velocity(v: Float[Array, " 4"]) -> Float[Array, " 1"]:
        return v[2:3]

    points = np.array([[masses[0] / 3 + masses[1] / 3, masses[1] / 6], [masses[1] / 6, masses[1] / 3 + masses[2]]])
    force = None if friction is None else Friction(slider_velocity, friction, odd=True)
    return Multibody(np.kron(points, np.eye(2)), linkage, potential=weight, force=force)


def slider_crank_state(angle: float, rate: float, *, crank: float = 0.5, rod: float = 1.5) -> State:
    """(q, v) with the angle of the crank from the axis of the slider, which is on the positive side."""
    s, c = crank * np.sin(angle), crank * np.cos(angle)
    reach = np.sqrt(rod**2 - s**2)
    return jnp.array([c, s, c + reach, 0.0, -rate * s, rate * c, -rate * s - rate * s * c / reach, 0.0])
