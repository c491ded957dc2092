"""Pendulum in Cartesian coordinates: the smallest system of index 3."""

import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Friction, Multibody
from twinfold.typing import State


def pendulum(
    *, length: float = 1.0, mass: float = 1.0, gravity: float = 9.81, friction: Callable | None = None
) -> Multibody:
    """A point on a rod that turns about the origin, q = (x, y), y upwards.

        Phi = (|q|^2 - l^2) / 2,    V = m g y,    M = m I

    `friction`: the torque in the joint as a function of its rate (a vector of length 1), or a `Network(1, 1)` to be
    learned; default: conservative.
    """

    def rod(q: Float[Array, " 2"]) -> Float[Array, ""]:
        return 0.5 * (q[0] ** 2 + q[1] ** 2 - length**2)

    def weight(q: Float[Array, " 2"]) -> Float[Array, ""]:
        return mass * gravity * q[1]

    def joint_rate(q: Float[Array, " 2"], v: Float[Array, " 2"]) -> Float[Array, " 1"]:
        return (q[0] * v[1] - q[1] * v[0])[None] / length**2

    force = None if friction is None else Friction(joint_rate, friction, odd=True)
    return Multibody([mass, mass], rod, potential=weight, force=force)


def pendulum_state(angle: float, rate: float = 0.0, *, length: float = 1.0) -> State:
    """(q, v) at an angle from the vertical."""
    s, c = math.sin(angle), math.cos(angle)
    return length * jnp.array([s, -c, rate * c, rate * s])


def pendulum_period(amplitude: float, *, length: float = 1.0, gravity: float = 9.81) -> float:
    """The period without friction, 4 K(sin(amplitude / 2)) sqrt(l / g), by the arithmetic-geometric mean."""
    a, b = 1.0, math.cos(amplitude / 2)
    while abs(a - b) > 1e-15 * a:
        a, b = (a + b) / 2, math.sqrt(a * b)
    return 2 * math.pi / a * math.sqrt(length / gravity)
