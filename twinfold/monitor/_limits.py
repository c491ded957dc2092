"""Alarm limits from a few healthy cycles, with a stated rate of false alarms per cycle.

Of n healthy cycles only the mean and the spread s are known, not those of all healthy cycles. A weighted mean of later
healthy deviations whose squared weights add up to w (w = 1: one cycle alone) then obeys, exactly for normal features,

    one feature:    deviation / s                           ~  sqrt(w + 1/n) t_{n-1}
    p features:     deviation' S^-1 deviation               ~  (w + 1/n) p (n-1)/(n-p) F_{p, n-p}      (Hotelling)

The rate is an average over calibrations: what is exceeded is exceeded by a healthy cycle with that probability. It
does not hold for a quantity that drifts while healthy: say with `allowed` by how much it may; the rate is then at most
the stated one as long as the drift is within that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from twinfold.monitor._quantiles import f_quantile, student_quantile

FEWEST = 3  # healthy cycles; with two, the limit is 30 standard deviations and says nothing
WILD = 3.0  # times the limit of one cycle: a larger deviation counts as this much in a running mean


@dataclass(frozen=True, eq=False)
class EachFeature:
    """Each feature against its own limit, the rate divided among them: at most the stated rate, whatever correlates.

    `sides` [2, p] says what is judged: row 0 a rise, row 1 a fall. `allowed` [p] is the change that is no alarm.
    """

    names: tuple[str, ...]
    count: int
    rate: float
    mean: np.ndarray
    spread: np.ndarray
    sides: np.ndarray
    allowed: np.ndarray

    def score(self, deviation: np.ndarray) -> float:
        """The largest deviation to a judged side, beyond what is allowed, in healthy standard deviations."""
        both = (np.stack([deviation, -deviation]) - self.allowed) / self.spread
        return float(both[self.sides].max())

    def limit(self, weight: float) -> float:
        """What a healthy score exceeds at the stated rate, for a mean whose squared weights add up to `weight`."""
        quantile = student_quantile(1 - self.rate / int(self.sides.sum()), self.count - 1)
        return quantile * float(np.sqrt(weight + 1 / self.count))

    def held(self, deviation: np.ndarray) -> np.ndarray:
        """The deviation, wild values brought back to a few times the limit."""
        bound = self.allowed + WILD * self.limit(1.0) * self.spread
        return np.clip(deviation, -bound, bound)


@dataclass(frozen=True, eq=False)
class Jointly:
    """All features as one vector, in any direction: Hotelling's T. `spread` [p, p] is their covariance."""

    names: tuple[str, ...]
    count: int
    rate: float
    mean: np.ndarray
    spread: np.ndarray

    def score(self, deviation: np.ndarray) -> float:
        """T = sqrt(deviation' S^-1 deviation)."""
        largest = np.abs(deviation).max()
        if largest == 0:
            return 0.0
        towards = deviation / largest  # the square of a wild value may overflow
        return float(largest * np.sqrt(towards @ np.linalg.solve(self.spread, towards)))

    def limit(self, weight: float) -> float:
        """As for `EachFeature`."""
        p, n = len(self.names), self.count
        quantile = f_quantile(1 - self.rate, p, n - p)
        return float(np.sqrt((weight + 1 / n) * p * (n - 1) / (n - p) * quantile))

    def held(self, deviation: np.ndarray) -> np.ndarray:
        """As for `EachFeature`."""
        return deviation * min(1.0, WILD * self.limit(1.0) / max(self.score(deviation), np.finfo(np.float64).tiny))


Limits: TypeAlias = EachFeature | Jointly


def each_feature(
    healthy: Sequence[Mapping[str, float]],
    *,
    rate: float = 0.01,
    direction: Mapping[str, int] | None = None,
    allowed: Mapping[str, float] | None = None,
) -> EachFeature:
    """Limits for each feature from the features of healthy cycles.

    **Arguments:** `healthy`, at least 3 cycles; a cycle with a value that is not finite is left out; `rate` of false
    alarms per cycle; `direction` of each feature: 1 if a rise is bad, -1 if a fall is, 0 for both (if left out);
    `allowed`, by how much a feature may change and still be healthy (0 if left out), in its own unit.
    """
    names, values = _healthy(healthy, rate)
    towards = np.array([(direction or {}).get(name, 0) for name in names])
    margin = np.array([float((allowed or {}).get(name, 0.0)) for name in names])
    unknown = sorted({*(direction or {}), *(allowed or {})} - set(names))
    if unknown or (margin < 0).any() or not np.isin(towards, (-1, 0, 1)).all():
        raise ValueError(
            f"direction is 1, -1 or 0 and allowed is not negative, for features among {names}; not known: {unknown}."
        )
    spread = values.std(axis=0, ddof=1)
    flat = [name for name, s, m in zip(names, spread, values.mean(axis=0), strict=True) if s <= 1e-12 * abs(m)]
    if flat:
        raise ValueError(
            f"{flat} did not vary over the healthy cycles: leave them out, there is no spread to judge by."
        )
    sides = np.stack([towards >= 0, towards <= 0])
    return EachFeature(names, len(values), rate, values.mean(axis=0), spread, sides, margin)


def jointly(healthy: Sequence[Mapping[str, float]], *, rate: float = 0.01) -> Jointly:
    """One limit for all features together; needs clearly more healthy cycles than features.

    **Arguments:** as for `each_feature`.
    """
    names, values = _healthy(healthy, rate)
    count, p = values.shape
    if count < p + 2:
        raise ValueError(f"{count} healthy cycles are too few for {p} features together: judge each, or give {p + 2}.")
    spread = np.atleast_2d(np.cov(values, rowvar=False))
    size = np.sqrt(np.diag(spread))
    if not size.all() or np.linalg.cond(spread / np.outer(size, size)) > 1e10:
        raise ValueError(f"The features {names} depend on one another (or do not vary): leave some out, or judge each.")
    return Jointly(names, count, rate, values.mean(axis=0), spread)


def _healthy(healthy: Sequence[Mapping[str, float]], rate: float) -> tuple[tuple[str, ...], np.ndarray]:
    """The names and the finite rows."""
    if not 0 < rate < 0.5:
        raise ValueError(f"The rate of false alarms per cycle is between 0 and 0.5, not {rate:g}.")
    names = tuple(healthy[0]) if healthy else ()
    rows = np.array([[cycle[name] for name in names] for cycle in healthy], np.float64).reshape(-1, max(len(names), 1))
    finite = rows[np.isfinite(rows).all(axis=1)]
    if not names or len(finite) < FEWEST:
        raise ValueError(
            f"{len(finite)} healthy cycles with finite features (of {len(healthy)}): at least {FEWEST} are needed."
        )
    return names, finite
