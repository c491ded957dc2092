"""How a quantity wears down: a bank of Kalman filters, each with its own idea of how ageing goes on.

    level_{k+1} = level_k - rate_k                                             what is left, 1 when new, 0 at the end
    rate_{k+1}  = rate_k (k / (k+1))^law exp(change n / sqrt(k))               law 0: linear, 1/2: like sqrt(age)
    passing_{k+1} = recovery passing_k + noise wander n + jump                 gains after a rest, which pass
    reading_k   = level_k + passing_k + noise n

The rate wanders in the logarithm of age, so that nothing here knows how long a life is: a life of 50 cycles and one of
5000 are treated alike. A reading far from what was expected opens the passing part (and, less, the level): a cell that
recovers while it rests does not bend the trend, nor does a single bad reading. Each filter learns its noise, and the
readings decide between the filters. Time and memory per reading are constant.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# Laws symmetric about linear; how much may change, a factor of 3 apart. Choices, between which the readings decide.
LAWS, CHANGES, WANDERS, RECOVERIES = (-0.5, 0.0, 0.5), (0.3, 1.0), (0.3, 1.0), (0.8, 0.95)
MEMBERS = np.array(list(itertools.product(LAWS, CHANGES, WANDERS, RECOVERIES)))
NOISE = 0.02  # first guess, in parts of a life; forgotten after a few readings
EVIDENCE = 1.5  # half the number of readings that the first guess counts for
FASTEST = 0.05  # prior standard deviation of the rate: twenty cycles a life
JUMP = (0.03, 0.1)  # how likely a jump is in a cycle, and how large: a Cauchy scale, since a bad reading has any size
LASTING = 0.1  # how much of a jump may stay, beside what passes
READS = np.array([1.0, 0.0, 1.0])


@dataclass(frozen=True, eq=False)
class Trend:
    """The state of the M filters: `start_trend` makes it, `update` gives the next.

    `mean` [M, 3] of (level, rate, passing); `covariance` [M, 3, 3] in units of the noise variance, which has `shape`
    and `scale` [M] of an inverse gamma distribution; `log_weight` [M] of each filter; number `jumps` [M] and sum
    `jumped` [M] of the upward jumps; `age` in cycles, `seen` readings.
    """

    age: int
    seen: int
    mean: np.ndarray
    covariance: np.ndarray
    shape: np.ndarray
    scale: np.ndarray
    log_weight: np.ndarray
    jumps: np.ndarray
    jumped: np.ndarray

    def update(self, reading: float, error: float = 0.0) -> "Trend":
        """One cycle on; a reading that is not finite was not taken.

        **Arguments:** `reading`, 1 for new and 0 for the end; its standard `error`, added to the noise.
        """
        older = self._older()
        return older._read(reading, error) if math.isfinite(reading) and math.isfinite(error) else older

    def _older(self) -> "Trend":
        """The prediction of a Kalman filter."""
        law, change, wander, recovery = MEMBERS.T
        age = self.age + 1
        move = np.zeros((len(MEMBERS), 3, 3))
        move[:, 0, 0], move[:, 0, 1], move[:, 2, 2] = 1.0, -1.0, recovery
        move[:, 1, 1] = (age / (age + 1)) ** law
        variance = self.scale / self.shape
        covariance = move @ self.covariance @ move.transpose(0, 2, 1)
        if self.seen > 0:
            # Linearised: the rate changes in proportion to its own size.
            covariance[:, 1, 1] += change**2 / age * (self.mean[:, 1] ** 2 / variance + self.covariance[:, 1, 1])
        covariance[:, 2, 2] += wander**2
        return replace(self, age=age, mean=(move @ self.mean[..., None])[..., 0], covariance=covariance)

    def _read(self, reading: float, error: float) -> "Trend":
        """The correction: by an ordinary reading, or by one that jumped, whichever is likelier, in each filter."""
        variance, covariance = self.scale / self.shape, self.covariance.copy()
        own = 1.0 + error**2 / variance
        surprise = reading - self.mean @ READS
        spread = variance * ((covariance @ READS) @ READS + own)
        ordinary = math.log1p(-JUMP[0]) + _log_student(surprise, spread, 2 * self.shape)
        width = np.sqrt(spread + JUMP[1] ** 2)
        jumping = math.log(JUMP[0]) + _log_student(surprise, width**2, np.ones_like(width))
        jump = jumping > ordinary
        opened = np.where(jump, np.maximum(JUMP[1], np.abs(surprise)) ** 2 / variance, 0.0)
        covariance[:, 2, 2] += opened
        covariance[:, 0, 0] += LASTING**2 * opened
        along = covariance @ READS
        total = along @ READS + own
        mean = self.mean + along * (surprise / total)[:, None]
        up = np.where(jump, np.maximum(mean[:, 2], 0) - np.maximum(self.mean[:, 2], 0), 0.0).clip(0)
        log_weight = self.log_weight + np.logaddexp(ordinary, jumping)
        return replace(
            self,
            seen=self.seen + 1,
            mean=mean,
            covariance=covariance - along[:, :, None] * along[:, None, :] / total[:, None, None],
            shape=self.shape + np.where(jump, 0.0, 0.5),
            scale=self.scale + np.where(jump, 0.0, 0.5 * surprise**2 / total),
            log_weight=log_weight - log_weight.max(),
            jumps=self.jumps + (up > 0),
            jumped=self.jumped + up,
        )

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> "Trend":
        """The trend whose `state` it was."""
        arrays = {name: np.array(value) for name, value in state.items() if isinstance(value, list)}
        return Trend(state["age"], state["seen"], **arrays)


def start_trend() -> Trend:
    """A trend of which nothing is known yet but that it is near 1."""
    count = len(MEMBERS)
    covariance = np.zeros((count, 3, 3))
    covariance[:, 0, 0] = (0.1 / NOISE) ** 2
    covariance[:, 1, 1] = (FASTEST / NOISE) ** 2
    covariance[:, 2, 2] = MEMBERS[:, 2] ** 2 / (1 - MEMBERS[:, 3] ** 2)
    zero = np.zeros(count)
    mean = np.tile([1.0, 0.0, 0.0], (count, 1))
    return Trend(0, 0, mean, covariance, zero + EVIDENCE, zero + EVIDENCE * NOISE**2, zero, zero, zero)


def _log_student(x: np.ndarray, square: np.ndarray, dof: np.ndarray) -> np.ndarray:
    """log density of Student's t with this squared scale."""
    front = np.array([math.lgamma((v + 1) / 2) - math.lgamma(v / 2) for v in dof])
    return front - 0.5 * np.log(np.pi * dof * square) - (dof + 1) / 2 * np.log1p(x**2 / (dof * square))
