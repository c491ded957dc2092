"""Bands around the predictions of a fitted twin, and how many of the measurements they contain.

    variance = that of start, process noise and sensors, carried along (`estimate`)  +  (dy/dp) cov(p) (dy/dp)'

The noise is that of simulations (`fit_noise(open_loop=True)`), estimated once from the validation runs, which the fit
has not seen, or else from the training runs, and kept beside the model; cov(p) is the covariance of the unknown
parameters from the residuals of the fit. Network weights count as known: what they have not learned is process noise.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from scipy.stats import norm

from twinfold._core import quick_jit
from twinfold.data import Dataset, Run
from twinfold.data._batch import Batch
from twinfold.data._rows import initial_state, rows_of
from twinfold.estimate import AbstractGaussianFilter, Noise, simulate_with_band
from twinfold.io import write_text
from twinfold.metrics import coverage
from twinfold.model import Twin, simulate_unchecked
from twinfold.report._estimates import MAX_PARAMETERS, raw_uncertainty
from twinfold.workspace import _follow_estimator as follow
from twinfold.workspace._fit import Fitted, seen_split
from twinfold.workspace._simulate import SimulatedRun
from twinfold.workspace._workspace import Workspace

KEPT = "bands.json"
MAX_RUNS = 40  # of each part whose coverage is computed


@dataclass(frozen=True, eq=False)
class Bands:
    """The uncertainty of a fitted twin: its `estimator`, `std` of a start that was not given, `covariance` of raw."""

    estimator: AbstractGaussianFilter
    twin: Twin
    std: np.ndarray
    covariance: np.ndarray | None
    probability: float

    def around(self, run: Run, x0: Any, *, exact_start: bool, name: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end [T, k] for a run from `x0`; `name` of the run whose own parameters are used."""
        std = np.zeros_like(self.std) if exact_start else self.std
        found = simulate_with_band(self.estimator, x0, std, run.ts, run.w)
        variance = np.asarray(found.y_std) ** 2
        if self.covariance is not None:
            w = None if run.w is None else jnp.asarray(run.w)
            slope = np.asarray(_slopes(self.twin, jnp.asarray(x0, float), jnp.asarray(run.ts), w, name))
            variance = variance + np.einsum("tkp,pq,tkq->tk", slope, self.covariance, slope)
        half = norm.isf((1 - self.probability) / 2) * np.sqrt(variance)
        return found.y - half, found.y + half


def prepare_bands(
    workspace: Workspace, fitted: Fitted, probability: float, *, run: str | None = None, log: Callable[[str], None]
) -> Bands:
    """Estimate what bands need, or read it from the run folder; `log` says what could not be computed.

    **Raises:** `ValueError` if `probability` is not between 0 and 1, or the noise cannot be estimated.
    """
    if not 0 < probability < 1:
        raise ValueError(f"--band {probability}: give the probability of the band, between 0 and 1, such as 0.9.")
    config, twin = workspace.config.follow, follow.plant_twin(fitted.twin)
    kept, key = workspace.run_folder / KEPT, follow.estimate_key(config, fitted, run)
    known = follow.read_kept(kept, key)
    if known is None:
        known = follow.estimate_noise(workspace, fitted, twin, run, log, starts=lambda data: _started(fitted, data))
        write_text(kept, json.dumps({"key": key, **known}, indent=2) + "\n")
    estimator = follow.make_estimator(config, twin, Noise(known["process"], known["measurement"]), run)
    covariance = _parameter_covariance(workspace, fitted, log)
    return Bands(estimator, fitted.twin, np.asarray(known["std"], float), covariance, probability)


def kept_bands(workspace: Workspace, fitted: Fitted, *, log: Callable[[str], None]) -> Bands | None:
    """The bands of an earlier command, of the probability `follow.band`; None if there was none for this fit."""
    config = workspace.config.follow
    if follow.read_kept(workspace.run_folder / KEPT, follow.estimate_key(config, fitted, None)) is None:
        return None
    return prepare_bands(workspace, fitted, config.band, log=log)


def bands_around(fitted: Fitted, bands: Bands, data: Dataset) -> list[tuple[np.ndarray, np.ndarray]]:
    """Lower and upper end [T, k] for the first `MAX_RUNS` runs."""
    first = dataclasses.replace(data, runs=data.runs[:MAX_RUNS])
    starts = zip(first.runs, _starts(fitted, first), strict=True)
    return [bands.around(run, x0, exact_start=run.x0 is not None) for run, x0 in starts]


def with_bands(runs: Sequence[SimulatedRun], bands: Bands, *, run: str | None, given: bool) -> list[SimulatedRun]:
    """Simulated runs with their bands; `given`: the initial states were, as --x0."""
    found = []
    for each in runs:
        x0 = np.asarray(each.simulation.xs)[0]
        ends = bands.around(each.run, x0, exact_start=given or each.run.x0 is not None, name=run)
        found.append(dataclasses.replace(each, band=ends))
    return found


def band_coverage(fitted: Fitted, bands: Bands, data: Dataset) -> float:
    """The share of the measured values of the first `MAX_RUNS` runs that lie inside their bands."""
    inside, count = 0.0, 0
    for run, (lower, upper) in zip(data.runs, bands_around(fitted, bands, data), strict=False):
        mask = np.isfinite(run.y)
        if measured := int(mask.sum()):
            inside += float(coverage(lower[None], upper[None], run.y[None], mask[None])[0]) * measured
            count += measured
    return inside / count if count else float("nan")


def _starts(fitted: Fitted, data: Dataset) -> np.ndarray:
    """The initial state of each run, as `evaluate` has it."""
    rows = rows_of(fitted.twin, data)
    return np.asarray(_first_states(rows.adapt(fitted.twin), rows.batch))


@quick_jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def _first_states(twin: Twin, row: Batch) -> Array:
    return initial_state(twin, row, twin.parameters(row.run))


def _started(fitted: Fitted, data: Dataset) -> Dataset:
    """The same runs with their initial states."""
    found = zip(data.runs, _starts(fitted, data), strict=True)
    return dataclasses.replace(data, runs=tuple(dataclasses.replace(run, x0=x0) for run, x0 in found))


def _parameter_covariance(workspace: Workspace, fitted: Fitted, log: Callable[[str], None]) -> np.ndarray | None:
    """The covariance of the raw values of all unknowns; None without any, or where it cannot be computed."""
    count = sum(unknown.raw.size for unknown in fitted.twin.unknowns())
    if not count:
        return None
    try:
        if count > MAX_PARAMETERS:
            raise ValueError(f"there are {count} of them, {MAX_PARAMETERS} at most.")
        names = [str(place) for place in range(count)]
        return raw_uncertainty(fitted.twin, seen_split(workspace, fitted).train, names).covariance
    except (OSError, ValueError) as error:
        log(f"Note: the bands leave out the uncertainty of the parameters: {error}")
        return None


@quick_jit
def _slopes(twin: Twin, x0: Array, ts: Array, w: Array | None, name: str | None) -> Array:
    """The derivative of the outputs in all raw values of the unknowns, [T, k, P]."""
    raw, unravel = ravel_pytree([unknown.raw for unknown in twin.unknowns()])

    def outputs(raw: Array) -> Array:
        moved = eqx.tree_at(lambda twin: [unknown.raw for unknown in twin.unknowns()], twin, unravel(raw))
        start = x0 + 0 * raw.sum()
        return simulate_unchecked(moved, start, ts, w, moved.parameters(name)).ys

    return jax.jacfwd(outputs)(raw)
