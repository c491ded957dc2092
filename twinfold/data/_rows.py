"""Runs of a data set beside a twin: their parameters and initial states, their simulation, and whether they match."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import tree_take
from twinfold.data._batch import Batch
from twinfold.data._dataset import Dataset
from twinfold.data._run import Run
from twinfold.model import Simulation, Twin, simulate_unchecked
from twinfold.model._twin import check_model
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


def batch_with_run_indices(twin: Twin, data: Dataset, argument: str = "data") -> Batch:
    """All runs, each with the index of its own parameters in a fitted twin; a `ValueError` for a run without any."""
    batch = data.batch()
    if twin.runs is None or not twin.has_own_parameters:
        return batch
    places = twin.run_indices(data.names, data.groups)
    if places is None:
        missing = next(run.name for run in data.runs if twin.run_indices((run.name,), (run.group,)) is None)
        raise ValueError(
            f"{argument}: the twin has no parameters of run '{missing}' (Unknown with per_run=True or per_group=True); "
            f"it was fitted on {', '.join(twin.runs or ())}. Leave that run out, or estimate what belongs to it first: "
            'fit(twin, data, trainable="per_run").'
        )
    return eqx.tree_at(lambda batch: batch.run, batch, jnp.array(places))


def check_batch(twin: Twin, batch: Batch, data: Dataset, argument: str = "data", *, drawn: bool = True) -> State:
    """The initial state of the first run; a `ValueError` that says where twin and data do not match.

    **Arguments:** `twin`; `batch` of `data`, which messages call `argument`; `drawn=False` for a twin whose learned
    parts have no weights yet: only the initial states are checked.
    """
    x = tree_take(initial_states(twin, batch, data, argument), 0)
    row = tree_take(batch, 0)
    p, w = twin.parameters(row.run), None if row.w is None else row.w[0]
    if drawn:
        check_model(twin, row.ts[0], x, w, p)
        outputs = jax.eval_shape(twin.outputs, row.ts[0], x, w, p).shape[0]
        if outputs != batch.y.shape[-1]:
            raise ValueError(
                f"data: runs have {batch.y.shape[-1]} outputs, the twin observes {outputs}. Change `outputs`, or "
                "the twin's `observe`."
            )
    return x


def initial_states(twin: Twin, batch: Batch, data: Dataset, argument: str = "data") -> Float[Array, "R n"]:
    """The initial state of every run of `data`; a `ValueError` for a run that has none."""
    starts = np.flatnonzero(batch.is_run_start)
    first = (batch.origin_t, batch.origin_y, batch.origin_w, batch.x0, batch.run)
    xs = _initial_states(twin, *tree_take(first, starts))
    if xs.ndim != 2:
        raise ValueError(f"initial: the state has shape {xs.shape[1:]}; it must be a vector.")
    check_initial_states(twin, data.runs, np.asarray(xs), data.output_names, argument)
    return xs


@eqx.filter_jit
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
