"""Means and spreads of measured data, from which learned parts take their scaling."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from twinfold.data._batch import floating
from twinfold.data._run import Run
from twinfold.model import Statistics


def summarise(runs: Sequence[Run], observed_states: bool, dtype: Any) -> Statistics:
    """Means and spreads over the measured values of all runs, each sample counted once."""
    dtype = floating(dtype)
    t_mean, t_std = _mean_and_spread([np.concatenate([run.ts for run in runs])], dtype)
    x_mean = x_std = rate_std = w_mean = w_std = None
    if observed_states:
        y = np.concatenate([run.y for run in runs])
        x_mean, x_std = _mean_and_spread([values[~np.isnan(values)] for values in y.T], dtype)
        rate_std = _nonzero([_rms(_rates(runs, output)) for output in range(runs[0].outputs)], dtype)
    if runs[0].w is not None:
        w = np.concatenate([run.w for run in runs if run.w is not None])
        w_mean, w_std = _mean_and_spread(list(w.T), dtype)
    return Statistics(x_mean, x_std, rate_std, w_mean, w_std, t_mean[0], t_std[0])


def _rates(runs: Sequence[Run], output: int) -> np.ndarray:
    rates = []
    for run in runs:
        measured = ~np.isnan(run.y[:, output])
        # Across a gap, the mean rate: channels measured in turn have no two consecutive samples.
        rates.append(np.diff(run.y[measured, output]) / np.diff(run.ts[measured]))
    return np.concatenate(rates)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _mean_and_spread(columns: Sequence[np.ndarray], dtype: np.dtype) -> tuple[Any, Any]:
    means = [values.mean() if values.size else 0.0 for values in columns]
    spreads = []
    for values, mean in zip(columns, means, strict=True):
        spread = _rms(values - mean)
        # Rounding gives a constant channel a spread near 1e-17; dividing by it would amplify noise.
        rounding = 8 * np.finfo(np.float64).eps * np.abs(values).max(initial=0.0)
        spreads.append(spread if spread > rounding else 0.0)
    return jax.device_put(np.asarray(means, dtype)), _nonzero(spreads, dtype)


def _nonzero(values: Sequence[float], dtype: np.dtype) -> Any:
    """The spreads, with 1 in place of 0."""
    spreads = np.asarray(values, dtype)
    return jax.device_put(np.where(spreads > 0, spreads, np.ones((), dtype)))
