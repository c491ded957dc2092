"""Nonlinear spring: a mass in the plane on a stiffening spring with unknown force."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.model import Conserved
from twinfold.systems import System
from twinfold.typing import ConstraintVector, Scalar, State


def nonlinear_spring(energy_only: bool = False, *, stiffness: float = 1.0) -> System:
    """Kinematics known, force unknown, energy E and angular momentum L conserved (E alone if `energy_only`).

        (x, y)' = (u, v),    (u, v)' = -k r^2 (x, y),    r^2 = x^2 + y^2
        E = (u^2 + v^2) / 2 + k r^4 / 4,    L = x v - y u
        f_phys = (u, v, 0, 0),    f_unk = (0, 0, -k r^2 x, -k r^2 y)

    Initial states: x, y, u, v ~ U[-1, 1].
    """

    def truth(t: Scalar, x: State) -> State:
        q, velocity = x[:2], x[2:]
        return jnp.concatenate([velocity, -stiffness * jnp.sum(q**2) * q])

    def physics(t: Scalar, x: State) -> State:
        velocity = x[2:]
        return jnp.concatenate([velocity, jnp.zeros_like(velocity)])

    def invariants(x: State) -> ConstraintVector:
        q, velocity = x[:2], x[2:]
        energy = 0.5 * jnp.sum(velocity**2) + 0.25 * stiffness * jnp.sum(q**2) ** 2
        if energy_only:
            return energy[None]
        return jnp.stack([energy, q[0] * velocity[1] - q[1] * velocity[0]])

    def draw(key: PRNGKeyArray, count: int) -> Float[Array, "count 4"]:
        return jax.random.uniform(key, (count, 4), minval=-1.0, maxval=1.0)

    return System(
        name="nonlinear_spring",
        title="Nonlinear spring",
        state_names=("x", "y", "u", "v"),
        truth=truth,
        physics=physics,
        residual_states=(0, 1, 2, 3),
        residual_adds_to=(2, 3),
        residual_time=False,
        constraint=Conserved(invariants),
        draw=draw,
        dt=0.1,
        horizon=10.0,
        long_horizon=100.0,
        substeps=1,
        train=30,
        valid=10,
        test=100,
        long_test=100,
        notes="Initial states and long horizon: White et al., who enforce E alone; horizon and step of "
        "training are our choice.",
    )
