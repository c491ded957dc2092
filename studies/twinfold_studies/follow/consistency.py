"""Is a filter as good as it says? Normalised errors on the benchmark systems, violation, and coverage of bands.

    NEES = e' P^+ e,   chi-squared with n - m degrees of freedom,        NIS = r' S^-1 r,   with k

e is the error of an estimate and P its covariance, of rank n - m; r is an innovation. Averages over independent runs
lie inside known bounds if the filter is consistent.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2, norm

from twinfold.estimate import ExtendedKalmanFilter, Filtered, filtered
from twinfold.metrics import coverage
from twinfold.model import Twin
from twinfold_studies.follow.learned import Levels, fit_twin, noise_levels
from twinfold_studies.follow.plants import START, Recorded, exact_twin, noise_of, record
from twinfold_studies.systems import system

OUTSIDE = 0.001  # 99.9 % bounds
BAND = 0.9


def exact_results(name: str, runs: int, samples: int) -> dict[str, Any]:
    """The numbers of one system with the exact model, on its manifold and without it."""
    plant, levels = record(name, runs, samples), Levels(noise_of(name), noise_of(name))
    return {
        "exact": _judged(name, exact_twin(name), levels, plant),
        "unconstrained": _judged(name, exact_twin(name, projected=False), levels, plant),
    }


def learned_results(name: str, runs: int, samples: int, *, quick: bool) -> dict[str, Any]:
    """The numbers of one system with a learned twin, whose noise was estimated on other runs of the plant."""
    twin = fit_twin(name, quick=quick)
    levels = noise_levels(name, twin, samples)
    about = {
        which: {"process": noise.process.tolist(), "measurement": noise.measurement.tolist()}
        for which, noise in levels._asdict().items()
    }
    return {"learned": _judged(name, twin, levels, record(name, runs, samples)) | {"noise": about}}


def bounds(freedom: int, runs: int) -> tuple[float, float]:
    """Where the average of `runs` chi-squared values lies with probability 99.9 %."""
    low, high = chi2.ppf([OUTSIDE / 2, 1 - OUTSIDE / 2], freedom * runs) / runs
    return float(low), float(high)


def _judged(name: str, twin: Twin, levels: Levels, plant: Recorded) -> dict[str, Any]:
    """Estimates of a twin, and its predictions without measurements, on the runs of a plant."""
    given, estimator = system(name), ExtendedKalmanFilter(twin, levels.filtering)
    n, m = plant.x.shape[-1], plant.level.shape[-1]
    manifold = estimator.space.on_manifold
    freedom = n - m if manifold else n

    def follow(x0: Any, level: Any, y: Any) -> tuple[Filtered, Filtered]:
        belief, ts = estimator.init(plant.ts[0], x0, [START] * n, level=level), jnp.asarray(plant.ts)
        simulator = ExtendedKalmanFilter(twin, levels.simulation)
        return filtered(estimator, belief, ts, y), filtered(simulator, belief, ts, jnp.full_like(y, jnp.nan))

    arrays = (jnp.asarray(each) for each in (plant.x0, plant.level, plant.y))
    found, blind = jax.jit(jax.vmap(follow))(*arrays)
    mean, covariance = np.asarray(found.corrected.mean)[..., :n], np.asarray(found.corrected.covariance)[..., :n, :n]
    error = plant.x - mean
    inverse = _inverse(covariance, freedom)
    nees = np.einsum("rti,rtij,rtj->rt", error, inverse, error)
    nis = np.asarray(found.innovation.nis)
    residual = jax.vmap(
        jax.vmap(lambda t, x, level: given.constraint.residual(t, x, {}, level), in_axes=(0, 0, None)),
        in_axes=(None, 0, 0),
    )(jnp.asarray(plant.ts), jnp.asarray(mean), jnp.asarray(plant.level))
    # The band of a prediction from the start on, without measurements.
    half = float(norm.isf((1 - BAND) / 2)) * np.asarray(blind.innovation.std)
    y = np.asarray(blind.innovation.y)
    inside = coverage(y - half, y + half, plant.y, np.ones_like(plant.y, bool))
    nees_mean, nis_mean = nees.mean(axis=0), float(nis.mean())
    nees_bounds, nis_bounds = bounds(freedom, len(nees)), bounds(plant.y.shape[-1], nis.size)
    return {
        "freedom": freedom,
        "nees": float(nees_mean[-1]),
        "nees_bounds": nees_bounds,
        "nees_inside": float(np.mean((nees_mean > nees_bounds[0]) & (nees_mean < nees_bounds[1]))),
        "nees_over_time": nees_mean.tolist(),
        "nis": nis_mean,
        "nis_bounds": nis_bounds,
        "consistent": bool(
            nees_bounds[0] < nees_mean[-1] < nees_bounds[1] and nis_bounds[0] < nis_mean < nis_bounds[1]
        ),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "violation": float(np.abs(np.asarray(residual)).max()),
        "failed": int(np.sum(~np.asarray(found.corrected.alive)[:, -1])),
        "coverage": float(inside.mean()),
    }


def _inverse(covariance: np.ndarray, freedom: int) -> np.ndarray:
    """The pseudo-inverse of covariances of a known rank."""
    values, vectors = np.linalg.eigh(covariance)
    largest = vectors[..., -freedom:]
    return (largest / values[..., None, -freedom:]) @ largest.swapaxes(-1, -2)
