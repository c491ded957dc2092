"""Where the learned parts of a twin are, and what each of them saw along the runs of a data set."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.data import Batch, Dataset
from twinfold.model import MLP, AbstractLearned, Network, Twin, count_parameters
from twinfold.model._simulation import simulate_unchecked
from twinfold.train._prepare import batch_with_run_indices

MOST = 2000  # samples that are looked at
RECORDED = 300  # of them where each call of a network is watched


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A learned part: where it is (`place` among all of them), the names of what it sees and gives, and its weights.

    `seen` [N, in] is what it saw along the training data; empty where that cannot be told.
    """

    title: str
    kind: str
    place: int
    sees: tuple[str, ...]
    gives: tuple[str, ...]
    weights: int
    layers: str
    states: int
    inputs: int
    seen: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Times, states, inputs and run indices along a data set, one row a sample; measured states where they are."""

    t: np.ndarray
    x: np.ndarray
    w: np.ndarray | None
    run: np.ndarray


def samples_of(twin: Twin, data: Dataset, most: int = MOST) -> Samples:
    """Samples spread evenly over a data set.

    States are those that were measured, where most samples are complete; else those that the twin passes through.
    """
    batch = batch_with_run_indices(twin, data)
    real = np.asarray(jnp.arange(batch.ts.shape[1]) < batch.length[:, None])
    complete = real & np.asarray(batch.mask).all(-1)
    if twin.observe is None and complete.sum() > 0.5 * real.sum():
        xs, real = np.asarray(batch.y), complete
    else:
        xs = np.asarray(_states(twin, batch))
    rows, columns = np.nonzero(real & np.isfinite(xs).all(-1))
    keep = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))
    rows, columns = rows[keep], columns[keep]
    w = None if batch.w is None else np.asarray(batch.w)[rows, columns]
    return Samples(np.asarray(batch.ts)[rows, columns], xs[rows, columns], w, np.asarray(batch.run)[rows])


@eqx.filter_jit
def _states(twin: Twin, batch: Batch) -> Float[Array, "R T n"]:
    def run(row: Batch) -> Array:
        p = twin.parameters(row.run)
        x0 = twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)
        trajectory = simulate_unchecked(twin, x0, row.ts, row.w, p, None).trajectory
        xs = jax.vmap(lambda t, x, w: twin.state(t, x, w, p))(row.ts, trajectory.xs, row.w)
        return jnp.where(trajectory.failed, jnp.nan, xs)  # on its way to infinity a run passes through no data

    return jax.vmap(run)(batch)


def parts_of(twin: Twin, samples: Samples, states: Sequence[str], inputs: Sequence[str]) -> list[Part]:
    """Every learned part of a twin, with what it saw at these samples."""
    found = jax.tree_util.tree_flatten_with_path(twin, is_leaf=_is_learned)[0]
    nodes = [(path, node) for path, node in found if _is_learned(node)]
    plain = any(isinstance(node, Network) for _, node in nodes)
    watched = _watched(twin, samples) if plain and len(samples.t) else {}
    return [
        _part(jax.tree_util.keystr(path).lstrip("."), node, place, samples, states, inputs, watched.get(place))
        for place, (path, node) in enumerate(nodes)
    ]


def _part(
    title: str,
    node: AbstractLearned,
    place: int,
    samples: Samples,
    states: Sequence[str],
    inputs: Sequence[str],
    watched: np.ndarray | None,
) -> Part:
    sees, gives, layers, seen = (), (), "", np.zeros((0, 0))
    if isinstance(node, MLP) and node.network is not None:
        picked = range(len(states)) if node.states is None else node.states
        added = range(len(states)) if node.adds_to is None else node.adds_to
        sees = (*(states[i] for i in picked), *(inputs[i] for i in node.inputs), *(["time"] if node.time else []))
        gives = tuple(f"d{states[i]}/dt" for i in added)
        layers = _layers(node.network)
        columns = [samples.x[:, list(picked)]]
        columns += [samples.w[:, list(node.inputs)]] if node.inputs and samples.w is not None else []
        columns += [samples.t[:, None]] if node.time else []
        seen = np.concatenate(columns, axis=1)
    elif isinstance(node, Network):
        sees = tuple(f"input {i + 1}" for i in range(node.in_size))
        gives = tuple(f"output {i + 1}" for i in range(node.out_size))
        layers = _layers(node)
        seen = seen if watched is None else watched
    return Part(
        title,
        type(node).__name__,
        place,
        sees,
        gives,
        count_parameters(node),
        layers,
        len(states),
        len(inputs),
        seen,
    )


def _layers(network: Network) -> str:
    return " → ".join(map(str, [network.in_size, *[network.width] * network.depth, network.out_size]))


class _Watched(eqx.Module):
    """A network that tells what it is called with."""

    inner: Network
    tell: Callable = eqx.field(static=True)

    def __call__(self, u: Float[Array, " in"]) -> Float[Array, " out"]:
        jax.debug.callback(self.tell, u)
        return self.inner(u)


def _watched(twin: Twin, samples: Samples) -> dict[int, np.ndarray]:
    """What each plain network is called with while field and outputs are evaluated at some of the samples.

    Where in a user's own function a network is called, and with what, is known to nobody else.
    """
    calls: dict[int, list[np.ndarray]] = {}
    places = iter(range(len(jax.tree.leaves(twin, is_leaf=_is_learned))))

    def watch(node: Any) -> Any:
        if not _is_learned(node):
            return node
        place = next(places)
        if not isinstance(node, Network):
            return node
        calls[place] = []
        return _Watched(node, lambda u, store=calls[place]: store.append(np.asarray(u)))

    watched = jax.tree.map(watch, twin, is_leaf=_is_learned)
    keep = np.unique(np.linspace(0, len(samples.t) - 1, min(RECORDED, len(samples.t))).astype(int))

    def look(t: Array, x: Array, w: Any, run: Array) -> tuple[Array, Array]:
        p = watched.parameters(run)
        level = watched.constraint.level(t, x, p)
        return watched.cell.rate(t, x, w, p, level), watched.outputs(t, x, w, p)

    w = None if samples.w is None else jnp.asarray(samples.w[keep])
    t, x, run = (jnp.asarray(each[keep]) for each in (samples.t, samples.x, samples.run))
    jax.block_until_ready(jax.jit(jax.vmap(look))(t, x, w, run))
    jax.effects_barrier()
    return {place: np.stack(rows) for place, rows in calls.items() if rows}


def _is_learned(node: Any) -> bool:
    return isinstance(node, AbstractLearned)
