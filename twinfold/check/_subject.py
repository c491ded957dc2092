"""What is examined: a twin whose learned parts say nothing yet, its data, and the states along them.

Everything that several checks need is computed once, when the first of them asks for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import RESULTS
from twinfold.check._noise import noise_of
from twinfold.data import Batch, Dataset
from twinfold.model import Network, Twin
from twinfold.model._simulation import simulate_unchecked
from twinfold.model._twin import check_model
from twinfold.numerics import Trajectory
from twinfold.train._prepare import batch_with_run_indices
from twinfold.typing import ConstraintVector

MOST = 60  # states along the data at which derivatives are looked at


class BlockedError(RuntimeError):
    """A check cannot be made since the physics does not run: that is said once, not by every check."""


@dataclass(frozen=True, eq=False)
class Along:
    """States along the data: time, state, input and constraint level of each, and the run that it belongs to."""

    run: np.ndarray
    t: np.ndarray
    x: np.ndarray
    w: np.ndarray | None
    level: np.ndarray
    from_data: bool


@dataclass(frozen=True, eq=False)
class Subject:
    """**Arguments:** as for `examine`."""

    given: Twin
    data: Dataset
    states: tuple[str, ...] | None
    units: Mapping[str, str]
    seed: int

    @cached_property
    def noise(self) -> np.ndarray:
        """The standard deviation of the noise of each output, the median over the runs; NaN where unknown."""
        levels = np.array([[noise_of(run.ts, column) for column in run.y.T] for run in self.data.runs])
        known = [column[np.isfinite(column)] for column in levels.T]
        return np.array([np.median(column) if column.size else np.nan for column in known])

    @cached_property
    def spread(self) -> np.ndarray:
        """The standard deviation of each output over all runs; 1 where it is constant."""
        spread = np.nanstd(np.concatenate([run.y for run in self.data.runs]), axis=0)
        return np.where(spread > 0, spread, 1.0)

    @cached_property
    def owned(self) -> Twin:
        """The twin with a value for each run where it has such parameters."""
        return self.given.for_runs(self.data.names, self.data.groups) if self.given.runs is None else self.given

    @cached_property
    def drawn(self) -> Twin:
        """The same with weights in its learned parts."""
        statistics = self.data.statistics(observed_states=self.given.observe is None)
        return self.owned.initialise(
            jax.random.key(self.seed),
            states=self.count,
            inputs=len(self.data.input_names),
            statistics=statistics,
        )

    @cached_property
    def twin(self) -> Twin:
        """The physics alone: every network adds zero."""
        return with_last_layers(self.drawn, jnp.zeros_like)

    @cached_property
    def batch(self) -> Batch:
        """The runs side by side."""
        return batch_with_run_indices(self.owned, self.data)

    @cached_property
    def count(self) -> int:
        """The number of states."""
        return row_start(self.owned, jax.tree.map(lambda leaf: leaf[0], self.batch))[0].shape[0]

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """The names of the states: given, those of the outputs where these are the states, or x0, x1, ..."""
        try:
            count = self.count
        except Exception:  # what is wrong is said by the check of the physics
            return self.states or ()
        given = self.data.output_names if self.states is None and self.given.observe is None else self.states or ()
        return given if len(given) == count else tuple(f"x{index}" for index in range(count))

    @cached_property
    def rolled(self) -> "tuple[Trajectory, np.ndarray]":
        """The physics along every run: trajectory and outputs, failures included; or else a `BlockedError`."""
        try:
            return self._simulate()
        except Exception as error:
            raise BlockedError(str(error)) from error

    def _simulate(self) -> "tuple[Trajectory, np.ndarray]":
        batch, twin = self.batch, self.twin
        row = jax.tree.map(lambda leaf: leaf[0], batch)
        (x0, p), w = row_start(twin, row), None if row.w is None else row.w[0]
        check_model(twin, row.ts[0], x0, w, p)
        outputs = jax.eval_shape(twin.outputs, row.ts[0], x0, w, p).shape[0]
        if outputs != batch.y.shape[-1]:
            raise ValueError(
                f"The data have {batch.y.shape[-1]} outputs ({', '.join(self.data.output_names)}), the twin observes "
                f"{outputs}: change `outputs` in the configuration, or the twin's `observe`."
            )
        trajectory, ys = jax.device_get(_rollouts(twin, batch))
        return trajectory, ys

    @cached_property
    def succeeded(self) -> np.ndarray:
        """For each run how many samples the physics got through without failing."""
        trajectory, ys = self.rolled
        bad = np.asarray(trajectory.result._value) != 0
        bad |= ~np.isfinite(trajectory.xs).all(-1) | ~np.isfinite(ys).all(-1)
        bad[np.arange(bad.shape[1]) >= np.asarray(self.batch.length)[:, None]] = True
        return np.where(bad.any(1), bad.argmax(1), bad.shape[1])

    @cached_property
    def measured(self) -> dict[int, int]:
        """Which output each state is measured by: y_i = x_j whatever the state, input and time."""
        trajectory, ys = self.rolled
        if self.given.observe is None and self.given.trajectory is None:
            return {index: index for index in range(self.count)}
        use = np.arange(ys.shape[1])[None] < self.succeeded[:, None]
        xs, seen = trajectory.xs[use], ys[use]
        found = {}
        for state in range(xs.shape[1]):
            same = [k for k in range(seen.shape[1]) if len(xs) and np.array_equal(seen[:, k], xs[:, state])]
            # A state that never moves may equal an output by chance.
            if same and np.ptp(xs[:, state]) > 0:
                found[state] = same[0]
        return found

    @cached_property
    def along(self) -> Along:
        """Up to `MOST` states, evenly over all runs: measured where all states are, else those of the physics."""
        batch, (trajectory, _) = self.batch, self.rolled
        full = np.asarray(jnp.all(batch.mask, axis=-1))
        from_data = self.given.observe is None and self.given.trajectory is None and bool(full.any())
        usable = full if from_data else np.arange(full.shape[1])[None] < self.succeeded[:, None]
        places = np.argwhere(usable)
        if not len(places):
            raise BlockedError("the physics fails at the first sample of every run")
        places = places[np.unique(np.linspace(0, len(places) - 1, MOST).astype(int))]
        run, sample = places.T
        x = np.asarray(batch.y if from_data else trajectory.xs)[run, sample]
        w = None if batch.w is None else np.asarray(batch.w)[run, sample]
        return Along(run, np.asarray(batch.ts)[run, sample], x, w, self.levels[run], from_data)

    @cached_property
    def levels(self) -> np.ndarray:
        """The level of each run's constraint, [R, m]."""
        return np.asarray(_levels(self.twin, self.batch))

    @property
    def constrained(self) -> bool:
        """Whether there is any constraint."""
        return self.levels.shape[1] > 0

    def unit(self, *names: str) -> str:
        """' [m]' for the first of these names that has a unit."""
        return next((f" [{self.units[name]}]" for name in names if name in self.units), "")


