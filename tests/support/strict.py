"""JAX as it refuses to promote ranks and dtypes by itself."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def strict_promotion() -> Iterator[None]:
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield
