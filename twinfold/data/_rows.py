"""Runs of a data set beside a twin: their parameters and initial states, their simulation, and whether they match."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from twinfold._core import quick_jit, tree_take
from twinfold.data._batch import Batch, output_spread
from twinfold.data._dataset import Dataset
from twinfold.data._noise import output_noise
from twinfold.data._run import Run
from twinfold.data._warmup import (
    DEFAULT_WARMUP,
    MAX_NOISE,
    MIN_NOISE,
    NOISE,
    Newcomers,
    first_states,
    own_parameters,
    state_size,
)
from twinfold.model import Simulation, Twin, simulate_unchecked
from twinfold.model._checks import check_model
from twinfold.model._unknown import Unknown
from twinfold.typing import Parameters, State

MAX_LISTED = 3  # runs in a message


def initial_state(twin: Twin, row: Batch, p: Parameters) -> State:
    """The state at the first sample of the run that a row of a batch was cut from."""
    return twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)


def simulate_row(twin: Twin, row: Batch, p: Any = None) -> Simulation:
    """A whole run, one row of a batch, simulated from its initial state with the parameters of its run, or with p."""
    p = twin.parameters(row.run) if p is None else p
    return simulate_unchecked(twin, initial_state(twin, row, p), row.ts, row.w, p)


def simulated_states(twin: Twin, batch: Batch) -> Float[Array, "R T n"]:
    """The states that a twin passes through in each row of a batch; NaN in one that fails."""

    def run(row: Batch) -> Array:
        p = twin.parameters(row.run)
        trajectory = simulate_row(twin, row, p).trajectory
        xs = jax.vmap(lambda t, x, w: twin.state(t, x, w, p))(row.ts, trajectory.xs, row.w)
        return jnp.where(trajectory.failed, jnp.nan, xs)  # states of a diverging run are far from any data

    return jax.vmap(run)(batch)


class Rows(eqx.Module):
    """The runs of a data set as a twin sees them.

    `batch`: whole runs, each with the index of its own parameters; `newcomers`: None if the twin knows every run;
    `warmup`: for each run the number of samples that its initial state was estimated from, 0 if it was not.
    """

    batch: Batch
    newcomers: Newcomers | None
    warmup: Int[np.ndarray, " R"]

    @property
    def unseen(self) -> Batch:
        """The runs without the samples that initial states are estimated from."""
        seen = np.arange(self.batch.ts.shape[1]) < self.warmup[:, None]
        if not seen.any():
            return self.batch
        mask = jax.device_put(np.asarray(self.batch.mask) & ~seen[..., None])
        return eqx.tree_at(lambda batch: batch.mask, self.batch, mask)

    def adapt(self, twin: Twin) -> Twin:
        """The twin with the parameters and initial states of these runs."""
        return twin if self.newcomers is None else _adapt(self.newcomers, twin)


def rows_of(twin: Twin, data: Dataset) -> Rows:
    """All runs of a data set, and what has to be estimated of them because the twin was not fitted on them."""
    batch, count = data.batch(), len(data)
    estimated = twin.warmup is not None or (isinstance(twin.initial, Unknown) and twin.initial.own)
    unfitted = twin.runs is None and twin.warmup is None  # all of its parameters are first guesses
    if unfitted or not (estimated or twin.has_own_parameters):
        return Rows(batch, None, np.zeros(count, np.int32))
    owners = [_value_indices(twin, each, data) for each in own_parameters(twin)]
    starts = _start_indices(twin, data) if estimated else None
    missing = np.any(np.stack([*owners, *([] if starts is None else [starts])]) < 0, axis=0)
    if not missing.any():
        indices = twin.run_indices(data.names, data.groups)
        assert indices is not None
        batch = eqx.tree_at(lambda batch: batch.run, batch, jax.device_put(np.array(indices, np.int32)))
        return Rows(batch, None, np.zeros(count, np.int32))
    samples = twin.warmup or DEFAULT_WARMUP
    noise = output_noise(data.runs, samples, spread=np.asarray(output_spread(batch)), unknown=NOISE)
    noise = np.clip(noise, MIN_NOISE, MAX_NOISE).astype(batch.y.dtype)
    values, states, noise = jax.device_put((tuple(owners), starts, noise))
    return Rows(batch, Newcomers(batch, values, states, noise, samples), np.where(missing, samples, 0))


def with_own_values(twin: Twin, data: Dataset) -> Twin:
    """The twin before a fit: with a value for each run or group, and with initial states if it has a warmup."""
    samples = twin.warmup or DEFAULT_WARMUP
    complete = twin.for_runs(data.names, data.groups, tuple(run.origin(samples) for run in data.runs))
    if twin.warmup is None:
        return complete
    batch = data.batch()
    states = _first_states(twin, batch, twin.warmup)
    return complete.with_starts(states, state_size(twin, batch, states))


def begun(twin: Twin, runs: Sequence[Run]) -> tuple[Twin, Int[np.ndarray, " R"]] | None:
    """The twin with the initial states and own parameters of these runs, in their order, from their first samples.

    Also returns how many samples of each run were seen for it, see `Rows.warmup`. None if the twin was fitted on all of
    them, or has nothing that belongs to single runs.
    """
    samples = twin.warmup or DEFAULT_WARMUP
    outputs, inputs = (tuple(str(index) for index in range(count)) for count in (runs[0].outputs, runs[0].inputs))
    rows = rows_of(twin, Dataset(tuple(run.until(samples) for run in runs), outputs, inputs))
    return None if rows.newcomers is None else (rows.adapt(twin), rows.warmup)


def known_batch(twin: Twin, data: Dataset) -> Batch:
    """All runs, each with the index of its own parameters; a `ValueError` for a run that the twin was not fitted on."""
    rows = rows_of(twin, data)
    if rows.newcomers is None:
        return rows.batch
    missing = next(name for name, samples in zip(data.names, rows.warmup, strict=True) if samples)
    raise ValueError(
        f"data: the twin has no parameters of run '{missing}' (Unknown with per_run=True or per_group=True, or a "
        f"warmup); it was fitted on {', '.join(twin.runs or ()) or 'no run yet'}. Leave that run out, or estimate what "
        'belongs to it first: fit(twin, data, trainable="per_run").'
    )


def _start_indices(twin: Twin, data: Dataset) -> Int[np.ndarray, " R"]:
    """The index of the estimated initial state of each run; -1 where it has none.

    Parameters belong to a name, as that of a machine; a state belongs to a recording. Another recording of the same
    name, as in a second file whose runs are numbered from one again, starts elsewhere.
    """
    found = _value_indices(twin, twin.initial, data)
    if twin.runs is None or twin.origins is None or (isinstance(twin.initial, Unknown) and twin.initial.per_group):
        return found
    origins = dict(zip(twin.runs, twin.origins, strict=True))
    samples = twin.warmup or DEFAULT_WARMUP
    same = [origins.get(run.name) == run.origin(samples) for run in data.runs]
    return np.where(same, found, -1).astype(np.int32)


def _value_indices(twin: Twin, unknown: Any, data: Dataset) -> Int[np.ndarray, " R"]:
    """The index of the value of each run, by its name or group; -1 where it has none, or nothing was estimated."""
    if not isinstance(unknown, Unknown) or unknown.owner is None or twin.runs is None or twin.groups is None:
        return np.full(len(data), -1, np.int32)
    owner = np.asarray(unknown.owner.value)
    keys, wanted = (twin.groups, data.groups) if unknown.per_group else (twin.runs, data.names)
    values = dict(zip(keys, owner.tolist(), strict=True))
    return np.array([values.get(key, -1) for key in wanted], np.int32)


def check_rows(twin: Twin, rows: Rows, data: Dataset) -> None:
    """Raise a `ValueError` that says where a twin with weights and its data do not match."""
    if rows.newcomers is None:
        check_batch(twin, rows.batch, data)
    else:
        first = tree_take(_first_states(twin, rows.batch, rows.newcomers.samples), 0)
        _check_drawn(twin, tree_take(rows.batch, 0), first, twin.centred().parameters())


@quick_jit
def _adapt(newcomers: Newcomers, twin: Twin) -> Twin:
    return newcomers.adapt(twin)


@quick_jit
def _first_states(twin: Twin, batch: Batch, samples: int) -> Float[Array, "R n"]:
    return first_states(twin, batch, samples)


def check_batch(twin: Twin, batch: Batch, data: Dataset, argument: str = "data", *, drawn: bool = True) -> State:
    """The initial state of the first run; a `ValueError` that says where twin and data do not match.

    **Arguments:** `twin`; `batch` of `data`, which messages call `argument`; `drawn=False` for a twin whose learned
    parts have no weights yet: only the initial states are checked.
    """
    x = tree_take(initial_states(twin, batch, data, argument), 0)
    row = tree_take(batch, 0)
    if drawn:
        _check_drawn(twin, row, x, twin.parameters(row.run))
    return x


def _check_drawn(twin: Twin, row: Batch, x: State, p: Parameters) -> None:
    w = None if row.w is None else row.w[0]
    check_model(twin, row.ts[0], x, w, p)
    outputs = jax.eval_shape(twin.outputs, row.ts[0], x, w, p).shape[0]
    if outputs != row.y.shape[-1]:
        raise ValueError(
            f"data: runs have {row.y.shape[-1]} outputs, the twin observes {outputs}. Change `outputs`, or "
            "the twin's `observe`."
        )


def initial_states(twin: Twin, batch: Batch, data: Dataset, argument: str = "data") -> Float[Array, "R n"]:
    """The initial state of every run of `data`; a `ValueError` for a run that has none."""
    starts = np.flatnonzero(batch.is_run_start)
    first = (batch.origin_t, batch.origin_y, batch.origin_w, batch.x0, batch.run)
    xs = _initial_states(twin, *tree_take(first, starts))
    if xs.ndim != 2:
        raise ValueError(f"initial: the state has shape {xs.shape[1:]}; it must be a vector.")
    check_initial_states(twin, data.runs, np.asarray(xs), data.output_names, argument)
    return xs


@quick_jit
def _initial_states(twin: Twin, t: Array, y: Array, w: Array | None, x0: Array | None, run: Array) -> Array:
    def state(t: Array, y: Array, w: Array | None, x0: Array | None, run: Array) -> State:
        return twin.initial_state(t, y, w, twin.parameters(run), x0=x0, run=run)

    return jax.vmap(state)(t, y, w, x0, run)


def check_initial_states(
    twin: Twin, runs: Sequence[Run], xs: np.ndarray, output_names: Sequence[str], argument: str = "data"
) -> None:
    """Raise a `ValueError` that says why the initial states `xs` of some runs are not finite, and what to change."""
    bad = np.any(~np.isfinite(xs), axis=1)
    if not bad.any():
        return
    missing = np.stack([np.isnan(run.y[0]) for run in runs])
    incomplete = bad & np.any(missing, axis=1)
    if incomplete.any():
        absent = np.any(missing[incomplete], axis=0)
        outputs = ", ".join(f"'{name}'" for name, each in zip(output_names, absent, strict=True) if each)
        x0 = "the columns x0" if twin.initial is None else "the columns x0 and no `initial`"
        raise ValueError(
            f"{argument}: the initial state of {_listed(runs, incomplete)} cannot be formed: the first sample has no "
            f"value of {outputs}. Give {x0}, or the twin initial=Unknown(guess, per_run=True), or drop the rows before "
            "the first complete sample."
        )
    x = xs[bad][0]
    source = "the twin's `initial` returns" if twin.initial is not None else "the data have"
    raise ValueError(
        f"initial: {source} a non-finite state for {_listed(runs, bad)}: {x} in {x.dtype}. The first sample is "
        "complete: correct the function or the unit, or give the twin initial=Unknown(guess, per_run=True)."
    )


def _listed(runs: Sequence[Run], chosen: np.ndarray) -> str:
    names = [f"'{run.name}'" for run, one in zip(runs, chosen, strict=True) if one]
    more = f" and {len(names) - MAX_LISTED} others" if len(names) > MAX_LISTED else ""
    return f"{'run' if len(names) == 1 else 'runs'} {', '.join(names[:MAX_LISTED])}{more}"
