"""The double pendulum with any distribution of mass along its rods, in angles and in the positions of its markers.

With the angles th from the direction in which gravity pulls, and torques at the joints u = (u1, u2),

    A th1'' + C (cos(th1 - th2) th2'' + sin(th1 - th2) th2'^2) + D sin th1 = u1 - u2
    B th2'' + C (cos(th1 - th2) th1'' - sin(th1 - th2) th1'^2) + C G sin th2 = u2

A and B are moments of inertia, C and D mixed moments; G is gravity over the length of the first rod.
The same in positions is a mechanism whose mass matrix is constant: kinetic energy is a quadratic form of the velocities
of elbow and tip, since the velocity of every point of a rod is a mean of those of its ends.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import twinfold as tw
from twinfold.typing import Parameters, State


def angular_accelerations(
    angles: Float[Array, " 2"], rates: Float[Array, " 2"], torques: Float[Array, " 2"], p: Parameters
) -> Float[Array, " 2"]:
    """th'' of the equations above, with p["A"], ..., p["D"], p["G"]; p["rotor"], if any, is a motor's in the elbow."""
    sine = p["C"] * jnp.sin(angles[0] - angles[1])
    first = torques[0] - torques[1] - sine * rates[1] ** 2 - p["D"] * jnp.sin(angles[0])
    second = torques[1] + sine * rates[0] ** 2 - p["C"] * p["G"] * jnp.sin(angles[1])
    rotor = p.get("rotor", 0.0)  # it turns with the elbow, th2 - th1
    a, b, c = p["A"] + rotor, p["B"] + rotor, p["C"] * jnp.cos(angles[0] - angles[1]) - rotor
    return jnp.stack([b * first - c * second, a * second - c * first]) / (a * b - c**2)


def joint_rates(rates: Float[Array, " 2"]) -> Float[Array, " 2"]:
    """The rates at which the two joints turn, from those of the rods."""
    return jnp.stack([rates[0], rates[1] - rates[0]])


class Resistance(eqx.Module):
    """What resists the rates of the joints: viscous friction p["viscous"], Coulomb's p["coulomb"], a learned law.

    The law sees the rates divided by `rate`, and its values are multiplied by `torque`. Coulomb's friction sets in over
    `stick`, in the unit of the rates.
    """

    law: Callable | None = None
    rate: float = eqx.field(static=True, default=10.0)
    torque: float = eqx.field(static=True, default=1.0)
    stick: float = eqx.field(static=True, default=0.1)

    def __call__(self, rates: Float[Array, " 2"], p: Parameters) -> Float[Array, " 2"]:
        found = p["viscous"] * rates
        if "coulomb" in p:
            found = found + p["coulomb"] * jnp.tanh(rates / self.stick)
        return found if self.law is None else found + self.torque * self.law(rates / self.rate)


class Angles(eqx.Module):
    """The field in angles, x = (th1, th2, th1', th2'), with what resists at the joints."""

    resistance: Callable

    def __call__(self, x: State, p: Parameters) -> State:
        angles, rates = x[:2] - p["tilt"], x[2:]
        torques = -self.resistance(joint_rates(rates), p)
        return jnp.concatenate([rates, angular_accelerations(angles, rates, torques, p)])


class JointForces(eqx.Module):
    """The resistance at the joints as forces on elbow and tip: F = -(ds/dv)' resistance(s), s the joint rates."""

    resistance: Callable

    def __call__(self, q: Float[Array, " 4"], v: Float[Array, " 4"], p: Parameters) -> Float[Array, " 4"]:
        rates, back = jax.vjp(lambda v: joint_rates(rod_rates(q, v)), v)
        return -back(self.resistance(rates, p))[0]


def rod_rates(q: Float[Array, " 4"], v: Float[Array, " 4"]) -> Float[Array, " 2"]:
    """The rates at which the rods turn, from the positions of elbow and tip and their velocities."""
    along, moving = _by_rod(q), _by_rod(v)
    return (along[:, 0] * moving[:, 1] - along[:, 1] * moving[:, 0]) / jnp.sum(along**2, 1)


def _by_rod(q: Float[Array, " 4"]) -> Float[Array, "2 2"]:
    """From elbow and tip to the two rods."""
    return jnp.stack([q[:2], q[2:] - q[:2]])


def mechanism(resistance: Callable) -> tw.Multibody:
    """The pendulum in positions: q are elbow and tip relative to the pivot, in units of the first rod.

    The second rod has the length p["ratio"]; the first coordinate points down, up to an angle p["tilt"].
    """

    def rods(q: Float[Array, " 4"], p: Parameters) -> Float[Array, " 2"]:
        return 0.5 * (jnp.sum(_by_rod(q) ** 2, 1) - jnp.stack([jnp.ones_like(p["ratio"]), p["ratio"]]) ** 2)

    def mass(p: Parameters) -> Float[Array, "4 4"]:
        tip, both = p["B"] / p["ratio"] ** 2, p["C"] / p["ratio"]
        blocks = jnp.array([[1.0, 0.0], [0.0, 0.0]]) * (p["A"] + tip - 2 * both)
        blocks += jnp.array([[0.0, 1.0], [1.0, 0.0]]) * (both - tip) + jnp.array([[0.0, 0.0], [0.0, 1.0]]) * tip
        return jnp.kron(blocks, jnp.eye(2))

    def potential(q: Float[Array, " 4"], p: Parameters) -> Float[Array, ""]:
        down = jnp.stack([jnp.cos(p["tilt"]), jnp.sin(p["tilt"])])
        first, second = _by_rod(q)
        return -p["D"] * first @ down - p["C"] * p["G"] / p["ratio"] * second @ down

    return tw.Multibody(mass, rods, potential=potential, force=JointForces(resistance))


def positions(angles: Float[Array, "... 2"], ratio: float) -> Float[Array, "... 4"]:
    """Elbow and tip, from the angles of the rods."""
    elbow = jnp.stack([jnp.cos(angles[..., 0]), jnp.sin(angles[..., 0])], -1)
    rod = ratio * jnp.stack([jnp.cos(angles[..., 1]), jnp.sin(angles[..., 1])], -1)
    return jnp.concatenate([elbow, elbow + rod], -1)


def state(angles: Float[Array, " 2"], rates: Float[Array, " 2"], ratio: float) -> Float[Array, " 8"]:
    """(q, v) of a pendulum at these angles, its rods turning at these rates."""
    q, v = jax.jvp(lambda angles: positions(angles, ratio), (jnp.asarray(angles),), (jnp.asarray(rates),))
    return jnp.concatenate([q, v])
