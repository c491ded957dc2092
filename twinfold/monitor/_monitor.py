"""The condition of a unit, cycle by cycle: whether it is healthy, and its remaining life.

A `Monitor` takes what any twin gives for a cycle (or a window): features of the residual, re-estimated parameters, and
the quantity that wears with its standard error. Its state is small, plain JSON of constant size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from twinfold.monitor._alarm import Alarm
from twinfold.monitor._drift import fading_health, healthy_drifts
from twinfold.monitor._life import Life
from twinfold.monitor._limits import feature_limits, joint_limits
from twinfold.monitor._state import check_format, decode, encode

FORMAT = 2  # of a saved state


@dataclass(frozen=True)
class Record:
    """The result of one cycle.

    `score`: distance from healthy in healthy standard deviations; `running`, its running mean, compared with `limit`;
    `alarm`; `health` with its standard error `health_error`; `remaining` cycles with the interval `low` to `high`, and
    by the straight `line`; `note`: what could not be computed, and why. NaN where there is no value.

    **Example:**

    ```python
    rng = np.random.default_rng(0)
    monitor = tw.monitor.Monitor.calibrate([{"mean": rng.normal()} for _ in range(10)])
    record = monitor.update({"mean": 8.0})
    record.alarm, record.running > record.limit
    record.row()["cycle"]  # 11
    ```
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
        """Return the record as a row of a table."""
        return asdict(self)


@dataclass
class Monitor:
    """The running state: `Monitor.calibrate` creates it from healthy cycles, `update` takes one more cycle.

    **Example:**

    ```python
    rng = np.random.default_rng(0)
    healthy = [{"mean": rng.normal()} for _ in range(10)]
    monitor = tw.monitor.Monitor.calibrate(healthy, health=2 - 0.01 * np.arange(10), threshold=1.4)
    record = monitor.update({"mean": 0.1}, health=1.9)
    record.alarm, record.remaining
    monitor = tw.monitor.Monitor.from_state(monitor.state())  # continue later
    ```
    """

    cycle: int
    alarm: Alarm
    life: Life | None
    confidence: float
    horizon: int
    first_alarm: int | None = None
    findings: tuple[str, ...] = ()

    @staticmethod
    def calibrate(
        healthy: Sequence[Mapping[str, float]],
        *,
        false_alarm_rate: float = 0.01,
        direction: Mapping[str, int] | None = None,
        allowed: Mapping[str, float] | None = None,
        joint: bool = False,
        smoothing: float = 0.2,
        confirm: tuple[int, int] = (1, 1),
        health: Sequence[float] | np.ndarray | None = None,
        health_error: Sequence[float] | np.ndarray | None = None,
        threshold: float | None = None,
        falling: bool = True,
        confidence: float = 0.9,
        horizon: int = 1000,
    ) -> "Monitor":
        """Return a monitor with limits from healthy cycles.

        **Arguments:**

        - `healthy`: the features of each healthy cycle, at least 3 with finite values.
        - `false_alarm_rate` per cycle.
        - `direction` of each feature: 1 if a rise is bad, -1 if a fall is, 0 for both (the default).
        - `allowed`: by how much a feature may change and still be healthy, in its own unit.
        - `joint=True` judges all features as one vector (Hotelling's T), in any direction.
        - `smoothing` in (0, 1]: the weight of the newest cycle in the running score.
        - `confirm=(k, n)`: an alarm needs k of the last n running scores above the limit.
        - `health`: the quantity that wears (a capacity), in each healthy cycle; `health_error`, its standard errors;
          `threshold`, the value at the end of life; `falling=False` if health rises to it.
        - `confidence` of the interval of the remaining life, which is simulated up to `horizon` cycles ahead.

        Cycles in which the unit changes already are no healthy ones: `findings` of the monitor says so.

        **Raises:** `ValueError` if there are too few healthy cycles, or arguments that contradict each other.
        """
        if joint and (direction or allowed):
            raise ValueError("joint=True judges any change in any direction: leave out direction and allowed.")
        if (health is None) != (threshold is None):
            raise ValueError("The remaining life needs both health and threshold: give both, or neither.")
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence:g}: must be between 0 and 1.")
        limits = (
            joint_limits(healthy, false_alarm_rate=false_alarm_rate)
            if joint
            else feature_limits(healthy, false_alarm_rate=false_alarm_rate, direction=direction, allowed=allowed)
        )
        alarm = Alarm.start(limits, smoothing=smoothing, confirm=confirm)
        findings = healthy_drifts(healthy, direction=direction, allowed=allowed)
        life = None
        if health is not None and threshold is not None:
            errors = [0.0] * len(health) if health_error is None else health_error
            if not len(healthy) == len(health) == len(errors):
                raise ValueError(
                    f"{len(healthy)} healthy cycles, but {len(health)} values of health and {len(errors)} errors."
                )
            if not np.isfinite(health).any():
                raise ValueError("health has no finite value in the healthy cycles.")
            life = Life.start(float(np.nanmedian(health)), threshold, falling=falling)
            for value, error in zip(health, errors, strict=True):
                life = life.update(float(value), float(error))
            findings = (*fading_health(health, threshold, falling=falling), *findings)
        return Monitor(len(healthy), alarm, life, confidence, horizon, findings=findings)

    def update(self, features: Mapping[str, float], health: float = np.nan, health_error: float = 0.0) -> Record:
        """Take the next cycle.

        **Arguments:** its `features`; its `health` with standard error, if a health is monitored. Non-finite values are
        named in the note of the record and otherwise ignored.
        """
        self.cycle += 1
        self.alarm, judgement = self.alarm.update(features)
        if judgement.alarm and self.first_alarm is None:
            self.first_alarm = self.cycle
        notes = [f"not judged, not finite: {', '.join(judgement.missing)}"] if judgement.missing else []
        remaining, low, high, line = (np.nan,) * 4
        if self.life is not None:
            before, self.life = self.life.trend.readings, self.life.update(health, health_error)
            notes += ["no usable health"] if self.life.trend.readings == before else []
            rest = self.life.remaining(confidence=self.confidence, horizon=self.horizon)
            remaining, low, high, line = rest.median, rest.low, rest.high, rest.line
            notes += [rest.note] if rest.note else []
        scores = (judgement.score, judgement.running, judgement.limit, judgement.alarm)
        return Record(self.cycle, *scores, health, health_error, remaining, low, high, line, "; ".join(notes))

    def state(self) -> dict[str, Any]:
        """Return everything as plain JSON, to be saved between cycles."""
        return {"format": FORMAT} | encode(self)

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "Monitor":
        """Return the monitor that was saved by `state`.

        **Raises:** `ValueError` if the state was saved in another format.
        """
        check_format(state, FORMAT)
        return decode(Monitor, {name: value for name, value in state.items() if name != "format"})
