"""Operations on whole trees of arrays."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree


def tree_where(condition: Bool[Array, ""], a: Any, b: Any) -> Any:
    """`jnp.where` for every leaf of two trees: `a` where the condition holds, else `b`."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), a, b)


def stop_gradient_tree(tree: Any) -> Any:
    """The same values with zero derivatives."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)


def tree_take(tree: PyTree, index: Any) -> PyTree:
    """The entries at `index` of every array of a tree that is not traced.

    They are taken on the host: on the device, every shape would be a program to compile.
    """
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[index]), tree)


def tree_structure_text(tree: PyTree) -> str:
    """The structure of a tree as text, reproducible across processes.

    Memory addresses are left out, and so is whether a decorator wraps a function.
    """
    return re.sub(r" at 0x[0-9a-f]+", "", eqx.tree_pformat(tree)).replace("<wrapped function ", "<function ")
