"""The region of each learned part: the features that a fitted twin meets along its training data."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from twinfold._core import Frozen, quick_jit
from twinfold.data import Dataset
from twinfold.data._rows import simulated_states
from twinfold.model import MLP, Region
from twinfold.model._learned.base import learned_parts
from twinfold.model._learned.region import covered_region
from twinfold.train._problem import TrainingProblem

Tree = TypeVar("Tree")


def bounded_parts(tree: PyTree) -> list[MLP]:
    """The learned parts that do something else outside of their region."""
    return [part for part in learned_parts(tree) if isinstance(part, MLP) and part.outside != "free"]


def with_regions(tree: Tree, regions: Iterable[Region]) -> Tree:
    """`tree` with a region for each of `bounded_parts`."""
    found = [Frozen(region) for region in regions]
    if not found:
        return tree
    return eqx.tree_at(
        lambda tree: [part.region for part in bounded_parts(tree)], tree, found, is_leaf=lambda node: node is None
    )


def without_regions(tree: Tree) -> Tree:
    """`tree` with learned parts that do not know yet what the data cover."""
    known = [part for part in bounded_parts(tree) if part.region is not None]
    if not known:
        return tree
    return eqx.tree_at(
        lambda tree: [part.region for part in bounded_parts(tree) if part.region is not None], tree, [None] * len(known)
    )


def trained_regions(problem: TrainingProblem, params: PyTree, data: Dataset) -> tuple[Region, ...]:
    """The region of each of `bounded_parts`, with a leading axis of seeds.

    Measured states count as they were measured; hidden ones are those that each seed's twin passes through.
    """
    frozen = problem.frozen.twin
    parts = bounded_parts(frozen)
    if not parts:
        return ()
    batch, seeds = data.batch(), jax.tree.leaves(params)[0].shape[0]
    real = np.arange(batch.ts.shape[1]) < np.asarray(batch.length)[:, None]
    t, w = np.asarray(batch.ts)[real], None if batch.w is None else np.asarray(batch.w)[real]
    measured = frozen.observe is None and frozen.trajectory is None
    if measured:
        states = np.where(batch.mask, batch.y, np.nan)[real][None].repeat(seeds, 0)
    else:
        states = np.asarray(_all_states(problem, params, batch))[:, real]

    def region(part: MLP, x: np.ndarray) -> Region:
        chosen = range(x.shape[1]) if part.states is None else part.states
        columns = [x[:, index] for index in chosen]
        columns += [] if w is None else [w[:, index] for index in part.inputs]
        can_err = [measured] * len(chosen) + [True] * len(part.inputs)
        if part.time:
            columns, can_err = [*columns, t], [*can_err, False]
        gives = x.shape[1] if part.adds_to is None else len(part.adds_to)
        return covered_region(part.covered(columns, gives), can_err, part.margin, batch.y.dtype)

    by_seed = ([region(part, x) for x in states] for part in parts)
    return tuple(jax.tree.map(lambda *each: jax.device_put(np.stack(each)), *regions) for regions in by_seed)


@partial(quick_jit, once=True)
def region_scores(problem: TrainingProblem, params: PyTree, regions: tuple[Region, ...]) -> Float[Array, " S"]:
    """The score of each seed with its regions; infinite where it is not a number."""

    def score(params: PyTree, regions: tuple[Region, ...]) -> Float[Array, ""]:
        return replace(problem, frozen=with_regions(problem.frozen, regions)).score(params)

    scores = jax.vmap(score)(params, regions)
    return jnp.where(jnp.isfinite(scores), scores, jnp.inf)


@quick_jit
def _all_states(problem: TrainingProblem, params: PyTree, batch: PyTree) -> jax.Array:
    return jax.vmap(lambda params: simulated_states(eqx.combine(params, problem.frozen).twin, batch))(params)
