"""How sure a re-estimated parameter is, from the residuals and the Jacobian at a least-squares solution.

    covariance = s^2 tau (J' J)^-1,        s^2 = r' r / (n - p tau),        tau = 1 + 2 sum_k correlation(k)

What a model does not describe leaves residuals that follow one another closely: n samples are then worth only n / tau
independent ones, tau being the integrated autocorrelation time. Without it standard errors are far too small. The
parameters should act slowly along the residual beside tau: one that acts in a few samples only is surer than stated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Standard errors of p parameters.

    `errors` is infinite for a parameter that takes part in one of the `weak` directions (unit vectors over the
    parameters, by name, scaled to what each does to the output), along which the data say nothing; `covariance` is
    that of what can be told. `noise` is s, `samples` the effective number n / tau.
    """

    names: tuple[str, ...]
    errors: dict[str, float]
    covariance: np.ndarray
    noise: float
    correlation_time: float
    samples: float
    weak: tuple[dict[str, float], ...]


def uncertainty(
    residual: np.ndarray,
    jacobian: np.ndarray,
    names: Sequence[str],
    *,
    mask: np.ndarray | None = None,
    tolerance: float = 1e-6,
) -> Uncertainty:
    """The uncertainty of a least-squares estimate.

    **Arguments:** `residual` [T] or [T, k], in the order of time, outputs in comparable units; `jacobian` [T, p] or
    [T, k, p], its derivative; `names` of the p parameters; `mask` like the residual, True where measured (values that
    are not finite are left out too); `tolerance`: a direction whose effect is this small beside the largest is weak.
    """
    r = np.asarray(residual, np.float64)
    r = r[:, None] if r.ndim == 1 else r
    p = len(names)
    if r.ndim != 2 or np.size(jacobian) != r.size * p:
        raise ValueError(
            f"A residual {np.shape(residual)} and {p} parameters need a Jacobian of {r.size} x {p} values, "
            f"not {np.shape(jacobian)}."
        )
    j = np.asarray(jacobian, np.float64).reshape(*r.shape, p)
    use = np.isfinite(r) & np.isfinite(j).all(axis=-1)
    use = use if mask is None else use & np.asarray(mask, bool).reshape(r.shape)
    if use.sum() <= p:
        raise ValueError(f"{use.sum()} samples were measured: more than {p} are needed to tell {p} parameters.")
    tau = correlation_time(r, use, p)
    rows = j[use]
    size = np.linalg.norm(rows, axis=0)
    size = np.where(size > 0, size, 1.0)
    _, strength, towards = np.linalg.svd(rows / size, full_matrices=False)
    lost = strength <= tolerance * strength[0]
    told = towards[~lost] / size
    noise = float(np.sqrt(np.sum(r[use] ** 2) / (use.sum() - (~lost).sum() * tau)))
    covariance = noise**2 * tau * (told / strength[~lost, None] ** 2).T @ told
    blurred = (np.abs(towards[lost]) > 1e-3).any(axis=0)
    errors = np.where(blurred, np.inf, np.sqrt(np.diag(covariance)))
    weak = tuple(dict(zip(names, direction.tolist(), strict=True)) for direction in towards[lost])
    by_name = dict(zip(names, errors.tolist(), strict=True))
    return Uncertainty(tuple(names), by_name, covariance, noise, tau, float(use.sum() / tau), weak)


def correlation_time(residual: np.ndarray, mask: np.ndarray, fitted: int = 0) -> float:
    """The integrated autocorrelation time of a residual, in samples; 1 for independent ones, never less.

    The larger of two: that of a first-order process, (1 + c) / (1 - c), with the correlation c of neighbours corrected
    for what fitting took away (Kendall: c falls short by (p + (p + 2) c) / n); and the sum of the correlations
    themselves, which is right when measurement noise lies over a slow misfit, and short where the series is.

    **Arguments:** `residual` [T, k] in the order of time; `mask` [T, k], True where measured: pairs of samples with
    one missing are left out; `fitted`, how many parameters were fitted to it.
    """
    count, r = int(mask.sum()), np.where(mask, residual, 0.0)
    power = np.sum(r**2)
    if power == 0:
        return 1.0
    pairs = np.sum(mask[1:] & mask[:-1])
    neighbours = np.sum(r[1:] * r[:-1]) / power * (count / max(pairs, 1))
    corrected = (neighbours + fitted / count) / max(1 - (fitted + 2) / count, 0.5)
    # At least one independent sample more than parameters: beyond that nothing could be said at all.
    longest = max(count / (fitted + 2), 1.0)
    first_order = (1 + corrected) / (1 - corrected) if corrected < 1 else longest
    return float(np.clip(max(first_order, _summed(r, power, count)), 1.0, longest))


def _summed(r: np.ndarray, power: float, count: int) -> float:
    """1 + 2 sum_k correlation(k), up to the first that independent samples might have as well."""
    total = 1.0
    for lag in range(1, len(r)):
        correlation = float(np.sum(r[lag:] * r[:-lag])) / power
        if correlation < 2 / np.sqrt(count):
            break
        total += 2 * correlation
    return total
