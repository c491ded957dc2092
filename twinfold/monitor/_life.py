"""Remaining useful life: cycles until a quantity that wears passes its threshold, with a prediction interval.

Life ends at the first of `END_READINGS` readings in a row beyond the threshold, so that a single bad reading does not
end it. The remaining life is simulated from the trend, recoveries and noise included, up to the same event. The
straight line through all readings is given for comparison.
"""

from dataclasses import dataclass, replace

import numpy as np

from twinfold.monitor._trend import MEMBERS, Trend

END_READINGS = 3
PATHS, DRAWS = 500, 5000  # if fewer than one draw in ten wears, there is no trend
MAX_READING = 20.0  # lives: a larger reading or error is not a measurement


@dataclass(frozen=True)
class RemainingLife:
    """Cycles to the end of life: `median`, interval `low` to `high`, and by the straight `line`.

    Infinite means beyond the horizon, or never; `note` says so.
    """

    median: float
    low: float
    high: float
    line: float
    note: str


@dataclass(frozen=True, eq=False)
class Life:
    """The state of a life: `Life.start` creates it, `update` returns the next one.

    `sums` of 1, k, k^2, y, k y over the readings, for the straight line; `beyond`, how many of the latest readings in a
    row are beyond the threshold, and `since` which cycle; `ended`, the cycle at which life ended.
    """

    initial: float
    threshold: float
    trend: Trend
    sums: tuple[float, ...]
    beyond: int
    since: int
    ended: int | None

    @staticmethod
    def start(initial: float, threshold: float, *, falling: bool = True) -> "Life":
        """Return a life before its first reading.

        **Arguments:** the `initial` value of a new unit; the `threshold` at which life ends; `falling=False` for a
        quantity that rises to its threshold (a resistance).
        """
        span = initial - threshold if falling else threshold - initial
        if not np.isfinite(span) or span <= 0:
            raise ValueError(
                f"The initial value {initial:g} has already passed the threshold {threshold:g}: give another threshold "
                f"(for a unit that starts low, a fraction of its initial value), or falling={not falling}."
            )
        return Life(initial, threshold, Trend.start(), (0.0,) * 5, 0, 0, None)

    def update(self, value: float, error: float = 0.0) -> "Life":
        """Advance by one cycle, with the `value` read in it (non-finite if there is none) and its standard `error`."""
        span = self.initial - self.threshold
        reading = (value - self.threshold) / span
        usable = max(abs(reading), abs(error / span)) < MAX_READING
        trend = self.trend.update(reading if usable else np.nan, abs(error / span))
        if trend.readings == self.trend.readings:
            return replace(self, trend=trend)
        k = trend.age
        sums = tuple(a + b for a, b in zip(self.sums, (1, k, k * k, reading, k * reading), strict=True))
        beyond = self.beyond + 1 if reading < 0 else 0
        since = k if beyond == 1 else self.since
        ended = since if self.ended is None and beyond == END_READINGS else self.ended
        return replace(self, trend=trend, sums=sums, beyond=beyond, since=since, ended=ended)

    def remaining(self, *, confidence: float = 0.9, horizon: int = 1000, seed: int = 0) -> RemainingLife:
        """Return the remaining life after the latest cycle.

        **Arguments:** `confidence` of the interval; `horizon`, the number of cycles to simulate; `seed` of the paths.
        """
        if self.ended is not None:
            return RemainingLife(0.0, 0.0, 0.0, 0.0, f"the threshold was passed at cycle {self.ended}")
        if self.trend.readings < END_READINGS:
            return RemainingLife(np.nan, np.nan, np.nan, np.nan, f"fewer than {END_READINGS} readings")
        tails = (0.5 - confidence / 2, 0.5, 0.5 + confidence / 2)
        cycles = first_passage(self.trend, self.beyond, horizon, until=tails[-1], seed=seed)
        low, median, high = (float(v) for v in np.quantile(cycles, tails, method="inverted_cdf"))
        note = ""
        if np.isinf(median):
            note = f"no end within {horizon} cycles: either farther away, or no trend towards the threshold"
        elif np.isinf(high):
            note = f"no upper bound: more than {horizon} cycles, or never"
        return RemainingLife(median, low, high, self._line(), note)

    def _line(self) -> float:
        """Cycles until the least-squares line through all readings passes the threshold."""
        n, k, kk, y, ky = self.sums
        slope = (n * ky - k * y) / (n * kk - k * k)
        return max(float(-(y - slope * k) / n / slope - self.trend.age), 0.0) if slope < 0 else np.inf


def first_passage(trend: Trend, beyond: int, horizon: int, *, until: float, seed: int) -> np.ndarray:
    """Return the cycles to the end of life on each simulated path; infinite where it is not reached.

    **Arguments:** the `trend`; how many readings in a row are `beyond` the threshold already; the `horizon` in cycles;
    `until`, the share of ended paths at which the simulation stops (the others end later); the `seed`.
    """
    rng = np.random.default_rng(seed)
    weight = np.exp(trend.log_weight)
    member = rng.choice(len(MEMBERS), DRAWS, p=weight / weight.sum())
    noise = np.sqrt(trend.scale[member] / rng.gamma(trend.shape[member]))
    root = np.linalg.cholesky(trend.covariance + 1e-9 * np.eye(3))[member]
    start = trend.mean[member] + noise[:, None] * (root @ rng.normal(size=(DRAWS, 3, 1)))[..., 0]
    # Wear is irreversible: only draws with a positive rate are possible.
    wearing = np.flatnonzero(start[:, 1] > 0)[:PATHS]
    if wearing.size < PATHS:
        return np.full(PATHS, np.inf)
    member, noise = member[wearing], noise[wearing]
    level, rate, passing = start[wearing].T
    law, change, wander, recovery = MEMBERS[member].T
    jump_probability = trend.jumps[member] / (trend.readings + 1)
    jump_size = trend.jumped[member] / np.maximum(trend.jumps[member], 1)
    row, cycles = np.full(PATHS, beyond), np.full(PATHS, np.inf)
    for ahead in range(1, horizon + 1):
        age = trend.age + ahead
        normal = rng.normal(size=(3, PATHS))
        level = level - rate
        rate = rate * (age / (age + 1)) ** law * np.exp(change / np.sqrt(age) * normal[0])
        jump = (rng.random(PATHS) < jump_probability) * jump_size * rng.exponential(size=PATHS)
        passing = recovery * passing + noise * wander * normal[1] + jump
        row = np.where(level + passing + noise * normal[2] < 0, row + 1, 0)
        cycles = np.where((row == END_READINGS) & np.isinf(cycles), max(ahead - END_READINGS + 1, 0), cycles)
        if np.mean(cycles < np.inf) >= until:
            break
    return cycles
