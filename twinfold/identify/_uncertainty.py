"""Standard errors of a least-squares estimate, from the residuals and the Jacobian at the solution.

    covariance = s^2 tau (J' J)^-1,        s^2 = r' r / (n - p tau),        tau = 1 + 2 sum_k correlation(k)

Model errors are correlated in time: n samples are worth only n / tau independent ones, where tau is the integrated
autocorrelation time. Without tau the standard errors are far too small. The effect of a parameter is assumed
to vary slowly compared with tau; for one that acts in a few samples only, the stated error is too large.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Standard errors of p parameters.

    `errors` by name; infinite for a parameter that takes part in a weak direction. `weak` lists the directions that the
    data do not determine: unit vectors over the parameters, each scaled by its effect on the output; `covariance`
    [p, p] leaves them out. `noise` is s, `samples` the effective number of samples n / tau.

    **Example:**

    ```python
    s = np.linspace(0, 1, 50)
    result = tw.identify.uncertainty(0.01 * np.cos(40 * s), np.stack([s, 2 * s], axis=1), ["a", "b"])
    result.errors  # both infinite: only a + 2 b is determined
    result.weak
    ```
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
    """Return the uncertainty of a least-squares estimate.

    **Arguments:** `residual` [T] or [T, k], in order of time, outputs in comparable units; `jacobian` [T, p] or
    [T, k, p], its derivative; `names` of the p parameters; `mask` like the residual, True where measured (non-finite
    values are excluded as well); `tolerance`: singular values below this fraction of the largest are weak directions.

    **Returns:** an `Uncertainty`.

    **Raises:** `ValueError` if the shapes do not match, or if there are not more samples than parameters.

    **Example:**

    ```python
    s = np.linspace(0, 1, 50)
    jacobian = np.stack([np.ones(50), s], axis=1)
    residual = np.random.default_rng(0).normal(scale=0.1, size=50)
    tw.identify.uncertainty(residual, jacobian, ["offset", "slope"]).errors
    ```
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
        raise ValueError(f"{use.sum()} samples were measured: {p} parameters need more than {p}.")
    tau = correlation_time(r, use, p)
    rows = j[use]
    size = np.linalg.norm(rows, axis=0)
    size = np.where(size > 0, size, 1.0)
    _, singular_values, directions = np.linalg.svd(rows / size, full_matrices=False)
    weak = singular_values <= tolerance * singular_values[0]
    determined = directions[~weak] / size
    noise = float(np.sqrt(np.sum(r[use] ** 2) / (use.sum() - len(determined) * tau)))
    covariance = noise**2 * tau * (determined / singular_values[~weak, None] ** 2).T @ determined
    in_weak = (np.abs(directions[weak]) > 1e-3).any(axis=0)
    errors = np.where(in_weak, np.inf, np.sqrt(np.diag(covariance)))
    return Uncertainty(
        tuple(names),
        dict(zip(names, errors.tolist(), strict=True)),
        covariance,
        noise,
        tau,
        float(use.sum() / tau),
        tuple(dict(zip(names, direction.tolist(), strict=True)) for direction in directions[weak]),
    )


def correlation_time(residual: np.ndarray, mask: np.ndarray, fitted: int = 0) -> float:
    """Return the integrated autocorrelation time of a residual in samples: 1 for independent samples, never less.

    The larger of two estimates: that of a first-order process, (1 + c) / (1 - c), with the lag-one correlation c
    corrected for the fitted parameters (Kendall: c is biased by -(p + (p + 2) c) / n); and the sum of the empirical
    correlations, which is right for measurement noise on top of a slow model error, but too small for short series.

    **Arguments:** `residual` [T, k] in order of time; `mask` [T, k], True where measured: pairs with a missing sample
    are left out; `fitted`, the number of parameters fitted to the data.
    """
    count, r = int(mask.sum()), np.where(mask, residual, 0.0)
    power = np.sum(r**2)
    if power == 0:
        return 1.0
    pairs = np.sum(mask[1:] & mask[:-1])
    lag_one = np.sum(r[1:] * r[:-1]) / power * (count / max(pairs, 1))
    corrected = (lag_one + fitted / count) / max(1 - (fitted + 2) / count, 0.5)
    # A larger tau would leave less than one degree of freedom.
    longest = max(count / (fitted + 2), 1.0)
    first_order = (1 + corrected) / (1 - corrected) if corrected < 1 else longest
    return float(np.clip(max(first_order, _summed_correlations(r, power, count)), 1.0, longest))


def _summed_correlations(r: np.ndarray, power: float, count: int) -> float:
    """1 + 2 sum_k correlation(k), up to the first correlation that is not significant."""
    total = 1.0
    for lag in range(1, len(r)):
        correlation = float(np.sum(r[lag:] * r[:-lag])) / power
        if correlation < 2 / np.sqrt(count):
            break
        total += 2 * correlation
    return total
