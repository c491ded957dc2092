"""A twin's monitor, cycle by cycle: is it still healthy, how much is left, and for how long.

It takes what any twin gives for a cycle (or a window): features of the residual, parameters that were estimated again,
and the quantity that wears down with its standard error. Its state is small, plain JSON, and does not grow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from twinfold.monitor._alarm import Alarm, start_alarm
from twinfold.monitor._life import Life, start_life
from twinfold.monitor._limits import each_feature, jointly

FORMAT = 1  # of a saved state


@dataclass(frozen=True)
class Record:
    """What the monitor says after one cycle.

    `score`: how far the cycle is from healthy, in healthy standard deviations; `running`, its running mean, against
    `limit`; `alarm`; `health` with its standard error `health_error`; `remaining` cycles with the interval `low` to
    `high`, and by the straight `line`; `note`: what could not be said, and why. NaN where there is nothing to say.
    """

    cycle: int
    score: float
    running: float
    limit: float
    alarm: bool
    health: float
    health_error: float
    remaining: float
    low: float
    high: float
    line: float
    note: str

    def row(self) -> dict[str, Any]:
        """A row of a table."""
        return asdict(self)


@dataclass
class Monitor:
    """The running state; `Monitor.calibrate` makes it from healthy cycles, `update` takes one cycle more."""

    cycle: int
    alarm: Alarm
    life: Life | None
    level: float
    farthest: int
    first_alarm: int | None = None

    @staticmethod
    def calibrate(
        healthy: Sequence[Mapping[str, float]],
        *,
        rate: float = 0.01,
        direction: Mapping[str, int] | None = None,
        allowed: Mapping[str, float] | None = None,
        joint: bool = False,
        smoothing: float = 0.2,
        confirm: tuple[int, int] = (1, 1),
        health: Sequence[float] | None = None,
        health_error: Sequence[float] | None = None,
        threshold: float | None = None,
        falling: bool = True,
        level: float = 0.9,
        farthest: int = 1000,
    ) -> "Monitor":
        """A monitor that knows what healthy looks like.

        **Arguments:** `healthy`, the features of each healthy cycle, at least 3 with finite values; `rate` of false
        alarms per cycle; `direction` and `allowed` for each feature, see `each_feature`; `joint=True` judges all
        features as one vector, see `jointly`; `smoothing` and `confirm`, see `start_alarm`; `health`, the quantity
        that wears down (a capacity), in each of the healthy cycles, with its standard errors; `threshold` at which
        it is worn out, to be given with `health`; `falling=False` if it rises to it; `level` of the interval for
        the remaining life, which is looked for up to `farthest` cycles ahead.
        """
        if joint and (direction or allowed):
            raise ValueError("joint=True judges any change in any direction: leave out direction and allowed.")
        if (health is None) != (threshold is None):
            raise ValueError("The remaining life needs both health and threshold; leave both out to do without it.")
        if not 0 < level < 1:
            raise ValueError(f"The level of an interval is between 0 and 1, not {level:g}.")
        each = None if joint else each_feature(healthy, rate=rate, direction=direction, allowed=allowed)
        alarm = start_alarm(each or jointly(healthy, rate=rate), smoothing=smoothing, confirm=confirm)
        life = None
        if health is not None and threshold is not None:
            errors = [0.0] * len(health) if health_error is None else health_error
            if not len(healthy) == len(health) == len(errors):
                raise ValueError(
                    f"{len(healthy)} healthy cycles, but {len(health)} values of health and {len(errors)} errors."
                )
            if not np.isfinite(health).any():
                raise ValueError("health has no finite value in the healthy cycles.")
            life = start_life(float(np.nanmedian(health)), threshold, falling=falling)
            for value, error in zip(health, errors, strict=True):
                life = life.update(value, error)
        return Monitor(len(healthy), alarm, life, level, farthest)

    def update(self, features: Mapping[str, float], health: float = np.nan, health_error: float = 0.0) -> Record:
        """Take the next cycle.

        **Arguments:** its `features`; its `health` with standard error, where it is followed. What is not finite is
        named in the record's note, and the cycle goes on without it.
        """
        self.cycle += 1
        self.alarm, judged = self.alarm.update(features)
        if judged.alarm and self.first_alarm is None:
            self.first_alarm = self.cycle
        notes = [f"not judged, not finite: {', '.join(judged.missing)}"] if judged.missing else []
        remaining, low, high, line = (np.nan,) * 4
        if self.life is not None:
            before, self.life = self.life.trend.seen, self.life.update(health, health_error)
            notes += ["no health that can be used"] if self.life.trend.seen == before else []
            left = self.life.remaining(level=self.level, farthest=self.farthest)
            remaining, low, high, line = left.median, left.low, left.high, left.line
            notes += [left.note] if left.note else []
        ahead = (remaining, low, high, line, "; ".join(notes))
        scores = (judged.score, judged.running, judged.limit, judged.alarm)
        return Record(self.cycle, *scores, health, health_error, *ahead)

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON, to be saved between cycles."""
        life = None if self.life is None else self.life.state()
        return {"format": FORMAT} | vars(self) | {"alarm": self.alarm.state(), "life": life}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "Monitor":
        """The monitor whose `state` it was; it goes on as if it had never stopped."""
        if state.get("format") != FORMAT:
            raise ValueError(f"A monitor's state has format {FORMAT}, this one {state.get('format')!r}.")
        life = None if state["life"] is None else Life.from_state(state["life"])
        kept = {name: value for name, value in state.items() if name != "format"}
        return Monitor(**(kept | {"alarm": Alarm.from_state(state["alarm"]), "life": life}))
