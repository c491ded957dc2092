"""What a follower reports: the estimate at a sample, and a forecast."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm


@dataclass(frozen=True, eq=False)
class FollowerOutput:
    """The estimate at one sample.

    Corrected by the measurement: the state `x` [n], the `level` of the constraint and the `parameters` that are
    followed, with the standard deviations `x_std` and `parameters_std`. Before it: the prediction `y` [k] and its
    standard deviation `y_std`, that of the sensors included. `residual`, measured minus predicted, NaN where nothing
    was measured; `accepted`, the values that were used; `nis`, their normalised square (chi-squared, with as many
    degrees of freedom as values were used). `ok` is False where there is no estimate (all values are NaN then), or
    one with a fault; `message` says why, and which values were refused.

    **Example:**

    ```python
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1]))
    output = tw.estimate.Follower(estimator, [1.0], [0.5]).step(0.0, y=[1.1])
    output.x, output.band(0.95), output.ok
    ```
    """

    t: float
    x: np.ndarray
    x_std: np.ndarray
    y: np.ndarray
    y_std: np.ndarray
    residual: np.ndarray
    accepted: np.ndarray
    nis: float
    level: np.ndarray
    parameters: dict[str, np.ndarray]
    parameters_std: dict[str, np.ndarray]
    ok: bool
    message: str

    def band(self, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the band that contains a measurement with this probability."""
        return _band(self.y, self.y_std, probability)


@dataclass(frozen=True, eq=False)
class Forecast:
    """The prediction at later times: outputs `y` [T, k] and states `x` [T, n], with standard deviations.

    NaN from the time on at which the model fails.

    **Example:**

    ```python
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1]))
    follower = tw.estimate.Follower(estimator, [1.0], [0.5])
    follower.step(0.0, y=[1.1])
    lower, upper = follower.ahead([0.1, 0.2]).band(0.9)
    ```
    """

    ts: np.ndarray
    y: np.ndarray
    y_std: np.ndarray
    x: np.ndarray
    x_std: np.ndarray

    def band(self, probability: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the band that contains a measurement with this probability."""
        return _band(self.y, self.y_std, probability)


def _band(y: np.ndarray, std: np.ndarray, probability: float) -> tuple[np.ndarray, np.ndarray]:
    if not 0 < probability < 1:
        raise ValueError(f"band(probability={probability}): give a number between 0 and 1.")
    half = float(norm.isf((1 - probability) / 2)) * std
    return y - half, y + half
