"""Channels that sit at a limit: a sensor that is clipped, an actuator that is saturated.

A signal is cut off where it moves towards its largest or smallest value, stops there within a sample and stays. That is
told from a signal at rest, which slows down before it stops; from a signal that is constant between jumps (a relay,
steps, a random binary sequence), which stays at every value and not only at the limit; and from a signal that is off,
at exactly zero.
"""

from dataclasses import dataclass

import numpy as np

from twinfold.check._finding import Finding, join_names
from twinfold.check._subject import Subject
from twinfold.data._noise import quantum_of

MIN_EPISODES = 3
MIN_STAY = 3  # samples at the limit in one episode, for a signal of few distinct values
MIN_KINK = 3.0  # times the change of the signal's steps, and its rounding: a movement that ends within a sample
MIN_SPEED = 0.3  # of the median step: slower than this, a signal has come to rest
STRAIGHT = 1e-6  # a ramp that is straighter than this is a programmed one, and so is the hold after it
MIN_SHARE, MAX_SHARE = 0.005, 0.7  # of the samples at a limit
MAX_RESTING = 0.3  # share of steps without any change, away from the limits
MIN_DISTINCT = 0.9  # share of different values, away from the limits, of a signal that is not rounded
TOLERANCE = 1e-9  # of the range


@dataclass(frozen=True)
class Limit:
    """A value that a channel does not pass, the share of its samples there, and the number of episodes."""

    value: float
    upper: bool
    share: float
    episodes: int


def check_saturation(subject: Subject) -> list[Finding]:
    """Inputs and outputs that sit at a limit."""
    data, found = subject.data, []
    for name, series in subject.channels.items():
        limits = find_limits(series)
        if not limits:
            continue
        sides = [
            f"its {'largest' if limit.upper else 'smallest'} value {limit.value:.6g} at {limit.share:.1%} of samples"
            for limit in limits
        ]
        detail = {"channel": name, "limits": [vars(limit) for limit in limits]}
        if name in data.output_names:
            message = (
                f"{name} runs into {join_names(sides)} and stays there: the sensor is clipped, and what happened "
                "beyond is not in the data. Mark these samples as missing, or clip the output of the twin in the same "
                "way (`observe`)."
            )
            found.append(Finding("saturation", "warning", message, detail))
        else:
            message = (
                f"{name} runs into {join_names(sides)} and stays there: the actuator is saturated. The twin needs what "
                "acted on the plant, after the limit, as it seems to be here; with it there is nothing to change, but "
                "these data say nothing about larger inputs."
            )
            found.append(Finding("saturation", "note", message, detail))
    return found or [Finding("saturation", "ok", "No channel sits at a limit.")]


def find_limits(series: list[np.ndarray]) -> list[Limit]:
    """Return the limits of one channel, given run by run."""
    values = np.concatenate(series)
    values = values[np.isfinite(values)]
    if not values.size or not np.ptp(values) > 0:
        return []
    tolerance = TOLERANCE * np.ptp(values)
    extremes = np.array([values.min(), values.max()])
    away = [(np.abs(y[:, None] - extremes) > tolerance).all(axis=1) for y in series]
    inside = np.concatenate([y[flags] for y, flags in zip(series, away, strict=True)])
    steps = np.concatenate([np.abs(np.diff(y))[out[:-1] & out[1:]] for y, out in zip(series, away, strict=True)])
    steps, inside = steps[np.isfinite(steps)], inside[np.isfinite(inside)]
    if steps.size < MIN_STAY or np.mean(steps <= tolerance) > MAX_RESTING:
        return []
    movement = Movement(
        float(np.median(steps)), quantum_of(values), bool(len(np.unique(inside)) > MIN_DISTINCT * len(inside))
    )
    found = []
    for upper, value in enumerate(extremes):
        at = [np.abs(y - value) <= tolerance for y in series]
        share = float(np.concatenate(at).sum() / values.size)
        episodes = sum(_count_cuts(y, flags, movement) for y, flags in zip(series, at, strict=True))
        if value != 0 and episodes >= MIN_EPISODES and MIN_SHARE <= share <= MAX_SHARE:
            found.append(Limit(float(value), bool(upper), share, int(episodes)))
    return found


@dataclass(frozen=True)
class Movement:
    """The median step of a signal, the rounding of its values, and whether hardly any value occurs twice."""

    step: float
    quantum: float
    distinct: bool

    def is_cut(self, beside: np.ndarray, limit: float) -> bool:
        """Whether the samples beside a stay, the nearest first, moved at a speed that cannot have ended by itself."""
        if len(beside) < 3 or not np.isfinite(beside[:3]).all():
            return False
        last, near, far = beside[0] - limit, *np.diff(beside[:3])
        # A jump from rest, as of a relay, is not a movement towards the limit.
        if not (last * near > 0 and near * far > 0) or abs(far - near) <= STRAIGHT * abs(near):
            return False
        if self.distinct:
            return bool(max(abs(last), abs(near)) > MIN_SPEED * self.step)
        return bool(abs(near) > MIN_KINK * max(abs(far - near), self.quantum))


def _count_cuts(y: np.ndarray, at: np.ndarray, movement: Movement) -> int:
    """How often the signal arrives at a limit at full speed, or leaves it so."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], at, [False]]).astype(int)))
    shortest = 2 if movement.distinct else MIN_STAY
    stays = [(start, stop) for start, stop in edges.reshape(-1, 2) if stop - start >= shortest]
    value = float(y[at][0]) if at.any() else 0.0
    return sum(movement.is_cut(y[:start][::-1], value) or movement.is_cut(y[stop:], value) for start, stop in stays)
