"""One of two trees, by a traced condition: `jnp.where` for everything that a loop carries."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def choose(first: Bool[Array, ""], a: Any, b: Any) -> Any:
    """`a` where `first`, else `b`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), a, b)
