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

from twinfold.estimate import AbstractGaussianFilter, ExtendedKalmanFilter, Filtered, filtered
from twinfold.metrics import coverage
from twinfold_studies.follow.learned import as_measured, fit_twin, trained_std
from twinfold_studies.follow.plants import START, Recorded, exact_twin, noise_of, record
from twinfold_studies.systems import system

OUTSIDE = 0.001  # 99.9 % bounds
BAND = 0.9


def exact_results(name: str, runs: int, samples: int) -> dict[str, Any]:
    """The numbers of one system with the exact model, on its manifold and without it."""
    plant, noise = record(name, runs, samples), noise_of(name)
    return {
        "exact": _judged(name, ExtendedKalmanFilter(exact_twin(name), noise), plant, None),
        "unconstrained": _judged(name, ExtendedKalmanFilter(exact_twin(name, projected=False), noise), plant, None),
    }


def learned_results(name: str, runs: int, samples: int, *, quick: bool) -> dict[str, Any]:
    """The numbers of one system with a learned twin."""
    plant = record(name, runs, samples)
    fit, data = fit_twin(name, quick=quick)
    estimator = ExtendedKalmanFilter(as_measured(name, fit), noise_of(name))
    return {"learned": _judged(name, estimator, plant, trained_std(name, fit, data, plant))}


def bounds(freedom: int, runs: int) -> tuple[float, float]:
    """Where the average of `runs` chi-squared values lies with probability 99.9 %."""
    low, high = chi2.ppf([OUTSIDE / 2, 1 - OUTSIDE / 2], freedom * runs) / runs
    return float(low), float(high)


def _judged(
    name: str, estimator: AbstractGaussianFilter, plant: Recorded, parameter_std: np.ndarray | None
) -> dict[str, Any]:
    """An estimator on the runs of a plant."""
    given = system(name)
    n, m = plant.x.shape[-1], plant.level.shape[-1]
    manifold = estimator.space.on_manifold
    freedom = n - m if manifold else n

    def follow(x0: Any, level: Any, y: Any) -> tuple[Filtered, Filtered]:
        belief = estimator.init(plant.ts[0], x0, [START] * n, level=level)
        arguments = (estimator, belief, jnp.asarray(plant.ts))
        return filtered(*arguments, y), filtered(*arguments, jnp.full_like(y, jnp.nan))

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
    # The band of an open-loop prediction, from start, process and sensor noise, and trained values if there are any.
    std = np.asarray(blind.innovation.std)
    std = std if parameter_std is None else np.sqrt(std**2 + parameter_std**2)
    half = float(norm.isf((1 - BAND) / 2)) * std
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
