"""Learned parts: modules that receive their weights late, and the split into trainable and constant arrays.

A twin is written before its data are known, and fitted from many seeds: its learned parts are stored as
descriptions and receive their weights from `initialise`, once for each seed.
"""

import abc
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from twinfold._core import Frozen

Tree = TypeVar("Tree")


class Statistics(eqx.Module):
    """Typical sizes, from the measured values of the training data alone (padding and gaps left out).

    **Example:**

    ```python
    data = tw.Dataset.from_arrays(np.linspace(0, 1, 11), np.ones((3, 11, 2)))
    data.statistics(observed_states=True).x_mean  # [1., 1.]
    ```
    """

    x_mean: Float[Array, " n"] | None
    x_std: Float[Array, " n"] | None
    rate_std: Float[Array, " n"] | None
    w_mean: Float[Array, " d"] | None
    w_std: Float[Array, " d"] | None
    t_mean: Float[Array, ""]
    t_std: Float[Array, ""]


class Context(eqx.Module):
    """What a learned part needs to know of the model it lives in before it can be given weights."""

    states: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    statistics: Statistics | None = None


class AbstractLearned(eqx.Module):
    """A module whose weights are drawn by `initialise`.

    **Example:**

    ```python
    class Gain(tw.model.AbstractLearned):
        # a learned factor, drawn around one
        value: jax.Array | None = None

        def check(self, context):
            pass

        def initialise(self, key, context):
            return Gain(1 + 0.1 * jax.random.normal(key, (), context.dtype))

        def __call__(self, x):
            return self.value * x

    twin = tw.Twin(Gain()).initialise(jax.random.key(0), states=1)
    ```
    """

    @abc.abstractmethod
    def initialise(self, key: PRNGKeyArray, context: Context) -> "AbstractLearned":
        """A copy with freshly drawn weights."""

    @abc.abstractmethod
    def check(self, context: Context) -> None:
        """Raise a `ValueError` that names the argument if the part does not fit the model."""


def _is_learned(node: Any) -> bool:
    return isinstance(node, AbstractLearned)


def _is_frozen(node: Any) -> bool:
    return isinstance(node, Frozen)


def learned_parts(tree: PyTree) -> list[AbstractLearned]:
    """Every learned part, wherever it is inside `tree`."""
    return [node for node in jax.tree.leaves(tree, is_leaf=_is_learned) if _is_learned(node)]


def initialise(tree: Tree, key: PRNGKeyArray, context: Context) -> Tree:
    """`tree` with fresh weights in each of its learned parts."""
    parts = learned_parts(tree)
    for part in parts:
        part.check(context)
    keys = iter(jax.random.split(key, max(len(parts), 1)))
    return jax.tree.map(
        lambda node: node.initialise(next(keys), context) if _is_learned(node) else node,
        tree,
        is_leaf=_is_learned,
    )


def without_learned_parts(tree: Tree) -> Tree:
    """`tree` with the weights of every learned part set to zero, so that it adds nothing."""

    def zeroed(node: Any) -> Any:
        if not _is_learned(node):
            return node
        weights, rest = eqx.partition(node, trainable(node))
        # From the host, where zeros are not a program to compile.
        zeros = jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), weights)
        return eqx.combine(zeros, rest)

    return jax.tree.map(zeroed, tree, is_leaf=_is_learned)


def trainable(tree: PyTree) -> PyTree:
    """True at each floating-point array that training may change: all but what is `Frozen`."""
    return jax.tree.map(
        lambda node: jax.tree.map(lambda _: False, node) if _is_frozen(node) else eqx.is_inexact_array(node),
        tree,
        is_leaf=_is_frozen,
    )


def count_parameters(tree: PyTree) -> int:
    """Number of trainable scalars.

    **Example:**

    ```python
    twin = tw.Twin(tw.BlackBox(tw.MLP(width=4, depth=1))).initialise(jax.random.key(0), states=2)
    tw.model.count_parameters(twin)  # 22
    ```
    """
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(tree, trainable(tree))))
