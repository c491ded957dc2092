"""Remaining useful life: how many cycles until a quantity that wears down passes its threshold, with an interval.

The end of life is the first of `CONFIRM` readings in a row beyond the threshold, so that a single bad reading does not
end it. What is left is found by simulating on from the trend, recoveries and noise included, to that same event. The
plain straight line through all readings is given beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twinfold.monitor._trend import MEMBERS, Trend, start_trend

CONFIRM = 3
PATHS, DRAWS = 500, 5000  # a trend with fewer than one draw in ten that wears down is none
ABSURD = 20.0  # lives: no reading is that far off; it was not one


@dataclass(frozen=True)
class Remaining:
    """Cycles left from the last one seen: `median`, the interval `low` to `high`, and that of the straight `line`.

    Infinite means more than can be seen ahead, or never; `note` says so in words.
    """

    median: float
    low: float
    high: float
    line: float
    note: str


@dataclass(frozen=True, eq=False)
class Life:
    """The state of a life; `start_life` makes it, `update` gives the next.

    `sums` of 1, k, k^2, y, k y over the readings, for the straight line; `beyond`, how many of the last readings in a
    row are beyond the threshold, `since` which cycle; `ended`, the cycle at which life ended.
    """

    initial: float
    threshold: float
    trend: Trend
    sums: tuple[float, ...]
    beyond: int
    since: int
    ended: int | None

    def update(self, value: float, error: float = 0.0) -> "Life":
        """One cycle on. **Arguments:** the `value` read in it (not finite: none) and its standard `error`."""
        span = self.initial - self.threshold
        reading = (value - self.threshold) / span
        usable = max(abs(reading), abs(error / span)) < ABSURD
        trend = self.trend.update(reading if usable else np.nan, abs(error / span))
        if trend.seen == self.trend.seen:
            return replace(self, trend=trend)
        k = trend.age
        sums = tuple(a + b for a, b in zip(self.sums, (1, k, k * k, reading, k * reading), strict=True))
        beyond = self.beyond + 1 if reading < 0 else 0
        since = k if beyond == 1 else self.since
        ended = since if self.ended is None and beyond == CONFIRM else self.ended
        return replace(self, trend=trend, sums=sums, beyond=beyond, since=since, ended=ended)

    def remaining(self, *, level: float = 0.9, farthest: int = 1000, seed: int = 0) -> Remaining:
        """What is left after the last cycle.

        **Arguments:** the `level` of the interval; how many cycles ahead to look, `farthest`; the `seed` of the paths.
        """
        if self.ended is not None:
            return Remaining(0.0, 0.0, 0.0, 0.0, f"the threshold was passed at cycle {self.ended}")
        if self.trend.seen < CONFIRM:
            return Remaining(np.nan, np.nan, np.nan, np.nan, f"fewer than {CONFIRM} readings")
        left = first_passage(self.trend, self.beyond, farthest, until=0.5 + level / 2, seed=seed)
        tails = (0.5 - level / 2, 0.5, 0.5 + level / 2)
        low, median, high = (float(v) for v in np.quantile(left, tails, method="inverted_cdf"))
        note = ""
        if np.isinf(median):
            note = f"no end within {farthest} cycles: it is farther, or nothing moves towards the threshold"
        elif np.isinf(high):
            note = f"the upper end is not known: more than {farthest} cycles, or never"
        return Remaining(median, low, high, self._line(), note)

    def _line(self) -> float:
        """Where the least-squares line through all readings passes the threshold."""
        n, k, kk, y, ky = self.sums
        slope = (n * ky - k * y) / (n * kk - k * k)
        return max(float(-(y - slope * k) / n / slope - self.trend.age), 0.0) if slope < 0 else np.inf

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        return vars(self) | {"trend": self.trend.state(), "sums": list(self.sums)}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "Life":
        """The life whose `state` it was."""
        return Life(**(dict(state) | {"trend": Trend.from_state(state["trend"]), "sums": tuple(state["sums"])}))


def start_life(initial: float, threshold: float, *, falling: bool = True) -> Life:
    """A life that has not begun.

    **Arguments:** the `initial` value, of a new one; the `threshold` at which life ends; `falling=False` for a
    quantity that rises to its threshold (a resistance).
    """
    span = initial - threshold if falling else threshold - initial
    if not np.isfinite(span) or span <= 0:
        raise ValueError(
            f"The threshold {threshold:g} is passed already by the initial value {initial:g}: give one that is not "
            f"(for a cell that starts low, a share of its initial capacity), or falling={not falling}."
        )
    return Life(initial, threshold, start_trend(), (0.0,) * 5, 0, 0, None)


def first_passage(trend: Trend, beyond: int, farthest: int, *, until: float, seed: int) -> np.ndarray:
    """Cycles to the end of life on each simulated path; infinite where it was not reached.

    **Arguments:** the `trend`; how many readings in a row are `beyond` the threshold already; the `farthest` cycle
    ahead; the share of paths `until` whose end it goes on (of the rest it is enough that they end later); the `seed`.
    """
    rng = np.random.default_rng(seed)
    weight = np.exp(trend.log_weight)
    member = rng.choice(len(MEMBERS), DRAWS, p=weight / weight.sum())
    noise = np.sqrt(trend.scale[member] / rng.gamma(trend.shape[member]))
    root = np.linalg.cholesky(trend.covariance + 1e-9 * np.eye(3))[member]
    start = trend.mean[member] + noise[:, None] * (root @ rng.normal(size=(DRAWS, 3, 1)))[..., 0]
    # Wear does not go back: of what the readings leave open, only this is possible.
    wears = np.flatnonzero(start[:, 1] > 0)[:PATHS]
    if wears.size < PATHS:
        return np.full(PATHS, np.inf)
    member, noise = member[wears], noise[wears]
    level, rate, passing = start[wears].T
    law, change, wander, recovery = MEMBERS[member].T
    often = trend.jumps[member] / (trend.seen + 1)
    high = trend.jumped[member] / np.maximum(trend.jumps[member], 1)
    row, left = np.full(PATHS, beyond), np.full(PATHS, np.inf)
    for ahead in range(1, farthest + 1):
        age = trend.age + ahead
        normal = rng.normal(size=(3, PATHS))
        level = level - rate
        rate = rate * (age / (age + 1)) ** law * np.exp(change / np.sqrt(age) * normal[0])
        jump = (rng.random(PATHS) < often) * high * rng.exponential(size=PATHS)
        passing = recovery * passing + noise * wander * normal[1] + jump
        row = np.where(level + passing + noise * normal[2] < 0, row + 1, 0)
        left = np.where((row == CONFIRM) & np.isinf(left), max(ahead - CONFIRM + 1, 0), left)
        if np.mean(left < np.inf) >= until:
            break
    return left
