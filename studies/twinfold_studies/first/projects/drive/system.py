"""A drive: motor, elastic shaft, load with unknown friction. Only the speed of the motor is measured."""

from typing import Literal

import jax.numpy as jnp

import twinfold as tw

STATES = ["speed", "twist", "load"]
UNITS = {"time": "s", "speed": "rad/s", "twist": "rad", "load": "rad/s", "torque": "N m"}

MOTOR, LOAD, DAMPING = 0.02, 0.05, 0.05  # [kg m^2], [kg m^2], [N m s/rad]
SEES = {"load": [2], "both speeds": [0, 2], "twist and load": [1, 2]}


def physics(x, w, p):
    """The shaft between motor and load; friction is missing."""
    speed, twist, load = x[0], x[1], x[2]
    shaft = p["stiffness"] * twist + DAMPING * (speed - load)
    return jnp.stack([(w[0] - shaft) / MOTOR, speed - load, shaft / LOAD])


def measured(x):
    """The speed of the motor."""
    return x[:1]


def straight(y):
    """A first guess of the initial state: the shaft is not twisted."""
    return jnp.concatenate([y, jnp.zeros(1), y])


def twin(width: int = 12, sees: str = "load", substeps: int = 1, inputs: Literal["hold", "linear"] = "hold") -> tw.Twin:
    """The twin: a network of the load's speed is its friction."""
    friction = tw.MLP(states=SEES[sees], adds_to=[2], width=width, depth=1, zero_last=True)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=friction),
        params={"stiffness": tw.Unknown(5.0, positive=True)},
        observe=measured,
        initial=straight,
        integrator=tw.RK4(substeps),
        input_interpolation=inputs,
    )
