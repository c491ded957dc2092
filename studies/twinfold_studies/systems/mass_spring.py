"""Mass-spring: a harmonic oscillator with unknown spring force."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.model import Conserved
from twinfold.systems import System
from twinfold.typing import Scalar, State


def mass_spring(*, omega: float = 1.0) -> System:
    """Kinematics known, force unknown, energy E conserved.

        x' = v,    v' = -omega^2 x,    E = (v^2 + omega^2 x^2) / 2
        f_phys = (v, 0),    f_unk = (0, -omega^2 x)

    Initial states: x, v ~ U[-1, 1].
    """

    def truth(t: Scalar, x: State) -> State:
        position, velocity = x
        return jnp.stack([velocity, -(omega**2) * position])

    def physics(t: Scalar, x: State) -> State:
        _, velocity = x
        return jnp.stack([velocity, jnp.zeros_like(velocity)])

    def energy(x: State) -> Float[Array, ""]:
        position, velocity = x
        return 0.5 * (velocity**2 + omega**2 * position**2)

    def draw(key: PRNGKeyArray, count: int) -> Float[Array, "count 2"]:
        return jax.random.uniform(key, (count, 2), minval=-1.0, maxval=1.0)

    return System(
        name="mass_spring",
        title="Mass-spring",
        state_names=("x", "v"),
        truth=truth,
        physics=physics,
        residual_states=(0, 1),
        residual_adds_to=(1,),
        residual_time=False,
        constraint=Conserved(energy),
        draw=draw,
        dt=0.1,
        horizon=10.0,
        long_horizon=100.0,
        substeps=1,
        train=30,
        valid=10,
        test=100,
        long_test=100,
        notes="All settings except omega are our choice: no public source gives them.",
    )
