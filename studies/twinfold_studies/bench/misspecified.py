"""Systems whose model is told something wrong: a parameter, a missing term, a manifold from the wrong physics.

The truth stays what it is. A wrong parameter is held (`learned=False`) or corrected by training (`learned=True`).
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

WRONG = 1.2  # by which factor a parameter is wrong
VARIANTS = {
    "parameter": "a parameter of f_phys is 20 % too large",
    "term": "a term is missing from f_phys",
    "manifold": "the manifold follows from a parameter that is 20 % too large",
}


@dataclasses.dataclass(frozen=True)
class Wrong:
    """How a system can be told wrongly: the name and true value of its parameter, and what depends on it."""

    parameter: str
    true: float
    physics: Callable  # (t, x, p), all of the known part, with the parameter in it
    missing: Callable  # (t, x), without the term
    quantity: Callable  # (x, p), the invariant


def _mass_spring() -> Wrong:
    def physics(t: Scalar, x: State, p: dict[str, Any]) -> State:
        return jnp.stack([x[1], -p["stiffness"] * x[0]])

    def missing(t: Scalar, x: State) -> State:
        return jnp.stack([x[1], jnp.zeros_like(x[1])])

    def quantity(x: State, p: dict[str, Any]) -> Float[Array, ""]:
        return 0.5 * (x[1] ** 2 + p["stiffness"] * x[0] ** 2)

    return Wrong("stiffness", 1.0, physics, missing, quantity)


def _lotka_volterra() -> Wrong:
    def physics(t: Scalar, x: State, p: dict[str, Any]) -> State:
        return jnp.stack([p["alpha"] * x[0], -3.0 * x[1]])

    def missing(t: Scalar, x: State) -> State:
        return jnp.stack([1.5 * x[0], jnp.zeros_like(x[1])])

    def quantity(x: State, p: dict[str, Any]) -> Float[Array, ""]:
        return x[0] - 3.0 * jnp.log(x[0]) + x[1] - p["alpha"] * jnp.log(x[1])

    return Wrong("alpha", 1.5, physics, missing, quantity)


def _rigid_body() -> Wrong:
    def physics(t: Scalar, x: State, p: dict[str, Any]) -> State:
        a, b, c = 1 / 1.6, 1 / p["inertia"], 1.5
        return jnp.stack([(c - b) * x[1] * x[2], (a - c) * x[2] * x[0], (b - a) * x[0] * x[1]])

    def missing(t: Scalar, x: State) -> State:
        known = physics(t, x, {"inertia": 1.0})
        return known.at[2].set(0.0)

    def quantity(x: State, p: dict[str, Any]) -> Float[Array, ""]:
        # The energy: unlike the length of the angular momentum, it depends on the moments of inertia.
        return 0.5 * (x[0] ** 2 / 1.6 + x[1] ** 2 / p["inertia"] + 1.5 * x[2] ** 2)

    return Wrong("inertia", 1.0, physics, missing, quantity)


WRONGS: dict[str, Callable[[], Wrong]] = {
    "mass_spring": _mass_spring,
    "lotka_volterra": _lotka_volterra,
    "rigid_body": _rigid_body,
}


def misspecified(system: System, variant: str, learned: bool) -> System:
    """The system as a misinformed model sees it."""
    if variant not in VARIANTS:
        raise ValueError(f"there is no misspecification {unknown_name(variant, VARIANTS)}")
    if system.name not in WRONGS:
        raise ValueError(f"no misspecification of {system.name} is defined; there are: {', '.join(WRONGS)}.")
    wrong = WRONGS[system.name]()
    value = wrong.true * WRONG
    params = {wrong.parameter: Unknown(value, positive=True) if learned else value}
    if variant == "parameter":
        return dataclasses.replace(system, physics=wrong.physics, params=params)
    if variant == "term":
        return dataclasses.replace(system, physics=wrong.missing)
    return dataclasses.replace(system, constraint=Conserved(wrong.quantity), params=params)
