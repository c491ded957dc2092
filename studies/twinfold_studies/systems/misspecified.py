"""Misspecified systems: a wrong parameter, a missing term, or a constraint derived from the wrong parameter.

The true field is unchanged. A wrong parameter is fixed (`learned=False`) or estimated in training (`learned=True`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.io import unknown_name
from twinfold.model import Conserved, Unknown
from twinfold.systems import System
from twinfold.typing import Scalar, State

FACTOR = 1.2  # wrong value over true value of a parameter
VARIANTS = {
    "parameter": "a parameter of f_phys is 20 % too large",
    "term": "a term is missing from f_phys",
    "manifold": "the constraint is derived from a parameter that is 20 % too large",
}


@dataclasses.dataclass(frozen=True)
class Misspecification:
    """The parameter of a system that is misspecified, its true value, and the functions that depend on it."""

    parameter: str
    true: float
    physics: Callable  # (t, x, p): the known part of the field
    missing: Callable  # (t, x): the known part without one term
    quantity: Callable  # (x, p): the conserved quantity


def _mass_spring() -> Misspecification:
    def physics(t: Scalar, x: State, p: dict[str, Any]) -> State:
        return jnp.stack([x[1], -p["stiffness"] * x[0]])

    def missing(t: Scalar, x: State) -> State:
        return jnp.stack([x[1], jnp.zeros_like(x[1])])

    def quantity(x: State, p: dict[str, Any]) -> Float[Array, ""]:
        return 0.5 * (x[1] ** 2 + p["stiffness"] * x[0] ** 2)

    return Misspecification("stiffness", 1.0, physics, missing, quantity)


def _lotka_volterra() -> Misspecification:
    def physics(t: Scalar, x: State, p: dict[str, Any]) -> State:
        return jnp.stack([p["alpha"] * x[0], -3.0 * x[1]])

    def missing(t: Scalar, x: State) -> State:
        return jnp.stack([1.5 * x[0], jnp.zeros_like(x[1])])

    def quantity(x: State, p: dict[str, Any]) -> Float[Array, ""]:
        return x[0] - 3.0 * jnp.log(x[0]) + x[1] - p["alpha"] * jnp.log(x[1])

    return Misspecification("alpha", 1.5, physics, missing, quantity)


def _rigid_body() -> Misspecification:
    def physics(t: Scalar, x: State, p: dict[str, Any]) -> State:
        a, b, c = 1 / 1.6, 1 / p["inertia"], 1.5
        return jnp.stack([(c - b) * x[1] * x[2], (a - c) * x[2] * x[0], (b - a) * x[0] * x[1]])

    def missing(t: Scalar, x: State) -> State:
        known = physics(t, x, {"inertia": 1.0})
        return known.at[2].set(0.0)

    def quantity(x: State, p: dict[str, Any]) -> Float[Array, ""]:
        # The energy, because the length of the angular momentum does not depend on the moments of inertia.
        return 0.5 * (x[0] ** 2 / 1.6 + x[1] ** 2 / p["inertia"] + 1.5 * x[2] ** 2)

    return Misspecification("inertia", 1.0, physics, missing, quantity)


MISSPECIFICATIONS: dict[str, Callable[[], Misspecification]] = {
    "mass_spring": _mass_spring,
    "lotka_volterra": _lotka_volterra,
    "rigid_body": _rigid_body,
}


def misspecified(system: System, variant: str, learned: bool) -> System:
    """The system with the physics or the constraint that the model assumes.

    **Arguments:** `system`; `variant`, one of `VARIANTS`; `learned`: whether training may correct the parameter.
    """
    if variant not in VARIANTS:
        raise ValueError(f"there is no misspecification {unknown_name(variant, VARIANTS)}")
    if system.name not in MISSPECIFICATIONS:
        raise ValueError(
            f"no misspecification is defined for {system.name}; there are: {', '.join(MISSPECIFICATIONS)}."
        )
    wrong = MISSPECIFICATIONS[system.name]()
    value = wrong.true * FACTOR
    params = {wrong.parameter: Unknown(value, positive=True) if learned else value}
    if variant == "parameter":
        return dataclasses.replace(system, physics=wrong.physics, params=params)
    if variant == "term":
        return dataclasses.replace(system, physics=wrong.missing)
    return dataclasses.replace(system, constraint=Conserved(wrong.quantity), params=params)
