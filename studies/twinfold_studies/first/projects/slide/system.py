"""A slide: a mass moved by a motor against unknown friction. The position is measured, the velocity is hidden."""

import jax.numpy as jnp

import twinfold as tw

STATES = ["position", "velocity"]
UNITS = {"time": "s", "position": "m", "velocity": "m/s", "voltage": "V"}

GAIN = 35.0  # [N/V]


def physics(x, w, p):
    """The motor against viscous and Coulomb friction."""
    friction = p["viscous"] * x[1] + p["coulomb"] * jnp.tanh(x[1] / 5e-3)
    return jnp.stack([x[1], (GAIN * w[0] - friction) / p["mass"]])


def measured(x):
    """The position."""
    return x[:1]


def at_rest(y):
    """A first guess of the initial state: at rest."""
    return jnp.concatenate([y, jnp.zeros(1)])


def twin(width: int = 12, substeps: int = 2) -> tw.Twin:
    """The twin: a network of the velocity corrects the friction."""
    friction = tw.MLP(states=[1], adds_to=[1], width=width, depth=1, zero_last=True)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=friction),
        params={
            "mass": tw.Unknown(80.0, positive=True),
            "viscous": tw.Unknown(300.0, positive=True),
            "coulomb": tw.Unknown(15.0, positive=True),
        },
        observe=measured,
        initial=at_rest,
        integrator=tw.RK4(substeps),
    )
