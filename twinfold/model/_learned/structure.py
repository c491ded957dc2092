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

NEAR_ZERO = 0.02  # what a network at zero contributes where its structure excludes zero
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
    names = (structure,) if isinstance(structure, str) else tuple(structure)
    return tuple(name for name in names if name)  # "" is no structure, for settings in a file


def as_bounds(bounds: Any) -> Bounds | None:
    return None if bounds is None or len(bounds) == 0 else (float(bounds[0]), float(bounds[1]))


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


def check_sizes(owner: str, structure: tuple[str, ...], sees: int, gives: int, along: str = "increasing") -> None:
    """Raise a `ValueError` if what is dissipative has too few inputs to resist, or more than one and is monotone.

    `along`: the monotone structure that a dissipative function of one input can have.
    """
    if "dissipative" not in structure:
        return
    if sees < gives:
        raise ValueError(
            f'{owner}(structure="dissipative"): each output resists the input of the same position, and there are '
            f"{gives} outputs and {sees} inputs; give as many of both."
        )
    monotone = [name for name in MONOTONE if name in structure]
    if monotone and (monotone != [along] or sees > 1):
        raise ValueError(f'{owner}(structure="dissipative"): only a function of one input that is {along} can be both.')


def negated(structure: tuple[str, ...]) -> tuple[str, ...]:
    """The structure of the function that is subtracted, where one with this structure is added."""
    swap = {"increasing": "decreasing", "decreasing": "increasing"}
    return tuple(swap.get(name, name) for name in structure)


def centred_inputs(structure: tuple[str, ...], sees: int, gives: int) -> tuple[bool, ...]:
    """Of each input, whether its zero has a meaning, so that units must not move it."""
    return tuple(is_symmetric(structure) or ("dissipative" in structure and index < gives) for index in range(sees))


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
        out = not_negative(out)
    return u[: out.shape[0]] * not_negative(out) if dissipative and not monotone else out


def not_negative(z: Float[Array, " out"]) -> Float[Array, " out"]:
    """A smooth maximum of z and zero. Its slope at zero is a half, so that a network can start there: no step of
    Gauss-Newton is more than twice too long, where that of an exponential would be so by orders of magnitude.
    """
    # (z + sqrt(z^2 + 4 a^2)) / 2 without cancellation, which would not be monotone; jnp.abs has no slope at zero.
    size = jnp.sqrt(z**2 + 4 * NEAR_ZERO**2) + jnp.where(z > 0, z, -z)
    return jnp.where(z > 0, size / 2, 2 * NEAR_ZERO**2 / size)


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
