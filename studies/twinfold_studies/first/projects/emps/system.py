"""A positioning drive with unknown friction. The position is measured, the velocity is hidden."""

from typing import Literal

import jax.numpy as jnp

import twinfold as tw

STATES = ["position", "velocity"]
UNITS = {"time": "s", "position": "m", "velocity": "m/s", "voltage": "V"}

GAIN = 35.15065188248547  # [N/V]
SEES = {"velocity": [1], "position and velocity": [0, 1]}


def physics(x, w, p):
    """The motor against viscous and Coulomb friction and a constant force."""
    velocity = x[1]
    friction = p["viscous"] * velocity + p["coulomb"] * jnp.tanh(velocity / 1e-3) + p["offset"]
    return jnp.stack([velocity, (GAIN * w[0] - friction) / p["mass"]])


def measured(x):
    """The position."""
    return x[:1]


def at_rest(y):
    """A first guess of the initial state: at rest."""
    return jnp.concatenate([y, jnp.zeros(1)])


def twin(
    width: int = 12, sees: str = "velocity", substeps: int = 1, inputs: Literal["hold", "linear"] = "hold"
) -> tw.Twin:
    """The twin: a network of the velocity corrects the friction."""
    friction = tw.MLP(states=SEES[sees], adds_to=[1], width=width, depth=1, zero_last=True)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=friction),
        params={
            "mass": tw.Unknown(100.0, positive=True),
            "viscous": tw.Unknown(200.0, positive=True),
            "coulomb": tw.Unknown(20.0, positive=True),
            "offset": tw.Unknown(0.0),
        },
        observe=measured,
        initial=at_rest,
        integrator=tw.RK4(substeps),
        input_interpolation=inputs,
    )
