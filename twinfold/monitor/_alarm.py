"""A running score compared with its limit, cycle by cycle: detects slow drift long before a single cycle would.

    running_k = (1 - b) running_{k-1} + b deviation_k,    w_k = (1 - b)^2 w_{k-1} + b^2,    b = a / (1 - (1 - a)^k)

The exponentially weighted moving average (EWMA) of the deviations from the healthy mean. Its weights sum to 1 from the
first cycle on and its squared weights to w_k, so its limit is exact at every cycle (see `_limits`). a = 1 judges each
cycle alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from twinfold.monitor._limits import Limits


@dataclass(frozen=True)
class Judgement:
    """The result of one cycle: its `score`, the `running` score and the `limit` of that.

    `exceeded`: the running score is above its limit; `alarm`: confirmed as well. `missing` names features that were not
    finite: such a cycle is not judged (its numbers are NaN) and does not change the alarm.
    """

    score: float
    running: float
    limit: float
    exceeded: bool
    alarm: bool
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Alarm:
    """The state of an alarm: `Alarm.start` creates it, `update` returns the next one."""

    limits: Limits
    smoothing: float
    confirm: tuple[int, int]
    judged: int
    running: np.ndarray
    weight: float
    recent: tuple[bool, ...]

    @staticmethod
    def start(limits: Limits, *, smoothing: float = 0.2, confirm: tuple[int, int] = (1, 1)) -> "Alarm":
        """Return an alarm before its first cycle.

        **Arguments:** `limits`, from `feature_limits` or `joint_limits`; `smoothing` a in (0, 1], the weight of the
        newest cycle; `confirm=(k, n)`: an alarm needs k of the last n running scores above the limit, the newest among
        them. This only lowers the false-alarm rate.
        """
        needed, of = confirm
        if not 0 < smoothing <= 1 or not 1 <= needed <= of:
            raise ValueError(
                f"smoothing must be in (0, 1] and confirm=(k, n) have 1 <= k <= n; got {smoothing:g}, {confirm}."
            )
        return Alarm(limits, smoothing, (needed, of), 0, np.zeros(len(limits.names)), 0.0, ())

    def update(self, features: Mapping[str, float]) -> tuple["Alarm", Judgement]:
        """Judge one cycle.

        **Arguments:** `features` of the cycle; those that the healthy cycles did not have are ignored.

        **Returns:** the alarm for the next cycle, and the `Judgement`.
        """
        limits = self.limits
        absent = [name for name in limits.names if name not in features]
        if absent:
            raise ValueError(f"The cycle has no feature {absent}; the healthy cycles had {list(limits.names)}.")
        values = np.array([features[name] for name in limits.names], np.float64)
        if not np.isfinite(values).all():
            missing = tuple(name for name, bad in zip(limits.names, ~np.isfinite(values), strict=True) if bad)
            return self, Judgement(np.nan, np.nan, np.nan, False, False, missing)
        deviation = values - limits.mean
        judged = self.judged + 1
        share = self.smoothing / (1 - (1 - self.smoothing) ** judged)
        # Clipped, so that one extreme reading does not hold the alarm until the running mean has forgotten it.
        running = (1 - share) * self.running + share * limits.clip(deviation)
        weight = (1 - share) ** 2 * self.weight + share**2
        score, limit = limits.score(running), limits.limit(weight)
        recent = (*self.recent, score > limit)[-self.confirm[1] :]
        alarm = recent[-1] and sum(recent) >= self.confirm[0]
        after = replace(self, judged=judged, running=running, weight=weight, recent=recent)
        return after, Judgement(limits.score(deviation), score, limit, recent[-1], alarm)

    def expected_false_alarms(self, cycles: int) -> float:
        """Return an upper bound on the mean number of alarms in so many healthy cycles: rate x cycles.

        They come in clusters, since neighbouring running means share most of their cycles.
        """
        return self.limits.false_alarm_rate * cycles