def with_last_layers(tree: Any, fill: Callable[[Array], Array]) -> Any:
    """`tree` with every array in the last layer of its networks replaced by `fill` of it."""

    def filled(node: Any) -> Any:
        if not isinstance(node, Network) or node.weights is None:
            return node
        last = jax.tree.map(lambda leaf: fill(leaf) if eqx.is_array(leaf) else leaf, node.weights.layers[-1])
        return eqx.tree_at(lambda network: network.weights.layers[-1], node, last)

    return jax.tree.map(filled, tree, is_leaf=lambda node: isinstance(node, Network))


def subject_of(
    twin: Twin, data: Dataset, states: Sequence[str] | None, units: Mapping[str, str] | None, seed: int
) -> Subject:
    """The subject of an examination."""
    return Subject(twin, data, None if states is None else tuple(states), dict(units or {}), seed)


def row_start(twin: Twin, row: Batch) -> tuple[Float[Array, " n"], Any]:
    """Initial state and parameters of one run."""
    p = twin.parameters(row.run)
    return twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run), p


@eqx.filter_jit
def _rollouts(twin: Twin, batch: Batch) -> tuple[Trajectory, Float[Array, "R T k"]]:
    def run(row: Batch) -> tuple[Trajectory, Array]:
        x0, p = row_start(twin, row)
        out = simulate_unchecked(twin, x0, row.ts, row.w, p, None)
        ended = jnp.cumsum(out.trajectory.result == RESULTS.nonfinite) > 0
        return out.trajectory, jnp.where(ended[:, None], jnp.nan, out.ys)

    return jax.vmap(run)(batch)


@eqx.filter_jit
def _levels(twin: Twin, batch: Batch) -> Float[Array, "R m"]:
    def run(row: Batch) -> ConstraintVector:
        x0, p = row_start(twin, row)
        return twin.constraint.level(row.ts[0], x0, p)

    return jax.vmap(run)(batch)
