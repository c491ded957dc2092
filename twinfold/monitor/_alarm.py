"""A running score against its limit, cycle by cycle: slow drift is found long before one cycle alone would show it.

    running_k = (1 - b) running_{k-1} + b deviation_k,    w_k = (1 - b)^2 w_{k-1} + b^2,    b = a / (1 - (1 - a)^k)

The running mean (EWMA) of the deviations from healthy has weights that add up to 1, from the first cycle on, and
squared weights that add up to w_k, so that its limit is exact at every cycle (see `limits`). a = 1 judges each cycle
alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twinfold.monitor._limits import EachFeature, Jointly, Limits


@dataclass(frozen=True)
class Judgement:
    """What one cycle gave: its own `score`, the `running` one, the `limit` of that, and whether it is an alarm.

    `exceeded` is the running score over its limit; `alarm` is that, confirmed. `missing` names features that were not
    finite: such a cycle is not judged (its numbers are NaN) and changes nothing.
    """

    score: float
    running: float
    limit: float
    exceeded: bool
    alarm: bool
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Alarm:
    """The state of an alarm; `start_alarm` makes one, `update` gives the next."""

    limits: Limits
    smoothing: float
    confirm: tuple[int, int]
    judged: int
    running: np.ndarray
    weight: float
    recent: tuple[bool, ...]

    def update(self, features: Mapping[str, float]) -> tuple["Alarm", Judgement]:
        """Judge one cycle.

        **Arguments:** `features` of the cycle; those that the healthy cycles did not have are not looked at.

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
        # Held: one wild reading must not keep the alarm for the time that the running mean needs to forget it.
        running = (1 - share) * self.running + share * limits.held(deviation)
        weight = (1 - share) ** 2 * self.weight + share**2
        level, limit = limits.score(running), limits.limit(weight)
        recent = (*self.recent, level > limit)[-self.confirm[1] :]
        alarm = recent[-1] and sum(recent) >= self.confirm[0]
        after = replace(self, judged=judged, running=running, weight=weight, recent=recent)
        return after, Judgement(limits.score(deviation), level, limit, recent[-1], alarm)

    def expected_false_alarms(self, cycles: int) -> float:
        """How many of so many healthy cycles are alarms on average, at most: rate x cycles.

        They come in clusters, since neighbouring running means have most of their cycles in common.
        """
        return self.limits.rate * cycles

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        rule = "each" if isinstance(self.limits, EachFeature) else "joint"
        plain = {name: _plain(value) for name, value in vars(self.limits).items()}
        own = {name: _plain(value) for name, value in vars(self).items() if name != "limits"}
        return {"rule": rule, "limits": plain} | own

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "Alarm":
        """The alarm whose `state` it was."""
        kept = dict(state["limits"])
        kept |= {"names": tuple(kept["names"]), "mean": np.array(kept["mean"]), "spread": np.array(kept["spread"])}
        if state["rule"] == "each":
            kept |= {"sides": np.array(kept["sides"], bool), "allowed": np.array(kept["allowed"])}
        limits = EachFeature(**kept) if state["rule"] == "each" else Jointly(**kept)
        needed, of = state["confirm"]
        running, recent = np.array(state["running"]), tuple(state["recent"])
        return Alarm(limits, state["smoothing"], (needed, of), state["judged"], running, state["weight"], recent)


def start_alarm(limits: Limits, *, smoothing: float = 0.2, confirm: tuple[int, int] = (1, 1)) -> Alarm:
    """An alarm that has not seen a cycle yet.

    **Arguments:** `limits`, see `each_feature` and `jointly`; `smoothing` a in (0, 1], the share of the newest cycle;
    `confirm=(k, n)`: an alarm needs k of the last n running scores over the limit, the newest among them. That only
    lowers the rate of false alarms.
    """
    needed, of = confirm
    if not 0 < smoothing <= 1 or not 1 <= needed <= of:
        raise ValueError(f"smoothing is in (0, 1] and confirm=(k, n) has 1 <= k <= n; got {smoothing:g}, {confirm}.")
    return Alarm(limits, smoothing, (needed, of), 0, np.zeros(len(limits.names)), 0.0, ())


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
