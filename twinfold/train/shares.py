"""Seeds in equal shares, a thread for each core: XLA runs a small network on one core, whatever the machine has.

Seeds need nothing from each other, and all shares have one size, so that all threads run one compiled program.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


def shares_for(seeds: int, cores: int | None) -> int:
    """How many threads share the seeds: all cores that this process may use when left out; one on an accelerator."""
    if jax.default_backend() != "cpu":
        return 1
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(seeds, cores)


def in_shares(run: Callable[[PyTree], tuple[PyTree, PyTree]], own: PyTree, shares: int, *, together: bool) -> Any:
    """run(own) -> (own, rows), by shares of the leading axis of `own` (second of `rows`); `together`: at one time."""
    if shares == 1:
        return run(own)
    count = jax.tree.leaves(own)[0].shape[0]
    size = -(-count // shares)
    # The last seed is repeated where the shares do not divide evenly.
    parts = np.minimum(np.arange(size * shares), count - 1).reshape(shares, size)
    taken = [jax.tree.map(lambda leaf, part=part: leaf[part], own) for part in parts]
    if together:
        with ThreadPoolExecutor(shares) as pool:
            done = list(pool.map(lambda part: jax.block_until_ready(run(part)), taken))
    else:
        done = [run(part) for part in taken]
    own, rows = zip(*done, strict=True)
    return (
        jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:count], *own),
        jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1)[:, :count], *rows),
    )
