"""Whether a twin extrapolates at a sample: one of its learned parts is outside of the region of its training data."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from twinfold.model._learned.base import learned_parts
from twinfold.model._learned.mlp import MLP
from twinfold.typing import Scalar, State


def extrapolates(tree: PyTree, t: Scalar, x: State, w: Float[Array, " d"] | None) -> Bool[Array, ""]:
    """Whether any learned part in `tree` is outside of its region; one that has none never is."""
    found = jnp.array(False)
    for part in learned_parts(tree):
        if isinstance(part, MLP) and part.region is not None:
            u, region = part.features(t, x, w), part.region.value
            found |= jnp.any((u < region.low) | (u > region.high))
    return found
