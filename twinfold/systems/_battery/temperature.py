"""Temperature in a cell: Arrhenius factors of its parameters, and a lumped thermal model that makes it a state.

    R(T) = R exp(E / R_gas (1/T - 1/T_ref)),    C_th dT/dt = heat - (T - T_ambient) / R_th,
    heat = i (U - V) - i T dU/dT    (Bernardi et al., 1985: overpotentials and entropy)

Temperatures are in degrees Celsius wherever a user sees them; T_ref is 25 degrees.
"""

from typing import Any, Literal, TypeAlias, get_args

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.systems._battery.parameters import GAS, KELVIN
from twinfold.typing import Parameters, State

Number: TypeAlias = Float[Array, ""]
Temperature = Literal["input", "state", "output"]
T_REF = 25.0  # degrees Celsius, at which resistances and rates have their plain values
# Of an 18650 cell in still air: 45 g of about 1 J/g/K, and a surface of 42 cm2 that loses about 10 W/m2/K.
THERMAL = {"C_th": 45.0, "R_th": 20.0, "dU_dT": 0.0}  # J/K, K/W, V/K


def check_temperature(temperature: str) -> None:
    if temperature not in get_args(Temperature):
        raise ValueError(f'temperature={temperature!r}: give "input", "state" or "output".')


def arrhenius(energy: Number, celsius: Number) -> Number:
    """exp(E / R_gas (1/T - 1/T_ref)): the factor of a resistance; that of a rate or conductance is its inverse."""
    return jnp.exp(energy / GAS * (1 / (celsius + KELVIN) - 1 / (T_REF + KELVIN)))


def generated_heat(current: Number, loss: Number, slope: Number, celsius: Number) -> Number:
    """i (U - V) - i T dU/dT in watt, where `loss` is U - V and `slope` is dU/dT."""
    return current * (loss - (celsius + KELVIN) * slope)


def temperature_rate(heat: Number, celsius: Number, ambient: Number, p: Parameters) -> Number:
    """dT/dt of the lumped thermal model."""
    return (heat - (celsius - ambient) / p["R_th"]) / p["C_th"]


def inner_inputs(x: State, w: Float[Array, "2"]) -> Float[Array, "2"]:
    """The current and the temperature of the cell, which is the last state."""
    return jnp.stack([w[0], x[-1]])


def first_temperature(y: Any, w: Float[Array, " d"]) -> Number:
    """The temperature at the start of a run: the first sample, or the ambient if it was not measured."""
    if y is None or y.shape[0] < 2:
        return w[1]
    return jnp.where(jnp.isfinite(y[1]), y[1], w[1])
