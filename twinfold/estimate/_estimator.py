"""The contract of recursive estimators: what is carried from sample to sample, and what is reported of each."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, ArrayLike, Bool, Float

from twinfold._core import RESULTS
from twinfold.estimate._noise import Noise
from twinfold.estimate._state_space import Estimate, StateSpace


class Belief(eqx.Module):
    """What an estimator carries: the Gaussian N(mean, root root') of s = (x, levels, parameters) at time t.

    `level` of the constraints that are not estimated; `z`, the guess for implicit algebraic variables; `w`, the inputs
    at t; `alive` until a prediction is not finite: the last finite one is then held. `window`, what a moving-horizon
    estimator carries beside these; None for a filter.

    **Example:**

    ```python
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1]))
    belief = estimator.init(0.0, [1.0], [0.5])
    belief.mean, belief.covariance  # [1.], [[0.25]]
    ```
    """

    t: Float[Array, "*batch"]
    mean: Float[Array, "*batch N"]
    root: Float[Array, "*batch N N"]
    level: Float[Array, "*batch m"]
    z: Float[Array, "*batch q"] | None
    w: Float[Array, "*batch d"] | None
    alive: Bool[Array, "*batch"]
    window: "Window | None" = None

    @property
    def covariance(self) -> Float[Array, "*batch N N"]:
        """root root'."""
        return self.root @ self.root.swapaxes(-1, -2)


class Window(eqx.Module):
    """The last samples, which a moving-horizon estimator explains together: `MovingHorizon` says how.

    `arrival`, the belief before the first of them; their times `t`; the measurements `y`, and which of these are
    `used`; the inputs `w`; `errors`, in standard deviations, of the arrival and of each step after it. Until there are
    enough samples, the first places repeat the time of the arrival, with nothing measured.

    **Example:**

    ```python
    estimator = tw.estimate.MovingHorizon(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1]), window=5)
    estimator.init(0.0, [1.0], [0.5]).window.t  # [0., 0., 0., 0., 0.]
    ```
    """

    arrival: Belief
    t: Float[Array, "*batch W"]
    y: Float[Array, "*batch W k"]
    used: Bool[Array, "*batch W k"]
    w: Float[Array, "*batch W d"] | None
    errors: Float[Array, "*batch W N"]


class Innovation(eqx.Module):
    """What is reported of a measurement, and not carried.

    `y`, the prediction before it; `residual`, measured minus predicted, NaN where nothing was measured; `std` of the
    residual that the estimator expects; `accepted`, the values that were used; `nis`, their normalised square, which
    is chi-squared with as many degrees of freedom; their `log_likelihood`; how the correction ended (a correction that
    failed is not made).

    **Example:**

    ```python
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.3]))
    belief, innovation = estimator.update(estimator.init(0.0, [1.0], [0.4]), [1.5])
    innovation.residual, innovation.std, innovation.nis  # [0.5], [0.5], 1.0
    ```
    """

    y: Float[Array, "*batch k"]
    residual: Float[Array, "*batch k"]
    std: Float[Array, "*batch k"]
    accepted: Bool[Array, "*batch k"]
    nis: Float[Array, "*batch"]
    log_likelihood: Float[Array, "*batch"]
    result: RESULTS


class AbstractEstimator(eqx.Module):
    """A recursive estimator: `init`, then `predict` and `update` for each sample; all of them under `jit` and `vmap`.

    A prediction of length zero moves the initial state onto the manifold, as the first step of a rollout does.

    **Example:**

    ```python
    isinstance(
        tw.estimate.UnscentedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1])),
        tw.estimate.AbstractEstimator,
    )  # True
    ```
    """

    space: eqx.AbstractVar[StateSpace]
    noise: eqx.AbstractVar[Noise]

    @property
    @abc.abstractmethod
    def forecaster(self) -> "AbstractEstimator":
        """The estimator that predicts from a belief without `window`, where no measurement will come."""

    @abc.abstractmethod
    def init(self, t: ArrayLike, x0: Any, std: Any, *, w: Any = None, parameters: Any = None, level: Any = None) -> Any:
        """The belief at time t, before any measurement."""

    @abc.abstractmethod
    def predict(self, belief: Any, t: ArrayLike, w: Any = None) -> tuple[Any, RESULTS]:
        """The belief at a later time t, with the inputs w there, and how the step ended."""

    @abc.abstractmethod
    def update(self, belief: Any, y: Any) -> tuple[Any, Innovation]:
        """The belief after a measurement y, NaN where a value is missing."""

    @abc.abstractmethod
    def estimate(self, belief: Any) -> Estimate:
        """The belief in physical units."""
