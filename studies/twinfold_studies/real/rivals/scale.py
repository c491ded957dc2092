"""Records in units of their mean and standard deviation, which the rivals are identified in."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Signals = Float[np.ndarray, "T k"]


class Scale(NamedTuple):
    """Mean and standard deviation of each column; a constant column has the deviation 1."""

    mean: Float[np.ndarray, " k"]
    deviation: Float[np.ndarray, " k"]

    @staticmethod
    def of(signals: Sequence[Signals]) -> "Scale":
        joined = np.concatenate(signals)
        deviation = joined.std(0)
        return Scale(joined.mean(0), np.where(deviation > 0, deviation, 1.0))

    def scaled(self, signals: Signals) -> Signals:
        return (signals - self.mean) / self.deviation

    def physical(self, signals: Signals) -> Signals:
        return self.mean + self.deviation * signals
