"""The trend of a quantity that wears: a bank of Kalman filters, each with a different ageing law.

    level_{k+1} = level_k - rate_k                                             1 when new, 0 at the end of life
    rate_{k+1}  = rate_k (k / (k+1))^law exp(change n / sqrt(k))               law 0: linear, 1/2: like sqrt(age)
    passing_{k+1} = recovery passing_k + noise wander n + jump                 temporary gains, after a rest
    reading_k   = level_k + passing_k + noise n

The rate is a random walk in the logarithm of age, so the model has no time scale: a life of 50 cycles and one of 5000
are treated alike. A reading far from its prediction widens the passing part (and, less, the level): a cell that
recovers while it rests does not bend the trend, nor does a single bad reading. Each filter estimates its noise, and the
readings weight the filters. Time and memory per reading are constant.
"""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

# Laws symmetric about linear; standard deviations a factor of three apart. The readings choose between them.
LAWS, CHANGES, WANDERS, RECOVERIES = (-0.5, 0.0, 0.5), (0.3, 1.0), (0.3, 1.0), (0.8, 0.95)
MEMBERS = np.array(list(itertools.product(LAWS, CHANGES, WANDERS, RECOVERIES)))
NOISE = 0.02  # prior noise, as a fraction of a life; a few readings outweigh it
PRIOR_SHAPE = 1.5  # half the number of readings that the prior noise counts for
PRIOR_RATE = 0.05  # prior standard deviation of the rate: a life of twenty cycles
JUMP_PROBABILITY = 0.03  # per cycle
JUMP_SCALE = 0.1  # of a Cauchy distribution, since a bad reading has any size
LASTING = 0.1  # share of a jump that may be permanent
OBSERVATION = np.array([1.0, 0.0, 1.0])


@dataclass(frozen=True, eq=False)
class Trend:
    """The state of the M filters: `Trend.start` creates it, `update` returns the next one.

    `mean` [M, 3] of (level, rate, passing); `covariance` [M, 3, 3] in units of the noise variance, which has `shape`
    and `scale` [M] of an inverse gamma distribution; `log_weight` [M] of each filter; number `jumps` [M] and sum
    `jumped` [M] of the upward jumps; `age` in cycles; number of `readings`.
    """

    age: int
    readings: int
    mean: np.ndarray
    covariance: np.ndarray
    shape: np.ndarray
    scale: np.ndarray
    log_weight: np.ndarray
    jumps: np.ndarray
    jumped: np.ndarray

    @staticmethod
    def start() -> "Trend":
        """Return the prior: a level near 1 and nothing known of the rate."""
        count = len(MEMBERS)
        covariance = np.zeros((count, 3, 3))
        covariance[:, 0, 0] = (0.1 / NOISE) ** 2
        covariance[:, 1, 1] = (PRIOR_RATE / NOISE) ** 2
        covariance[:, 2, 2] = MEMBERS[:, 2] ** 2 / (1 - MEMBERS[:, 3] ** 2)
        zero = np.zeros(count)
        mean = np.tile([1.0, 0.0, 0.0], (count, 1))
        return Trend(0, 0, mean, covariance, zero + PRIOR_SHAPE, zero + PRIOR_SHAPE * NOISE**2, zero, zero, zero)

    def update(self, reading: float, error: float = 0.0) -> "Trend":
        """Advance by one cycle; a non-finite reading is treated as missing.

        **Arguments:** `reading`, 1 for new and 0 for the end of life; its standard `error`, added to the noise.
        """
        predicted = self._predict()
        return predicted._correct(reading, error) if math.isfinite(reading) and math.isfinite(error) else predicted

    def _predict(self) -> "Trend":
        """The prediction step of the Kalman filters."""
        law, change, wander, recovery = MEMBERS.T
        age = self.age + 1
        transition = np.zeros((len(MEMBERS), 3, 3))
        transition[:, 0, 0], transition[:, 0, 1], transition[:, 2, 2] = 1.0, -1.0, recovery
        transition[:, 1, 1] = (age / (age + 1)) ** law
        variance = self.scale / self.shape
        covariance = transition @ self.covariance @ transition.transpose(0, 2, 1)
        if self.readings > 0:
            # Linearised: the rate changes in proportion to its size.
            covariance[:, 1, 1] += change**2 / age * (self.mean[:, 1] ** 2 / variance + self.covariance[:, 1, 1])
        covariance[:, 2, 2] += wander**2
        return replace(self, age=age, mean=(transition @ self.mean[..., None])[..., 0], covariance=covariance)

    def _correct(self, reading: float, error: float) -> "Trend":
        """The correction step, by an ordinary reading or by one that jumped, whichever is likelier in each filter."""
        variance, covariance = self.scale / self.shape, self.covariance.copy()
        reading_variance = 1.0 + error**2 / variance
        innovation = reading - self.mean @ OBSERVATION
        spread = variance * ((covariance @ OBSERVATION) @ OBSERVATION + reading_variance)
        ordinary = math.log1p(-JUMP_PROBABILITY) + _log_student(innovation, spread, 2 * self.shape)
        jumping = math.log(JUMP_PROBABILITY) + _log_student(innovation, spread + JUMP_SCALE**2, np.ones_like(spread))
        jump = jumping > ordinary
        widened = np.where(jump, np.maximum(JUMP_SCALE, np.abs(innovation)) ** 2 / variance, 0.0)
        covariance[:, 2, 2] += widened
        covariance[:, 0, 0] += LASTING**2 * widened
        gain = covariance @ OBSERVATION
        total = gain @ OBSERVATION + reading_variance
        mean = self.mean + gain * (innovation / total)[:, None]
        up = np.where(jump, np.maximum(mean[:, 2], 0) - np.maximum(self.mean[:, 2], 0), 0.0).clip(0)
        log_weight = self.log_weight + np.logaddexp(ordinary, jumping)
        return replace(
            self,
            readings=self.readings + 1,
            mean=mean,
            covariance=covariance - gain[:, :, None] * gain[:, None, :] / total[:, None, None],
            shape=self.shape + np.where(jump, 0.0, 0.5),
            scale=self.scale + np.where(jump, 0.0, 0.5 * innovation**2 / total),
            log_weight=log_weight - log_weight.max(),
            jumps=self.jumps + (up > 0),
            jumped=self.jumped + up,
        )


def _log_student(x: np.ndarray, square: np.ndarray, dof: np.ndarray) -> np.ndarray:
    """The log density of Student's t with this squared scale."""
    front = special.gammaln((dof + 1) / 2) - special.gammaln(dof / 2)
    return front - 0.5 * np.log(np.pi * dof * square) - (dof + 1) / 2 * np.log1p(x**2 / (dof * square))
