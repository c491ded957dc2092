"""The learned parts of a twin, and the values that their inputs take along a data set."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import tree_take
from twinfold.data import Batch, Dataset
from twinfold.data._dataset import join, split_rows
from twinfold.data._rows import rows_of, simulated_states
from twinfold.model import MLP, AbstractLearned, Network, Twin, count_parameters

MAX_SAMPLES = 2000
MAX_RECORDED_SAMPLES = 300  # where each call of a network is recorded, which is slow


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Times, states, inputs and run indices along a data set, one row per sample."""

    t: np.ndarray
    x: np.ndarray
    w: np.ndarray | None
    run: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class LearnedPart:
    """A learned part: its `index` among all of them, the names of its inputs and outputs, its size.

    `samples` [N, in] are the values of its inputs along the data; empty if they cannot be observed. `region` [2, in]
    are the ends beyond which it fades or holds its value; `structure`, what is true of it by construction.
    """

    title: str
    kind: str
    index: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: int
    layers: str
    samples: np.ndarray
    region: np.ndarray | None = None
    structure: str = ""


def sample_states(twin: Twin, data: Dataset, max_samples: int = MAX_SAMPLES) -> Samples:
    """Samples spread evenly over a data set, with measured states if most samples are complete, else simulated ones."""
    return sample_splits(twin, {"": data}, max_samples)[""]


def sample_splits(twin: Twin, splits: Mapping[str, Dataset], max_samples: int = MAX_SAMPLES) -> dict[str, Samples]:
    """`sample_states` of each split, simulated together: each shape is a program to compile."""
    rows = rows_of(twin, join(splits.values()))
    twin, batch = rows.adapt(twin), rows.batch
    simulated = functools.cache(lambda: np.asarray(eqx.filter_jit(simulated_states)(twin, batch)))
    return {
        split: _samples(twin, tree_take(batch, rows), lambda rows=rows: simulated()[rows], max_samples)
        for split, rows in split_rows(splits).items()
    }


def _samples(twin: Twin, batch: Batch, simulated: Callable[[], np.ndarray], max_samples: int) -> Samples:
    real = np.arange(batch.ts.shape[1]) < np.asarray(batch.length)[:, None]
    complete = real & np.asarray(batch.mask).all(-1)
    if twin.observe is None and complete.sum() > 0.5 * real.sum():
        xs, real = np.asarray(batch.y), complete
    else:
        xs = simulated()
    rows, columns = np.nonzero(real & np.isfinite(xs).all(-1))
    chosen = spread_indices(len(rows), max_samples)
    rows, columns = rows[chosen], columns[chosen]
    w = None if batch.w is None else np.asarray(batch.w)[rows, columns]
    return Samples(np.asarray(batch.ts)[rows, columns], xs[rows, columns], w, np.asarray(batch.run)[rows])


def spread_indices(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` indices, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))


def describe_parts(twin: Twin, samples: Samples, states: Sequence[str], inputs: Sequence[str]) -> list[LearnedPart]:
    """Every learned part of a twin, with the values of its inputs at these samples; the names of states and inputs."""
    leaves = jax.tree_util.tree_flatten_with_path(twin, is_leaf=_is_learned)[0]
    nodes = [(jax.tree_util.keystr(path).lstrip("."), node) for path, node in leaves if _is_learned(node)]
    recorded = {}
    if any(isinstance(node, Network) for _, node in nodes) and len(samples.t):
        recorded = _recorded_inputs(twin, samples)
    parts = []
    for index, (title, node) in enumerate(nodes):
        network, sees, gives, values, region = None, (), (), np.zeros((0, 0)), None
        if isinstance(node, MLP) and node.network is not None:
            network = node.network
            if node.region is not None:
                region = np.stack([np.asarray(node.region.value.low), np.asarray(node.region.value.high)])
            sees, values = _mlp_inputs(node, samples, states, inputs)
            gives = tuple(f"d{states[i]}/dt" for i in (range(len(states)) if node.adds_to is None else node.adds_to))
        elif isinstance(node, Network):
            network = node
            sees = tuple(f"input {i + 1}" for i in range(node.in_size))
            gives = tuple(f"output {i + 1}" for i in range(node.out_size))
            values = recorded.get(index, values)
        layers = "" if network is None else _layers(network)
        kind = type(node).__name__
        weights, shape = count_parameters(node), _structure(node)
        parts.append(LearnedPart(title, kind, index, sees, gives, weights, layers, values, region, shape))
    return parts


def _mlp_inputs(
    mlp: MLP, samples: Samples, states: Sequence[str], inputs: Sequence[str]
) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and values of the inputs of a residual network: chosen states, chosen inputs, time."""
    chosen = list(range(len(states)) if mlp.states is None else mlp.states)
    names = [*(states[i] for i in chosen), *(inputs[i] for i in mlp.inputs), *(["time"] if mlp.time else [])]
    columns = [samples.x[:, chosen]]
    columns += [samples.w[:, list(mlp.inputs)]] if mlp.inputs and samples.w is not None else []
    columns += [samples.t[:, None]] if mlp.time else []
    return tuple(names), np.concatenate(columns, axis=1)


def _layers(network: Network) -> str:
    return " → ".join(map(str, [network.in_size, *[network.width] * network.depth, network.out_size]))


def _structure(node: AbstractLearned) -> str:
    """What is true of a part by construction, in words."""
    if not isinstance(node, MLP | Network):
        return ""
    within = [] if node.bounds is None else [f"from {node.bounds[0]:g} to {node.bounds[1]:g}"]
    return ", ".join([*node.structure, *within])


class _Recorder(eqx.Module):
    """A network that passes its inputs to `record` at every call."""

    network: Network
    record: Callable = eqx.field(static=True)

    def __call__(self, u: Float[Array, " in"]) -> Float[Array, " out"]:
        jax.debug.callback(self.record, u)
        return self.network(u)


def _recorded_inputs(twin: Twin, samples: Samples) -> dict[int, np.ndarray]:
    """The inputs of each plain network, by index, while field and outputs are evaluated at some of the samples.

    A network inside a user's function can be called with anything, so its inputs are known only when it is called.
    """
    calls: dict[int, list[np.ndarray]] = {}
    indices = itertools.count()

    def with_recorder(node: Any) -> Any:
        index = next(indices) if _is_learned(node) else None
        if index is None or not isinstance(node, Network):
            return node
        calls[index] = []
        return _Recorder(node, lambda u, store=calls[index]: store.append(np.asarray(u)))

    recording = jax.tree.map(with_recorder, twin, is_leaf=_is_learned)

    def evaluate(t: Array, x: Array, w: Any, run: Array) -> tuple[Array, Array]:
        p = recording.parameters(run)
        level = recording.constraint.level(t, x, p)
        return recording.cell.rate(t, x, w, p, level), recording.outputs(t, x, w, p)

    chosen = spread_indices(len(samples.t), MAX_RECORDED_SAMPLES)
    columns = (samples.t, samples.x, samples.w, samples.run)
    t, x, w, run = (None if each is None else jnp.asarray(each[chosen]) for each in columns)
    jax.block_until_ready(jax.jit(jax.vmap(evaluate))(t, x, w, run))
    jax.effects_barrier()
    return {index: np.stack(rows) for index, rows in calls.items() if rows}


def _is_learned(node: Any) -> bool:
    return isinstance(node, AbstractLearned)
