"""Alarm limits from a few healthy cycles, with a stated false-alarm rate per cycle.

The mean and the standard deviation s of the healthy population are only estimated, from n cycles. A weighted mean of
later healthy deviations whose squared weights sum to w (w = 1: a single cycle) then has, exactly for normal features,

    one feature:    deviation / s                           ~  sqrt(w + 1/n) t_{n-1}
    p features:     deviation' S^-1 deviation               ~  (w + 1/n) p (n-1)/(n-p) F_{p, n-p}      (Hotelling)

The rate is an average over calibrations: the probability that a healthy cycle exceeds the limit. It does not hold for a
quantity that drifts while healthy. State the drift to tolerate with `allowed`; the rate is then at most the stated one
as long as the drift stays within it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

MIN_HEALTHY = 3  # cycles; with two, the limit would be 30 standard deviations
MAX_DEVIATION = 3.0  # times the limit of a single cycle: a larger deviation counts as this much in a running mean


@dataclass(frozen=True, eq=False)
class FeatureLimits:
    """A limit for each feature, the rate divided among them (Bonferroni): at most the stated rate for any correlation.

    `sides` [2, p] states what is judged: row 0 a rise, row 1 a fall. `allowed` [p] is the change that is no alarm.
    """

    names: tuple[str, ...]
    count: int
    false_alarm_rate: float
    mean: np.ndarray
    spread: np.ndarray
    sides: np.ndarray
    allowed: np.ndarray

    def score(self, deviation: np.ndarray) -> float:
        """Return the largest deviation to a judged side beyond what is allowed, in healthy standard deviations."""
        return float(self.scores(deviation))

    def limit(self, weight: float) -> float:
        """Return the score that a healthy mean with squared weights summing to `weight` exceeds at the stated rate."""
        return float(self.limits(np.asarray(weight)))

    def scores(self, deviation: np.ndarray) -> np.ndarray:
        """Return the scores of deviations [..., p]."""
        both = (np.stack([deviation, -deviation], axis=-2) - self.allowed) / self.spread
        return np.asarray(both[..., self.sides].max(axis=-1))

    def limits(self, weight: np.ndarray) -> np.ndarray:
        """Return the limits for weights of any shape."""
        quantile = special.stdtrit(self.count - 1, 1 - self.false_alarm_rate / int(self.sides.sum()))
        return np.asarray(quantile * np.sqrt(weight + 1 / self.count))

    def clip(self, deviation: np.ndarray) -> np.ndarray:
        """Return the deviations [..., p], limited to `MAX_DEVIATION` times the limit of a single cycle."""
        bound = self.allowed + MAX_DEVIATION * self.limit(1.0) * self.spread
        return np.clip(deviation, -bound, bound)


@dataclass(frozen=True, eq=False)
class JointLimits:
    """One limit for all features as a vector, in any direction: Hotelling's T. `spread` [p, p] is their covariance."""

    names: tuple[str, ...]
    count: int
    false_alarm_rate: float
    mean: np.ndarray
    spread: np.ndarray

    def score(self, deviation: np.ndarray) -> float:
        """Return T = sqrt(deviation' S^-1 deviation)."""
        largest = np.abs(deviation).max()
        if largest == 0:
            return 0.0
        direction = deviation / largest  # the square of an extreme value may overflow
        return float(largest * np.sqrt(direction @ np.linalg.solve(self.spread, direction)))

    def limit(self, weight: float) -> float:
        """As for `FeatureLimits`."""
        p, n = len(self.names), self.count
        quantile = special.fdtri(p, n - p, 1 - self.false_alarm_rate)
        return float(np.sqrt((weight + 1 / n) * p * (n - 1) / (n - p) * quantile))

    def clip(self, deviation: np.ndarray) -> np.ndarray:
        """As for `FeatureLimits`."""
        bound = MAX_DEVIATION * self.limit(1.0)
        return deviation * min(1.0, bound / max(self.score(deviation), np.finfo(np.float64).tiny))


Limits: TypeAlias = FeatureLimits | JointLimits


def feature_limits(
    healthy: Sequence[Mapping[str, float]],
    *,
    false_alarm_rate: float = 0.01,
    direction: Mapping[str, int] | None = None,
    allowed: Mapping[str, float] | None = None,
) -> FeatureLimits:
    """Return a limit for each feature.

    **Arguments:** `healthy`, the features of at least 3 cycles (a cycle with a non-finite value is left out);
    `false_alarm_rate` per cycle; `direction` of each feature: 1 if a rise is bad, -1 if a fall is, 0 for both (the
    default); `allowed`, by how much a feature may change and still be healthy, in its own unit (0 by default).
    """
    names, values = _healthy_values(healthy, false_alarm_rate)
    signs = np.array([(direction or {}).get(name, 0) for name in names])
    margin = np.array([float((allowed or {}).get(name, 0.0)) for name in names])
    unknown = sorted({*(direction or {}), *(allowed or {})} - set(names))
    if unknown or (margin < 0).any() or not np.isin(signs, (-1, 0, 1)).all():
        raise ValueError(
            f"direction must be 1, -1 or 0, and allowed not negative, for the features {names}; unknown: {unknown}."
        )
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    constant = [name for name, s, m in zip(names, spread, mean, strict=True) if s <= 1e-12 * abs(m)]
    if constant:
        raise ValueError(f"{constant} did not vary over the healthy cycles, so they have no limit: leave them out.")
    return FeatureLimits(names, len(values), false_alarm_rate, mean, spread, np.stack([signs >= 0, signs <= 0]), margin)


def joint_limits(healthy: Sequence[Mapping[str, float]], *, false_alarm_rate: float = 0.01) -> JointLimits:
    """Return one limit for all features together; this needs clearly more healthy cycles than features.

    **Arguments:** as for `feature_limits`.
    """
    names, values = _healthy_values(healthy, false_alarm_rate)
    count, p = values.shape
    if count < p + 2:
        raise ValueError(
            f"{count} healthy cycles are too few for {p} features together: give {p + 2}, or use joint=False."
        )
    spread = np.atleast_2d(np.cov(values, rowvar=False))
    size = np.sqrt(np.diag(spread))
    if not size.all() or np.linalg.cond(spread / np.outer(size, size)) > 1e10:
        raise ValueError(
            f"The features {names} are linearly dependent, or do not vary: leave some out, or use joint=False."
        )
    return JointLimits(names, count, false_alarm_rate, values.mean(axis=0), spread)


def _healthy_values(
    healthy: Sequence[Mapping[str, float]], false_alarm_rate: float
) -> tuple[tuple[str, ...], np.ndarray]:
    """The names of the features, and the cycles in which all are finite."""
    if not 0 < false_alarm_rate < 0.5:
        raise ValueError(f"false_alarm_rate={false_alarm_rate:g}: the rate per cycle must be between 0 and 0.5.")
    names = tuple(healthy[0]) if healthy else ()
    rows = np.array([[cycle[name] for name in names] for cycle in healthy], np.float64).reshape(-1, max(len(names), 1))
    finite = rows[np.isfinite(rows).all(axis=1)]
    if not names or len(finite) < MIN_HEALTHY:
        raise ValueError(
            f"{len(finite)} healthy cycles with finite features (of {len(healthy)}): at least {MIN_HEALTHY} are needed."
        )
    return names, finite
