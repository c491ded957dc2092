"""The sensitivities of the measured outputs in all that is to be estimated, before any training.

    J = d (predicted outputs) / d (raw parameters, last layers of the networks)    at the first guess, networks at zero

A last layer is where a network at zero differs from one that is not: its bias adds a constant to one residual output,
its weights add smooth functions of what the network sees.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from twinfold.check._subject import Subject, subject_of
from twinfold.model import MLP, Network, Unknown
from twinfold.train import Loss
from twinfold.train._estimate import Estimate
from twinfold.train._objective import Objective
from twinfold.train._prepare import batch_with_run_indices

BUDGET = 4000  # samples that are looked at: more runs tell a parameter better, hardly whether it can be told at all
WINDOW = 41  # samples of a window where the state is measured: there the physics stays near the data
QUIET = 1e-3  # of an output's spread: noise is taken to be at least that, no model is better


@dataclass(frozen=True, eq=False)
class Column:
    """One number that is to be estimated.

    `part` is the residual output that it belongs to, "" for a parameter; `bias`: whether it is the constant of that
    output; `size`: how large it may be beforehand; `positive`: whether it moves the logarithm of a parameter.
    """

    name: str
    part: str = ""
    bias: bool = False
    size: float = 1.0
    positive: bool = False


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """J [N, k, P] with outputs in units of their spread, its P columns, and the noise [k] in the same units."""

    jacobian: np.ndarray
    columns: tuple[Column, ...]
    noise: np.ndarray


def with_few(subject: Subject, names: list[str]) -> Subject:
    """The same with as many of these runs as the budget allows, evenly chosen."""
    samples = np.mean([len(run.ts) for run in subject.data.runs])
    count = int(np.clip(BUDGET / samples, 1, len(names)))
    chosen = [names[k] for k in np.unique(np.linspace(0, len(names) - 1, count).astype(int))]
    if len(chosen) == len(subject.data) or subject.given.runs is not None:
        return subject
    return subject_of(subject.given, subject.data.select(chosen), subject.states, subject.units, subject.seed)


def sensitivities(subject: Subject, names: list[str]) -> Sensitivities:
    """J at the first guess, along windows from measured states, or along whole runs where these are not measured.

    **Arguments:** `subject`; `names` of the runs to look at.
    """
    few = with_few(subject, names)
    twin, data = few.twin, few.data
    measured = few.given.observe is None and few.given.trajectory is None
    complete = bool(np.all([np.isfinite(run.y).all() for run in data.runs]))
    longest = max(len(run.ts) for run in data.runs)
    batch = data.windows(min(WINDOW, longest)) if measured and complete else batch_with_run_indices(twin, data)
    columns = _columns(few)
    spec = eqx.tree_at(_leaves, jax.tree.map(lambda _: False, twin), [True] * len(_leaves(twin)))
    params, fixed = eqx.partition(twin, spec)
    v, unravel = ravel_pytree(params)
    assert v.size == len(columns)
    scale = jnp.asarray(subject.spread, batch.y.dtype)
    objective = Objective(Loss(), scale, jnp.ones(few.count, batch.y.dtype))
    jacobian = np.asarray(_jacobian(objective, unravel, fixed, v, batch))
    measurements = int(np.asarray(batch.mask).sum())
    jacobian = jacobian[: batch.y.size].reshape(-1, batch.y.shape[-1], v.size) * np.sqrt(measurements)
    noise = np.maximum(np.nan_to_num(subject.noise / subject.spread), QUIET)
    return Sensitivities(jacobian, columns, noise)


@eqx.filter_jit
def _jacobian(objective: Objective, unravel: Any, fixed: Any, v: Array, batch: Any) -> Array:
    def rebuild(v: Array) -> Estimate:
        return Estimate(eqx.combine(unravel(v), fixed), None)

    return objective.residuals_and_jacobian(rebuild, v, batch, jnp.arange(batch.size))[1]


def _leaves(tree: Any) -> list:
    """The raw unknowns and the last layers, in the order of the tree's own leaves."""
    out = []
    for node in jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Unknown | Network)):
        if isinstance(node, Unknown):
            out.append(node.raw)
        elif isinstance(node, Network) and node.weights is not None:
            out += [node.weights.layers[-1].weight, node.weights.layers[-1].bias]
    return out


def _columns(subject: Subject) -> tuple[Column, ...]:
    """A column for each number in `_leaves`."""
    columns: list[Column] = []
    places = jax.tree_util.tree_flatten_with_path(
        subject.twin, is_leaf=lambda node: isinstance(node, Unknown | MLP | Network)
    )
    for path, node in places[0]:
        where = jax.tree_util.keystr(path)
        if isinstance(node, Unknown):
            columns += [Column(name, positive=node.positive) for name in _names(where, node, subject)]
            continue
        network = node.network if isinstance(node, MLP) else node
        if not isinstance(network, Network) or network.weights is None:
            continue
        parts, sizes = _outputs(where, node, network, subject)
        outputs = list(zip(parts, sizes.tolist(), strict=True))
        # All functions of a residual together are believed to be as large as the rates.
        width = network.weights.layers[-1].weight.shape[1]
        for part, size in outputs:
            columns += [Column(f"{part} ({k})", part, size=size / np.sqrt(width)) for k in range(width)]
        columns += [Column(part, part, bias=True, size=size) for part, size in outputs]
    return tuple(columns)


def _outputs(where: str, node: Any, network: Network, subject: Subject) -> tuple[list[str], np.ndarray]:
    """Names of a network's outputs, and how large each is believed to be."""
    if not isinstance(node, MLP):
        label = where.strip(".").replace(".", " ")
        return [f"{label}[{k}]" for k in range(network.out_size)], np.ones(network.out_size)
    adds_to = range(subject.count) if node.adds_to is None else node.adds_to
    rates = _rates(subject)[list(adds_to)]
    if node.units is not None:
        rates = rates / np.asarray(node.units.value.output)
    return [subject.state_names[state] for state in adds_to], rates


def _rates(subject: Subject) -> np.ndarray:
    """The usual size of dx/dt, along the states that are known."""
    ts, length, source = np.asarray(subject.batch.ts), np.asarray(subject.batch.length), subject.rolled[0].xs
    if subject.given.observe is None:
        source = np.where(np.asarray(subject.batch.mask), np.asarray(subject.batch.y), np.nan)
    slopes = [np.diff(x[:n], axis=0) / np.diff(t[:n])[:, None] for x, t, n in zip(source, ts, length, strict=True)]
    size = np.sqrt(np.nanmean(np.concatenate(slopes) ** 2, axis=0))
    return np.where(size > 0, size, 1.0)


def _names(where: str, node: Unknown, subject: Subject) -> list[str]:
    """params['k'] is k; a vector has numbers, and what belongs to single runs their names."""
    label = where.replace(".params['", "").replace("']", "").strip(".").replace("['", ".").replace("[", ".").strip("]")
    owners = [""]
    if node.owner is not None:
        distinct = list(dict.fromkeys(subject.data.groups)) if node.per_group else list(subject.data.names)
        owners = [f" of {name}" for name in distinct]
    shape = node.start.value.shape
    entries = [""] if not shape else [str(list(index)) for index in np.ndindex(*shape)]
    return [f"{label}{entry}{owner}" for owner in owners for entry in entries]
