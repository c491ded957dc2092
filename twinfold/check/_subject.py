"""The subject of an examination: a twin without learned weights, its data, and the states along them.

Everything that several checks need is computed once, at its first use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import outcome_codes, quick_jit, tree_take
from twinfold.data import Batch, Dataset
from twinfold.data._noise import estimate_noise
from twinfold.data._rows import initial_state, initial_states, known_batch, simulate_row, with_own_values
from twinfold.model import Network, Twin
from twinfold.model._checks import check_model
from twinfold.numerics import Trajectory, Unconstrained
from twinfold.typing import ConstraintVector

MAX_SAMPLES = 60  # states at which derivatives are evaluated


class BlockedError(RuntimeError):
    """A check cannot run because the physics does not; the physics check reports this once for all."""


@dataclass(frozen=True, eq=False)
class StateSamples:
    """States along the data: run, time, state, input and constraint level of each; `measured`, or simulated."""

    run: np.ndarray
    t: np.ndarray
    x: np.ndarray
    w: np.ndarray | None
    level: np.ndarray
    measured: bool

    def describe(self, index: int, names: tuple[str, ...]) -> str:
        """Return "t = 1.5 of run 'a'"."""
        return f"t = {self.t[index]:.6g} of run '{names[self.run[index]]}'"


@dataclass(frozen=True, eq=False)
class Subject:
    """**Arguments:** as for `examine`."""

    given: Twin
    data: Dataset
    states: tuple[str, ...] | None
    units: Mapping[str, str]
    seed: int

    @cached_property
    def channels(self) -> dict[str, list[np.ndarray]]:
        """Each output and input by name, run by run."""
        outputs = {name: [run.y[:, k] for run in self.data.runs] for k, name in enumerate(self.data.output_names)}
        inputs = {
            name: [run.w[:, k] for run in self.data.runs if run.w is not None]
            for k, name in enumerate(self.data.input_names)
        }
        return outputs | inputs

    @cached_property
    def noise(self) -> np.ndarray:
        """The standard deviation of the noise of each output, the median over the runs; NaN if unknown."""
        levels = np.array([[estimate_noise(run.ts, column, run.w) for column in run.y.T] for run in self.data.runs])
        known = [column[np.isfinite(column)] for column in levels.T]
        return np.array([np.median(column) if column.size else np.nan for column in known])

    @cached_property
    def spread(self) -> np.ndarray:
        """The standard deviation of each output over all runs; 1 if it is constant."""
        spread = np.nanstd(np.concatenate([run.y for run in self.data.runs]), axis=0)
        return np.where(spread > 0, spread, 1.0)

    @cached_property
    def with_runs(self) -> Twin:
        """The twin with a value for each run where parameters are per run."""
        return with_own_values(self.given, self.data) if self.given.runs is None else self.given

    @cached_property
    def initialised(self) -> Twin:
        """`with_runs`, with weights drawn for its learned parts."""
        return self.with_runs.initialise(
            jax.random.key(self.seed),
            states=self.state_count,
            inputs=len(self.data.input_names),
            statistics=self.data.statistics(observed_states=self.given.observe is None),
        )

    @cached_property
    def physics(self) -> Twin:
        """`initialised`, with every network at zero."""
        return with_last_layers(self.initialised, jnp.zeros_like)

    @cached_property
    def batch(self) -> Batch:
        """The runs in padded arrays."""
        return known_batch(self.with_runs, self.data)

    @cached_property
    def state_count(self) -> int:
        """The number of states."""
        row = tree_take(self.batch, 0)
        return initial_state(self.with_runs, row, self.with_runs.parameters(row.run)).shape[0]

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """The names of the states: given, those of the outputs if these are the states, or x0, x1, ..."""
        try:
            count = self.state_count
        except Exception:  # reported by the check of the physics
            return self.states or ()
        given = self.data.output_names if self.states is None and self.given.observe is None else self.states or ()
        return given if len(given) == count else tuple(f"x{index}" for index in range(count))

    @property
    def states_are_outputs(self) -> bool:
        """Whether the outputs are the state."""
        return self.given.observe is None and self.given.trajectory is None

    @property
    def samples_are_states(self) -> bool:
        """Whether every sample is a complete state, from which a window can begin."""
        return self.states_are_outputs and all(np.isfinite(run.y).all() for run in self.data.runs)

    @property
    def constrained(self) -> bool:
        """Whether the twin has a constraint."""
        return not isinstance(self.given.constraint, Unconstrained)

    @cached_property
    def simulated(self) -> "tuple[Trajectory, np.ndarray]":
        """Trajectory and outputs of the physics along every run, failures included.

        **Raises:** `BlockedError` if twin and data do not fit together.
        """
        try:
            self._check_model()
            return jax.device_get(_simulate_runs(self.physics, self.batch))
        except Exception as error:
            raise BlockedError(str(error)) from error

    def _check_model(self) -> None:
        twin, row = self.physics, tree_take(self.batch, 0)
        p, w = twin.parameters(row.run), None if row.w is None else row.w[0]
        x0 = tree_take(initial_states(twin, self.batch, self.data), 0)
        check_model(twin, row.ts[0], x0, w, p)
        outputs = jax.eval_shape(twin.outputs, row.ts[0], x0, w, p).shape[0]
        if outputs != row.y.shape[-1]:
            raise ValueError(
                f"The data have {row.y.shape[-1]} outputs ({', '.join(self.data.output_names)}), the twin observes "
                f"{outputs}: change `outputs` in the configuration, or the twin's `observe`."
            )

    @cached_property
    def valid_samples(self) -> np.ndarray:
        """For each run, the number of samples before the physics fails."""
        trajectory, ys = self.simulated
        bad = np.asarray(outcome_codes(trajectory.result)) != 0
        bad |= ~np.isfinite(trajectory.xs).all(-1) | ~np.isfinite(ys).all(-1)
        bad[np.arange(bad.shape[1]) >= np.asarray(self.batch.length)[:, None]] = True
        return np.where(bad.any(1), bad.argmax(1), bad.shape[1])

    @cached_property
    def output_of_state(self) -> dict[int, int]:
        """For each measured state its output: y_i = x_j at any state, input and time."""
        trajectory, ys = self.simulated
        if self.states_are_outputs:
            return {index: index for index in range(self.state_count)}
        use = np.arange(ys.shape[1])[None] < self.valid_samples[:, None]
        xs, outputs = trajectory.xs[use], ys[use]
        found = {}
        for state in range(xs.shape[1]):
            equal = [k for k in range(outputs.shape[1]) if len(xs) and np.array_equal(outputs[:, k], xs[:, state])]
            # A constant state may equal an output by chance.
            if equal and np.ptp(xs[:, state]) > 0:
                found[state] = equal[0]
        return found

    @cached_property
    def samples(self) -> StateSamples:
        """Up to `MAX_SAMPLES` states, evenly over all runs: measured if all states are, else simulated."""
        batch, (trajectory, _) = self.batch, self.simulated
        complete = np.all(np.asarray(batch.mask), axis=-1)
        measured = self.states_are_outputs and bool(complete.any())
        usable = complete if measured else np.arange(complete.shape[1])[None] < self.valid_samples[:, None]
        places = np.argwhere(usable)
        if not len(places):
            raise BlockedError("the physics fails at the first sample of every run")
        run, sample = places[spaced_indices(len(places), MAX_SAMPLES)].T
        x = np.asarray(batch.y if measured else trajectory.xs)[run, sample]
        w = None if batch.w is None else np.asarray(batch.w)[run, sample]
        level = np.asarray(_levels(self.physics, batch))[run]
        return StateSamples(run, np.asarray(batch.ts)[run, sample], x, w, level, measured)

    def unit(self, *names: str) -> str:
        """Return " [m]" for the first of these names that has a unit."""
        return next((f" [{self.units[name]}]" for name in names if self.units.get(name)), "")


def spaced_indices(count: int, limit: int) -> np.ndarray:
    """Return at most `limit` indices below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, limit).astype(int))


def with_last_layers(tree: Any, fill: Callable[[Array], Array]) -> Any:
    """Return `tree` with every array in the last layer of its networks replaced by `fill` of it."""

    def replace(node: Any) -> Any:
        if not isinstance(node, Network) or node.weights is None:
            return node
        last = jax.tree.map(lambda leaf: fill(leaf) if eqx.is_array(leaf) else leaf, node.weights.layers[-1])
        return eqx.tree_at(lambda network: network.weights.layers[-1], node, last)

    return jax.tree.map(replace, tree, is_leaf=lambda node: isinstance(node, Network))


@quick_jit
def _simulate_runs(twin: Twin, batch: Batch) -> tuple[Trajectory, Float[Array, "R T k"]]:
    def run(row: Batch) -> tuple[Trajectory, Array]:
        out = simulate_row(twin, row)
        return out.trajectory, out.valid_ys

    return jax.vmap(run)(batch)


@quick_jit
def _levels(twin: Twin, batch: Batch) -> Float[Array, "R m"]:
    def run(row: Batch) -> ConstraintVector:
        p = twin.parameters(row.run)
        return twin.constraint.level(row.ts[0], initial_state(twin, row, p), p)

    return jax.vmap(run)(batch)
