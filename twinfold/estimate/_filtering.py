"""A filter along a whole record: forwards, sample by sample, in one compiled scan."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import RESULTS
from twinfold.estimate._estimator import AbstractEstimator, Belief, Innovation
from twinfold.numerics._carry import batched_alike
from twinfold.typing import Times


class Filtered(eqx.Module):
    """An estimator along a record: the beliefs `predicted` before and `corrected` after each sample.

    `innovation` of each sample, and `result`, how each step ended. `log_likelihood` of the whole record.

    **Example:**

    ```python
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1]))
    ts = jnp.linspace(0, 1, 11)
    found = tw.estimate.filtered(estimator, estimator.init(0.0, [0.5], [1.0]), ts, jnp.exp(-ts)[:, None])
    jax.vmap(estimator.estimate)(found.corrected).x.shape  # (11, 1)
    ```
    """

    predicted: Belief
    corrected: Belief
    innovation: Innovation
    result: RESULTS

    @property
    def log_likelihood(self) -> Float[Array, "*batch"]:
        """Of the accepted values: the sum over the samples."""
        return jnp.sum(self.innovation.log_likelihood, axis=-1)


@eqx.filter_jit
def filtered(
    estimator: AbstractEstimator,
    belief: Belief,
    ts: Times,
    y: Float[Array, "T k"],
    w: Float[Array, "T d"] | None = None,
) -> Filtered:
    """An estimator along one record; batch it with `jax.vmap`.

    **Arguments:** the `estimator`; the `belief` at `ts[0]`, from its `init`; the times; the measurements, NaN where
    one is missing; the inputs.

    **Returns:** a `Filtered` whose arrays have a leading axis of the samples.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, w: w - x)
    estimator = tw.estimate.ExtendedKalmanFilter(twin, tw.estimate.Noise([0.1], [0.1]))
    ts, w = jnp.linspace(0, 1, 11), jnp.ones((11, 1))
    y = (1 - jnp.exp(-ts))[:, None].at[3].set(jnp.nan)
    tw.estimate.filtered(estimator, estimator.init(0.0, [0.0], [1.0], w=w[0]), ts, y, w).log_likelihood
    ```
    """

    def step(belief: Belief, sample: tuple) -> tuple[Belief, Filtered]:
        t, now, inputs = sample
        predicted, result = estimator.predict(belief, t, inputs)
        corrected, innovation = estimator.update(predicted, now)
        return corrected, Filtered(predicted, corrected, innovation, result)

    first: Any = batched_alike(belief, ts, y)
    return jax.lax.scan(step, first, (ts, y, w))[1]
