"""Typical sizes of measured data, for the scaling that learned parts keep inside them."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from twinfold.data._run import Run
from twinfold.data._windows import floating
from twinfold.model import Statistics


def summarise(runs: Sequence[Run], observed_states: bool, dtype: Any) -> Statistics:
    """Means and spreads of the measured values of whole runs: no padding, no gaps, nothing counted twice."""
    dtype = floating(dtype)
    ts = np.concatenate([run.ts for run in runs])
    t_mean, t_std = _mean_and_spread([ts], dtype)
    x_mean = x_std = rate_std = w_mean = w_std = None
    if observed_states:
        outputs = range(runs[0].outputs)
        x_mean, x_std = _mean_and_spread([_measured(runs, output) for output in outputs], dtype)
        rate_std = _spread([_rms(_rates(runs, output)) for output in outputs], dtype)
    if runs[0].w is not None:
        w = np.concatenate([run.w for run in runs if run.w is not None])
        w_mean, w_std = _mean_and_spread(list(w.T), dtype)
    return Statistics(x_mean, x_std, rate_std, w_mean, w_std, t_mean[0], t_std[0])


def _measured(runs: Sequence[Run], output: int) -> np.ndarray:
    values = np.concatenate([run.y[:, output] for run in runs])
    return values[~np.isnan(values)]


def _rates(runs: Sequence[Run], output: int) -> np.ndarray:
    rates = []
    for run in runs:
        measured = ~np.isnan(run.y[:, output])
        # Over a gap the mean rate: channels measured in turn have no two neighbouring samples.
        rates.append(np.diff(run.y[measured, output]) / np.diff(run.ts[measured]))
    return np.concatenate(rates)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _mean_and_spread(columns: Sequence[np.ndarray], dtype: np.dtype) -> tuple[Any, Any]:
    means = [values.mean() if values.size else 0.0 for values in columns]
    spreads = []
    for values, mean in zip(columns, means, strict=True):
        spread = _rms(values - mean)
        # Rounding gives a constant channel a spread of some 1e-17: dividing by it would be noise.
        rounding = 8 * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0)
        spreads.append(spread if spread > rounding else 0.0)
    return jnp.asarray(np.asarray(means, dtype)), _spread(spreads, dtype)


def _spread(values: Sequence[float], dtype: np.dtype) -> Any:
    spreads = np.asarray(values, dtype)
    return jnp.asarray(np.where(spreads > 0, spreads, np.ones((), dtype)))
