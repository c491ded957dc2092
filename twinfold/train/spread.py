"""Seeds over all local devices: several accelerators, or the cores of a CPU after `twinfold.use_cores()`.

XLA runs a small network on one core, whatever the machine has. Seeds need nothing from each other, so each device
advances its share of them.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

AXIS = "seeds"


def over_devices(seeds: int) -> Mesh | None:
    """The devices that `seeds` seeds are spread over; None where one does it all."""
    devices = jax.local_devices()[:seeds]
    return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


def spread(fn: Callable, mesh: Mesh | None, shared: PyTree, own: PyTree) -> tuple[PyTree, PyTree]:
    """fn(shared, own) -> (own, rows), each device with its share of the leading axis of `own` (second of `rows`)."""
    if mesh is None:
        return fn(shared, own)
    count = jax.tree.leaves(own)[0].shape[0]
    # Shares of one size: the last seed is repeated where they do not divide evenly.
    filled = np.minimum(np.arange(-(-count // mesh.size) * mesh.size), count - 1)
    arrays, static = eqx.partition(shared, eqx.is_array)
    each, every = PartitionSpec(AXIS), PartitionSpec()

    def share(arrays: PyTree, own: PyTree) -> tuple[PyTree, PyTree]:
        return fn(eqx.combine(arrays, static), own)

    rows = PartitionSpec(None, AXIS)
    run = jax.shard_map(share, mesh=mesh, in_specs=(every, each), out_specs=(each, rows), check_vma=False)
    own, history = run(arrays, jax.tree.map(lambda leaf: leaf[filled], own))
    out = jax.tree.map(lambda leaf: leaf[:count], own), jax.tree.map(lambda leaf: leaf[:, :count], history)
    return jax.lax.with_sharding_constraint(out, NamedSharding(mesh, every))


def on_all(tree: PyTree, mesh: Mesh | None) -> Any:
    """A copy on every device: what a compiled chunk takes and returns, so that all chunks run the same program."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def on_one(tree: PyTree) -> Any:
    """The copy of the first device, for everything that is not training."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.addressable_data(0)), tree)
