"""The sensitivities of the outputs to everything that is to be estimated, before any training.

    J = d (predicted outputs) / d (raw parameters, last layers of the networks)    at the first guess, networks at zero

A network at zero differs from others only in its last layer: the bias adds a constant to one residual output, the
weights add smooth functions of the network's inputs.
"""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from twinfold.check._subject import Subject, spaced_indices
from twinfold.data import Batch
from twinfold.data._rows import known_batch
from twinfold.model import MLP, Network, Twin, Unknown
from twinfold.train import Loss, TrainingProblem
from twinfold.train._estimate import Estimate

MAX_SAMPLES = 4000  # more runs sharpen an estimate, but rarely change whether there is one
WINDOW = 41  # samples of a window from a measured state, within which the physics stays close to the data
MIN_NOISE = 1e-3  # of an output's spread: no model is more accurate


@dataclass(frozen=True, eq=False)
class Column:
    """One number to be estimated.

    `part` is the residual output that it belongs to, "" for a parameter; `bias`: whether it is the constant of that
    output; `size`, its prior standard deviation; `positive`: whether it is the logarithm of a parameter; `start`, the
    state of which it is the value at the start of a run, "" for anything else.
    """

    name: str
    part: str = ""
    bias: bool = False
    size: float = 1.0
    positive: bool = False
    start: str = ""


@dataclass(frozen=True, eq=False)
class Sensitivities:
    """J [N, k, P] with outputs in units of their spread, its P columns, and the noise [k] in the same units.

    `noise_is_known`: whether the data show how large it is.
    """

    jacobian: np.ndarray
    columns: tuple[Column, ...]
    noise: np.ndarray
    noise_is_known: bool


def compute_sensitivities(subject: Subject, runs: list[str]) -> Sensitivities:
    """Return J at the first guess, along windows from measured states, or along whole runs if these are not measured.

    **Arguments:** `subject`; the names of the `runs` to use, of which `MAX_SAMPLES` may leave some out.
    """
    part = _select_runs(subject, runs)
    twin, data = part.physics, part.data
    longest = max(len(run.ts) for run in data.runs)
    batch = data.windows(min(WINDOW, longest)) if part.samples_are_states else known_batch(twin, data)
    problem, params = estimation_problem(subject, twin, batch)
    columns = describe_columns(part)
    jacobian = np.asarray(residuals_and_jacobian(problem, params)[1])[: batch.y.size]
    jacobian = jacobian.reshape(-1, batch.y.shape[-1], len(columns)) * np.sqrt(int(np.asarray(batch.mask).sum()))
    return Sensitivities(jacobian, columns, relative_noise(subject), bool(np.isfinite(subject.noise).all()))


def relative_noise(subject: Subject) -> np.ndarray:
    """Return the noise of each output in units of its spread; `MIN_NOISE` where it is unknown."""
    return np.maximum(np.nan_to_num(subject.noise / subject.spread), MIN_NOISE)


def estimation_problem(subject: Subject, twin: Twin, batch: Batch) -> tuple[TrainingProblem, Estimate]:
    """Return the least-squares problem of all that is to be estimated in `twin`, and its values."""
    scale = jax.device_put(subject.spread.astype(batch.y.dtype))
    params, frozen = _partition(Estimate(twin, None))
    rate = jax.device_put(np.ones(subject.state_count, batch.y.dtype))
    return TrainingProblem(Loss(), scale, rate, batch, None, frozen), params


@eqx.filter_jit
def residuals_and_jacobian(problem: TrainingProblem, params: Any) -> tuple[Array, Array]:
    """Return r and dr/dv, see `TrainingProblem`."""
    return problem.residuals_and_jacobian(params)[:2]


def _select_runs(subject: Subject, runs: list[str]) -> Subject:
    """The same with evenly chosen runs of at most `MAX_SAMPLES` samples in total."""
    samples = np.mean([len(run.ts) for run in subject.data.runs])
    count = int(np.clip(MAX_SAMPLES / samples, 1, len(runs)))
    chosen = [runs[k] for k in spaced_indices(len(runs), count)]
    if len(chosen) == len(subject.data) or subject.given.runs is not None:
        return subject
    return replace(subject, data=subject.data.select(chosen))


