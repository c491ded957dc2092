"""A pendulum with unknown friction. Angle and velocity are measured, the latter in a unit of its own."""

from collections.abc import Sequence

import jax.numpy as jnp

import twinfold as tw

STATES = ["theta", "omega"]
UNITS = {"theta": "rad"}

SEES = {"velocity": [1], "angle and velocity": [0, 1]}


def physics(x, p):
    """Gravity; friction is missing."""
    return jnp.stack([p["unit"] * x[1], -p["gravity"] * jnp.sin(x[0])])


def twin(width: int = 12, sees: str = "velocity", substeps: int = 1, adds_to: Sequence[int] = (1,)) -> tw.Twin:
    """The twin: a network of the velocity is the friction."""
    friction = tw.MLP(states=SEES[sees], adds_to=adds_to, width=width, depth=1, zero_last=True)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=friction),
        params={"unit": tw.Unknown(1.0, positive=True), "gravity": tw.Unknown(1.0, positive=True)},
        integrator=tw.RK4(substeps),
    )
