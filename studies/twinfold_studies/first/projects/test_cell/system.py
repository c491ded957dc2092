"""A test cell: air and envelope, two thermal masses. The air is measured; how the sun warms the envelope is unknown."""

from typing import Literal

import jax.numpy as jnp

import twinfold as tw

STATES = ["T_in", "T_wall"]
UNITS = {"time": "h", "T_in": "degC", "T_wall": "degC", "T_out": "degC", "heat": "kW", "sun": "kW/m2"}

SEES = {"sun": ([], [2]), "weather": ([], [0, 2]), "all": ([0, 1], [0, 2])}  # states, inputs
GUESSES = {"R_in": 5.0, "R_out": 30.0, "C_in": 0.5, "C_wall": 2.0, "aperture": 0.5}  # [K/kW], [kWh/K], [m^2]


def physics(x, w, p):
    """Heat between air, envelope and outdoors; heater and sun warm the air."""
    inwards, outwards = (x[1] - x[0]) / p["R_in"], (x[1] - w[0]) / p["R_out"]
    return jnp.stack([(inwards + w[1] + p["aperture"] * w[2]) / p["C_in"], (-inwards - outwards) / p["C_wall"]])


def measured(x):
    """The temperature of the air."""
    return x[:1]


def balanced(y):
    """A first guess of the initial state: the envelope is as warm as the air."""
    return jnp.concatenate([y, y])


def twin(width: int = 12, sees: str = "sun", substeps: int = 1, inputs: Literal["hold", "linear"] = "hold") -> tw.Twin:
    """The twin: a network of the sun warms the envelope."""
    states, features = SEES[sees]
    warming = tw.MLP(states=states, inputs=features, adds_to=[1], width=width, depth=1, zero_last=True)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=warming),
        params={name: tw.Unknown(value, positive=True) for name, value in GUESSES.items()},
        observe=measured,
        initial=balanced,
        integrator=tw.RK4(substeps),
        input_interpolation=inputs,
    )