def _partition(estimate: Estimate) -> tuple[Estimate, Estimate]:
    """The estimate as its estimated leaves and the rest."""
    nothing = jax.tree.map(lambda _: False, estimate)
    leaves = _estimated_leaves(estimate)
    return eqx.partition(estimate, eqx.tree_at(_estimated_leaves, nothing, [True] * len(leaves)))


def _estimated_leaves(tree: Any) -> list:
    """The raw values of the unknowns, and the last layers of the networks."""
    leaves = []
    for node in jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Unknown | Network)):
        if isinstance(node, Unknown):
            leaves.append(node.raw)
        elif isinstance(node, Network) and node.weights is not None:
            leaves += [node.weights.layers[-1].weight, node.weights.layers[-1].bias]
    return leaves


def describe_columns(subject: Subject) -> tuple[Column, ...]:
    """A column for each number in `_estimated_leaves`."""
    columns: list[Column] = []
    nodes, _ = jax.tree_util.tree_flatten_with_path(
        subject.physics, is_leaf=lambda node: isinstance(node, Unknown | MLP | Network)
    )
    for path, node in nodes:
        where = jax.tree_util.keystr(path)
        if isinstance(node, Unknown):
            columns += (
                _start_columns(node, subject) if where == ".initial" else _parameter_columns(where, node, subject)
            )
            continue
        network = node.network if isinstance(node, MLP) else node
        if not isinstance(network, Network) or network.weights is None:
            continue
        outputs = _residual_outputs(where, node, network, subject)
        # The prior of a residual, the sum of all its functions, is the size of the rates.
        width = network.weights.layers[-1].weight.shape[1]
        for part, size in outputs:
            columns += [Column(f"{part} ({k})", part, size=size / np.sqrt(width)) for k in range(width)]
        columns += [Column(part, part, bias=True, size=size) for part, size in outputs]
    return tuple(columns)


def _residual_outputs(where: str, node: Any, network: Network, subject: Subject) -> list[tuple[str, float]]:
    """The name of each output of a network, and its prior size."""
    if not isinstance(node, MLP):
        label = where.strip(".").replace(".", " ")
        return [(f"{label}[{k}]", 1.0) for k in range(network.out_size)]
    adds_to = list(range(subject.state_count) if node.adds_to is None else node.adds_to)
    rates = _typical_rates(subject)[adds_to]
    if node.units is not None:
        rates = rates / np.asarray(node.units.value.output)
    return [(subject.state_names[state], float(rate)) for state, rate in zip(adds_to, rates, strict=True)]


def _typical_rates(subject: Subject) -> np.ndarray:
    """The root mean square of dx/dt, along the measured or simulated states."""
    batch, xs = subject.batch, subject.simulated[0].xs
    if subject.given.observe is None:
        xs = np.where(np.asarray(batch.mask), np.asarray(batch.y), np.nan)
    rows = zip(xs, np.asarray(batch.ts), np.asarray(batch.length), strict=True)
    slopes = [np.diff(x[:n], axis=0) / np.diff(t[:n])[:, None] for x, t, n in rows]
    size = np.sqrt(np.nanmean(np.concatenate(slopes) ** 2, axis=0))
    return np.where(size > 0, size, 1.0)


def _parameter_columns(where: str, node: Unknown, subject: Subject) -> list[Column]:
    """Named "k" for .params['k'], with an index for each entry of an array and the name of its run or group."""
    label = where.replace(".params['", "").replace("']", "").strip(".").replace("['", ".").replace("[", ".").strip("]")
    shape = node.guess.value.shape
    entries = [str(list(index)) for index in np.ndindex(*shape)] if shape else [""]
    names = [f"{label}{entry}{owner}" for owner in _owners(node, subject) for entry in entries]
    return [Column(name, positive=node.positive) for name in names]


def _start_columns(node: Unknown, subject: Subject) -> list[Column]:
    """The initial state, of one or of each run."""
    states = subject.state_names
    return [Column(f"the start of {state}{owner}", start=state) for owner in _owners(node, subject) for state in states]


def _owners(node: Unknown, subject: Subject) -> list[str]:
    """What follows the name of a parameter: whose it is."""
    if node.owner is None:
        return [""]
    distinct = dict.fromkeys(subject.data.groups if node.per_group else subject.data.names)
    return [f" of {name}" for name in distinct]
