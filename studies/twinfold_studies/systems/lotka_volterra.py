"""Lotka-Volterra: prey and predators with unknown interaction."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.model import Conserved
from twinfold.systems import System
from twinfold.typing import Scalar, State

MAX_LEVEL = 4.0  # of V for an initial state: higher orbits come too close to the axes
MAX_DRAWS = 32  # of an initial state


def lotka_volterra(*, alpha: float = 1.5, beta: float = 1.0, gamma: float = 3.0, delta: float = 1.0) -> System:
    """Growth and decay known, interaction unknown, V conserved.

        x' = alpha x - beta x y,    y' = delta x y - gamma y
        V = delta x - gamma ln x + beta y - alpha ln y
        f_phys = (alpha x, -gamma y),    f_unk = (-beta x y, delta x y)

    Initial states: x ~ U[0.8, 3], y ~ U[0.5, 2.5], redrawn while V > 4.
    """

    def truth(t: Scalar, x: State) -> State:
        prey, predators = x
        encounters = prey * predators
        return jnp.stack([alpha * prey - beta * encounters, delta * encounters - gamma * predators])

    def physics(t: Scalar, x: State) -> State:
        prey, predators = x
        return jnp.stack([alpha * prey, -gamma * predators])

    def potential(x: State) -> Float[Array, ""]:
        prey, predators = x
        return delta * prey - gamma * jnp.log(prey) + beta * predators - alpha * jnp.log(predators)

    def draw(key: PRNGKeyArray, count: int) -> Float[Array, "count 2"]:
        low, high = jnp.array([0.8, 0.5]), jnp.array([3.0, 2.5])
        candidates = jax.random.uniform(key, (count, MAX_DRAWS, 2), minval=low, maxval=high)
        allowed = jax.vmap(jax.vmap(potential))(candidates) <= MAX_LEVEL
        first = jnp.argmax(allowed, axis=1)
        drawn = jnp.take_along_axis(candidates, first[:, None, None], axis=1)[:, 0]
        return eqx.error_if(
            drawn,
            ~jnp.all(jnp.any(allowed, axis=1)),
            f"lotka_volterra: with these parameters V > {MAX_LEVEL} for nearly all initial states; "
            "choose alpha, beta, gamma, delta closer to the defaults.",
        )

    return System(
        name="lotka_volterra",
        title="Lotka-Volterra",
        state_names=("x", "y"),
        truth=truth,
        physics=physics,
        residual_states=(0, 1),
        residual_adds_to=(0, 1),
        residual_time=False,
        constraint=Conserved(potential),
        draw=draw,
        dt=0.05,
        horizon=5.0,
        long_horizon=100.0,
        substeps=1,
        train=30,
        valid=10,
        test=100,
        long_test=100,
        notes="Parameters and initial states: White et al.; horizon and step of training are our choice. "
        "With the default parameters V <= 3.1 for all initial states: none is redrawn.",
    )
