"""Structure of a network that holds by construction, whatever its weights are.

A law of friction acts against the motion, a characteristic curve does not fall, a flow is not negative: what is known
about the shape of an unknown function need not be learned, and holds where there are no data.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

NEAR_ZERO = 4.0  # softplus(-4) = 0.018: a network at zero contributes next to nothing
STRUCTURES = ("odd", "even", "increasing", "decreasing", "positive", "dissipative")
MONOTONE = ("increasing", "decreasing")
MONOTONE_ACTIVATIONS = (jnp.tanh, jax.nn.tanh, jax.nn.sigmoid, jax.nn.softplus, jax.nn.relu, jax.nn.elu)
# Two that only a constant, or only zero, satisfies.
IMPOSSIBLE = (
    ("odd", "even", "only zero is both"),
    ("odd", "positive", "an odd function changes its sign"),
    ("even", "increasing", "only a constant is both"),
    ("even", "decreasing", "only a constant is both"),
    ("increasing", "decreasing", "only a constant is both"),
    ("dissipative", "even", "what acts against the motion changes its sign with it"),
    ("dissipative", "positive", "what acts against the motion changes its sign with it"),
)

Bounds = tuple[float, float]
Function = Callable[[Float[Array, " in"]], Float[Array, " out"]]


def as_structure(structure: str | Sequence[str]) -> tuple[str, ...]:
    return (structure,) if isinstance(structure, str) else tuple(structure)


def as_bounds(bounds: Any) -> Bounds | None:
    return None if bounds is None else (float(bounds[0]), float(bounds[1]))


def check_structure(owner: str, structure: tuple[str, ...], bounds: Bounds | None, activation: Callable) -> None:
    """Raise a `ValueError` for a structure that no function but a trivial one has."""
    for name in structure:
        if name not in STRUCTURES:
            raise ValueError(f"{owner}(structure={name!r}): give one or several of {', '.join(STRUCTURES)}.")
    for first, second, reason in IMPOSSIBLE:
        if first in structure and second in structure:
            raise ValueError(f'{owner}(structure=["{first}", "{second}"]): {reason}; leave one out.')
    if is_monotone(structure) and activation not in MONOTONE_ACTIVATIONS:
        raise ValueError(
            f"{owner}(structure={list(structure)}): the network is monotone only with a monotone activation: tanh, "
            "sigmoid, softplus, relu or elu."
        )
    if bounds is None:
        return
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"{owner}(bounds={bounds}): give two finite numbers, the lower one first.")
    if ("odd" in structure or "dissipative" in structure) and not low < 0 < high:
        raise ValueError(f"{owner}(bounds={bounds}, structure={list(structure)}): zero must be between the bounds.")
    if "odd" in structure and low != -high:
        raise ValueError(f'{owner}(bounds={bounds}, structure="odd"): give bounds of equal size on both sides.')
    if "positive" in structure and low < 0:
        raise ValueError(f'{owner}(bounds={bounds}, structure="positive"): the lower bound must not be negative.')


def is_monotone(structure: tuple[str, ...]) -> bool:
    """Whether the weights of the network must not be negative."""
    return any(name in structure for name in MONOTONE)


def is_symmetric(structure: tuple[str, ...]) -> bool:
    """Whether it relates u and -u."""
    return "odd" in structure or "even" in structure


def structured(network: Function, u: Float[Array, " in"], structure: tuple[str, ...]) -> Float[Array, " out"]:
    """The network at u with this structure, before its bounds; it is increasing if the structure is monotone."""
    dissipative, monotone = "dissipative" in structure, is_monotone(structure)
    if "odd" in structure and (monotone or not dissipative):
        out = (network(u) - network(-u)) / 2
    elif is_symmetric(structure):
        out = (network(u) + network(-u)) / 2
    elif dissipative and monotone:
        out = network(u) - network(jnp.zeros_like(u))
    else:
        out = network(u)
    if "decreasing" in structure:
        out = -out
    if "positive" in structure:
        out = jax.nn.softplus(out - NEAR_ZERO)
    return u * jax.nn.softplus(out - NEAR_ZERO) if dissipative and not monotone else out


def bounded(out: Float[Array, " out"], structure: tuple[str, ...], bounds: Bounds | None) -> Float[Array, " out"]:
    """`out` between its bounds: monotone, and zero where `out` is zero if that is between them."""
    if bounds is None:
        return out
    low, high = bounds
    if low < 0 < high:
        limit = jnp.where(out >= 0, jnp.asarray(high, out.dtype), jnp.asarray(-low, out.dtype))
        return limit * jnp.tanh(out / limit)
    if "positive" in structure:
        return low + (high - low) * jnp.tanh(out / (high - low))
    return low + (high - low) * jax.nn.sigmoid(4 * out / (high - low))
