"""Typical sizes of hidden states, from a simulation of the physics along the training inputs."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from twinfold._core import quick_jit
from twinfold.data import Batch, Dataset, Run
from twinfold.data._rows import simulate_row
from twinfold.data._statistics import summarise
from twinfold.model import MLP, Statistics, Twin
from twinfold.model._learned.base import learned_parts, without_learned_parts

REACH = 1.0  # ranges of an output by which the physics alone may leave what was measured
ADVICE = "MLP(scaling=Scaling(center, spread, output))"
FEWEST = 3  # samples of a run that count in any case


def statistics_for(twin: Twin, data: Dataset, states: int) -> Statistics:
    """The sizes from which the learned parts of a twin take their units.

    Where the states are measured, they come from the data. Hidden states are those of the physics alone (learned parts
    at zero, parameters at their first guess), as long as its outputs stay near the measured ones.
    """
    statistics = data.statistics(observed_states=twin.observe is None)
    parts = [part for part in learned_parts(twin) if isinstance(part, MLP) and part.scaling == "data"]
    if statistics.x_mean is not None or not (parts or twin.warmup is not None):
        return statistics
    batch = data.batch()
    inputs = 0 if batch.w is None else batch.w.shape[-1]
    drawn = twin.initialise(jax.random.key(0), states=states, inputs=inputs, dtype=batch.y.dtype)
    xs, near = (np.asarray(each) for each in _simulated(without_learned_parts(drawn), batch))
    runs = [
        Run("physics", ts[keep], x[keep])
        for ts, x, keep in zip(np.asarray(batch.ts), xs, near, strict=True)
        if keep.sum() >= 2
    ]
    if not runs:
        warnings.warn(
            "The physics alone (learned parts at zero) cannot be simulated along the training data, so the size of the "
            "hidden states is not known: the networks see them as they are. Give better first guesses of the "
            f"parameters, or typical values: {ADVICE}.",
            stacklevel=4,
        )
        return statistics
    used = {i for part in parts for i in (*_all(part.states, states), *_all(part.adds_to, states))}
    still = [index for index in sorted(used) if not np.ptp(np.concatenate([run.y[:, index] for run in runs]))]
    if still:
        warnings.warn(
            f"The hidden state {', '.join(map(str, still))} (from 0) does not change while the physics alone (learned "
            "parts at zero) is simulated along the training data, so its size is not known and taken as 1. Give "
            f"typical values: {ADVICE}.",
            stacklevel=4,
        )
    found = summarise(runs, True, batch.y.dtype)
    return Statistics(
        found.x_mean,
        found.x_std,
        found.rate_std,
        statistics.w_mean,
        statistics.w_std,
        statistics.t_mean,
        statistics.t_std,
    )


def _all(indices: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    return tuple(range(count)) if indices is None else indices


@quick_jit
def _simulated(twin: Twin, batch: Batch) -> tuple[Float[Array, "R T n"], Bool[Array, "R T"]]:
    """States, and the samples until the outputs are far from what was measured, or something is not finite."""
    low, high = (
        fold(jnp.where(batch.mask, batch.y, fill), (0, 1)) for fold, fill in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf))
    )
    reach = jnp.where(high > low, REACH * (high - low), jnp.inf)  # an output without a range says nothing
    low, high = jnp.where(high >= low, low, 0), jnp.where(high >= low, high, 0)

    def run(row: Batch) -> tuple[Array, Array]:
        out = simulate_row(twin, row)
        index = jnp.arange(row.ts.shape[0])
        outside = ((out.ys < low - reach) | (out.ys > high + reach)).any(-1) & (index >= FEWEST)
        usable = jnp.isfinite(out.xs).all(-1) & jnp.isfinite(out.valid_ys).all(-1) & (index < row.length) & ~outside
        return out.xs, jnp.cumprod(usable).astype(bool)

    return jax.vmap(run)(batch)
