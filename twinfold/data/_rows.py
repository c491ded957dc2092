"""Runs of a data set beside a twin: their parameters and initial states, their simulation, and whether they match."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from twinfold.data._batch import Batch
from twinfold.data._dataset import Dataset
from twinfold.model import Simulation, Twin, simulate_unchecked
from twinfold.model._twin import check_model
from twinfold.typing import Parameters, State


def initial_state(twin: Twin, row: Batch, p: Parameters) -> State:
    """The state at the first sample of the run that a row of a batch was cut from."""
    return twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)


def simulate_row(twin: Twin, row: Batch, p: Any = None) -> Simulation:
    """A whole run, one row of a batch, simulated from its initial state with the parameters of its run, or with p."""
    p = twin.parameters(row.run) if p is None else p
    return simulate_unchecked(twin, initial_state(twin, row, p), row.ts, row.w, p)


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


def check_batch(twin: Twin, batch: Batch, *, drawn: bool = True) -> State:
    """The initial state of the first run; a `ValueError` that says where twin and data do not match.

    `drawn=False` for a twin whose learned parts have no weights yet: only the initial state is checked.
    """
    if twin.initial is None and batch.x0 is None and not bool(jnp.all(batch.mask[:, 0] | ~batch.is_run_start[:, None])):
        raise ValueError(
            "data: the first sample of a run is incomplete, so it cannot be the initial state. Give x0, or the twin's "
            "`initial`, such as initial=Unknown(guess, per_run=True)."
        )
    row = jax.tree.map(lambda leaf: leaf[0], batch)
    p, w = twin.parameters(row.run), None if row.w is None else row.w[0]
    x = initial_state(twin, row, p)
    if x.ndim != 1:
        raise ValueError(f"initial: the state has shape {x.shape}; it must be a vector.")
    if drawn:
        check_model(twin, row.ts[0], x, w, p)
        outputs = jax.eval_shape(twin.outputs, row.ts[0], x, w, p).shape[0]
        if outputs != batch.y.shape[-1]:
            raise ValueError(
                f"data: runs have {batch.y.shape[-1]} outputs, the twin observes {outputs}. Change `outputs`, or "
                "the twin's `observe`."
            )
    return x
