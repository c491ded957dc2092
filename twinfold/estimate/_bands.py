"""Predictions with a band, without measurements: the uncertainty of start, parameters and model carried along.

    P(t + dt) = T (F P F' + dt Q) T',        band of y = H P H' + R

with the derivative F of a step, the tangent projector T of the manifold there, process noise Q and measurement noise R:
the covariance of a filter that never corrects.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from twinfold._core import check_times, outcome_codes
from twinfold.estimate._estimator import AbstractEstimator, Belief
from twinfold.estimate._filtering import filtered
from twinfold.estimate._follower_output import Forecast


def simulate_with_band(
    estimator: AbstractEstimator,
    x0: ArrayLike | Sequence,
    std: ArrayLike | Sequence,
    ts: ArrayLike | Sequence,
    w: ArrayLike | Sequence | None = None,
    *,
    parameters: Mapping[str, ArrayLike] | None = None,
    level: ArrayLike | Sequence | None = None,
) -> Forecast:
    """`Twin.simulate` with the uncertainty of its start, of parameters, of the model and of the sensors.

    **Arguments:** the `estimator`, whose noise says how far the model is trusted; the state `x0` at `ts[0]`, with its
    standard deviations or covariance `std`; the times; the inputs; `parameters`: the standard deviation of each one
    that is named in `Noise(drift=...)`, in units of `raw` (a drift of zero for one that is constant, but not known
    exactly); `level` of the constraint, where it is known.

    **Returns:** a `Forecast`: `y` and `x` with their standard deviations, and `band(0.9)`, where a measurement lies
    with this probability. NaN from the time on at which the model fails.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    noise = tw.estimate.Noise([0.05], [0.01], drift={"k": 0.0})
    estimator = tw.estimate.ExtendedKalmanFilter(twin, noise)
    found = tw.estimate.simulate_with_band(estimator, [1.0], [0.1], np.linspace(0, 2, 21), parameters={"k": 0.05})
    lower, upper = found.band(0.9)
    ```
    """
    first = np.asarray(x0, np.result_type(np.asarray(x0).dtype, np.float32))
    times = np.asarray(ts, jnp.asarray(first).dtype)
    check_times(times, "ts")
    inputs = None if w is None else np.asarray(w, times.dtype)
    if inputs is not None and (inputs.ndim != 2 or len(inputs) != len(times) or not np.isfinite(inputs).all()):
        raise ValueError(f"w has shape {inputs.shape}: give finite inputs, one row for each of the {len(times)} times.")
    start = estimator.forecaster.init(
        times[0], first, std, w=None if inputs is None else inputs[0], parameters=parameters, level=level
    )
    return forecast(estimator, start, times, inputs)


def forecast(estimator: AbstractEstimator, belief: Belief, ts: np.ndarray, w: np.ndarray | None) -> Forecast:
    """The prediction from a belief without `window`, at times that are not before it."""
    nothing = jnp.full((len(ts), estimator.noise.outputs), jnp.nan, ts.dtype)
    arrays = (jnp.asarray(ts), nothing, None if w is None else jnp.asarray(w))
    found = filtered(estimator.forecaster, jax.tree.map(jnp.asarray, belief), *arrays)
    failed = np.cumsum(np.asarray(outcome_codes(found.result)) != 0) > 0
    estimate = jax.vmap(estimator.estimate)(found.corrected)
    y, std, x, x_std = (
        np.where(failed[:, None], np.nan, each)
        for each in (found.innovation.y, found.innovation.std, estimate.x, estimate.x_std)
    )
    return Forecast(ts, y, std, x, x_std)
