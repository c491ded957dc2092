"""A fixed probe vector, for questions about a matrix that is known by its products only."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def probe(size: int, dtype: jnp.dtype) -> Float[Array, " size"]:
    """A fixed vector without structure, with a part along everything."""
    return jnp.cos(0.6180339887 * jnp.arange(1, size + 1, dtype=dtype) ** 2).astype(dtype)
