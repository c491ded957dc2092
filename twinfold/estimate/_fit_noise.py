"""How much noise there is, by maximum likelihood of the innovations.

    max  sum over runs, samples   log N(innovation; 0, S)

over the logarithms of the standard deviations of process and measurement noise and of the drift of parameters. The
innovations of the right model are white with the covariance S that the filter states: too little process noise makes S
smaller than they are, too much makes the predictions follow the noise of the sensors. The search is L-BFGS of SciPy.

A model that is not exact has errors that stay for many samples. A filter sees little of them from one sample to the
next, while a prediction without measurements adds them up. For the band of such a prediction the levels are those of

    max  sum over runs, samples   log N(y; y_open, S_open)

a composite likelihood (Varin, Reid and Firth 2011, *An overview of composite likelihood methods*, Statistica Sinica
21): each sample by its own distribution, predicted from the start of its run, as if the samples were independent. Its
maximum is right on average; it does not say how sure it is.

Its gradients are central differences, all of them evaluated side by side in one compiled program: the derivative of a
QR factorisation does not exist where the covariance is singular, as it is on a manifold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.scipy.stats import norm
from jaxtyping import Array, ArrayLike, Float
from scipy.optimize import minimize

from twinfold._core import quick_jit
from twinfold.data import Dataset
from twinfold.data._batch import Batch
from twinfold.estimate._filtering import Filtered, filtered
from twinfold.estimate._gaussian import AbstractGaussianFilter
from twinfold.estimate._noise import Noise

STEP = 1e-4  # of the logarithms in the differences
FARTHEST = 10.0  # of the logarithms from the first guess
FLAT = 0.5  # a value is not told by the data if a factor of e costs less of the log-likelihood


@dataclass(frozen=True, eq=False)
class NoiseFit:
    """Noise levels estimated from data: the `noise`, its `log_likelihood`, and whether the search has `converged`.

    `undetermined` names the values that the data do not tell: the likelihood is flat there (a noise too small to be
    seen, say), and the value given is only an example of those that fit. With `open_loop` it is the composite one.

    **Example:**

    ```python
    data = tw.Dataset.from_arrays(np.arange(50.0), [np.random.default_rng(0).normal(size=(50, 1)).cumsum(axis=0)])
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: 0 * x), tw.estimate.Noise([0.5], [0.5]))
    found = tw.estimate.fit_noise(estimator, data, std=[1.0])
    found.noise.process, found.log_likelihood, found.undetermined
    ```
    """

    noise: Noise
    log_likelihood: float
    converged: bool
    undetermined: tuple[str, ...]


def fit_noise(
    estimator: AbstractGaussianFilter,
    data: Dataset,
    *,
    std: ArrayLike | Any,
    parameters: Mapping[str, ArrayLike] | None = None,
    exact_level: bool = False,
    open_loop: bool = False,
    max_steps: int = 100,
) -> NoiseFit:
    """Estimate Q and R: standard deviations of process and measurement noise, and of the drift of parameters.

    **Arguments:** the `estimator`, whose noise is the first guess (its standard deviations change, correlations stay,
    and what is zero stays zero); `data`, runs of the plant, each from the x0 of its run or from the twin's `initial`;
    `std`, the standard deviations or the covariance of these, and `parameters`, those of the parameters that are
    followed, as for `init`; `exact_level`: the constraint has exactly the level of x0, uncertain as x0 is otherwise;
    `open_loop`: judge by predictions from the start of a
    run without any correction, for the bands of simulations, and not by innovations, for a filter; `max_steps` of the
    search. A fit leaves small residuals on its own training data: give runs that it has not seen, if there are some.

    **Returns:** a `NoiseFit`.

    **Raises:** `ValueError` if the filter fails on the data with the first guess.

    **Example:**

    ```python
    rng = np.random.default_rng(0)
    x = np.cumsum(0.3 * rng.normal(size=(200, 1)), axis=0)
    data = tw.Dataset.from_arrays(np.arange(200.0), [x + 0.5 * rng.normal(size=(200, 1))])
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: 0 * x), tw.estimate.Noise([1.0], [1.0]))
    noise = tw.estimate.fit_noise(estimator, data, std=[1.0]).noise
    noise.process, noise.measurement  # about 0.3 and 0.5
    ```
    """
    batch = data.batch()
    scales, unravel = ravel_pytree(_scales(estimator.noise))
    names = _names(estimator.noise)
    alive = np.flatnonzero(np.asarray(scales) > 0)
    measure = _composite_likelihood if open_loop else _log_likelihood
    start = {"std": std, "parameters": parameters, "exact_level": exact_level}

    def noise_at(logs: Float[Array, " P"]) -> Noise:
        factors = jnp.ones_like(scales).at[alive].set(jnp.exp(logs))
        return _scaled(estimator.noise, unravel(factors))

    @quick_jit
    @jax.vmap
    def compiled(logs: Float[Array, " P"]) -> Float[Array, ""]:
        return measure(eqx.tree_at(lambda e: e.noise, estimator, noise_at(logs)), batch, start)

    def likelihood(points: np.ndarray) -> np.ndarray:
        """At as many points as a gradient needs, or fewer: it is compiled once."""
        empty = 2 * len(alive) + 1 - len(points)
        padded = np.concatenate([points, np.repeat(points[:1], empty, axis=0)])
        return np.asarray(compiled(jnp.asarray(padded)))[: len(points)]

    first = np.zeros(len(alive))
    begun = float(likelihood(first[None])[0])
    if not np.isfinite(begun):
        raise ValueError(
            f"The log-likelihood of the first guess is {begun}: the filter fails on these data. Try `filtered` on one "
            "run, a larger noise, or a smaller step (`substeps=`)."
        )
    found = minimize(
        _value_and_gradient(likelihood),
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-FARTHEST, FARTHEST)] * len(alive),
        options={"maxiter": max_steps},
    )
    # Flat where a factor of e changes nothing.
    apart = found.x[None] + np.concatenate([np.eye(len(alive)), -np.eye(len(alive))])
    drop = -found.fun - likelihood(apart).reshape(2, -1)
    flat = np.min(np.where(np.isfinite(drop), drop, np.inf), axis=0) < FLAT
    return NoiseFit(
        noise_at(jnp.asarray(found.x)),
        -float(found.fun),
        bool(found.success),
        tuple(names[place] for place, is_flat in zip(alive, flat, strict=True) if is_flat),
    )


def _log_likelihood(estimator: AbstractGaussianFilter, batch: Batch, start: Mapping[str, Any]) -> Float[Array, ""]:
    """Of all runs together; padding repeats the last time, with nothing measured."""

    def of_run(row: Batch) -> Float[Array, ""]:
        found = _filtered_run(estimator, row, start, jnp.where(row.mask, row.y, jnp.nan))
        return jnp.where(jnp.all(found.corrected.alive), found.log_likelihood, -jnp.inf)

    return jnp.sum(jax.vmap(of_run)(batch))


def _composite_likelihood(
    estimator: AbstractGaussianFilter, batch: Batch, start: Mapping[str, Any]
) -> Float[Array, ""]:
    """Of all samples of all runs, each by its own prediction from the start of its run."""

    def of_run(row: Batch) -> Float[Array, ""]:
        found = _filtered_run(estimator, row, start, jnp.full_like(row.y, jnp.nan))
        value = norm.logpdf(row.y, found.innovation.y, found.innovation.std)
        return jnp.where(jnp.all(found.corrected.alive), jnp.sum(jnp.where(row.mask, value, 0)), -jnp.inf)

    return jnp.sum(jax.vmap(of_run)(batch))


def _filtered_run(
    estimator: AbstractGaussianFilter, row: Batch, start: Mapping[str, Any], y: Float[Array, "T k"]
) -> Filtered:
    """The filter along one run, with these measurements."""
    w0 = None if row.w is None else row.w[0]
    p = estimator.space.first_parameters(row.y.dtype)
    twin, t0 = estimator.space.twin, row.ts[0]
    x0 = twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0)
    level = twin.constraint.level(t0, x0, p) if start["exact_level"] else None
    begun = estimator.init(t0, x0, start["std"], w=w0, parameters=start["parameters"], level=level)
    return filtered(estimator, begun, row.ts, y, row.w)


def _value_and_gradient(likelihood: Callable) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Minus the likelihood and its central differences; large, not infinite, where the filter fails."""

    def both(logs: np.ndarray) -> tuple[float, np.ndarray]:
        moves = STEP * np.eye(len(logs))
        values = -likelihood(np.concatenate([logs[None], logs + moves, logs - moves]))
        values = np.where(np.isfinite(values), values, 1e12)
        plus, minus = values[1:].reshape(2, -1)
        return float(values[0]), (plus - minus) / (2 * STEP)

    return both


def _scales(noise: Noise) -> tuple:
    """The standard deviations that are estimated."""

    def deviations(root: Array) -> Array:
        return root if root.ndim == 1 else jnp.sqrt(jnp.sum(root**2, axis=1))

    return deviations(noise.process), deviations(noise.measurement), noise.drift, noise.level_drift


def _scaled(noise: Noise, factors: tuple) -> Noise:
    """The noise with its standard deviations multiplied."""

    def times(root: Array, factor: Array) -> Array:
        return root * (factor if root.ndim == 1 else factor[:, None])

    process, measurement, drift, level_drift = factors
    values = (
        times(noise.process, process),
        times(noise.measurement, measurement),
        jax.tree.map(jnp.multiply, noise.drift, drift),
        noise.level_drift * level_drift,
    )
    return eqx.tree_at(lambda n: (n.process, n.measurement, n.drift, n.level_drift), noise, values)


def _names(noise: Noise) -> list[str]:
    """The names of the values in the order of `_scales`."""
    names = [f"process[{i}]" for i in range(noise.states)] + [f"measurement[{i}]" for i in range(noise.outputs)]
    return names + [f"drift[{name!r}]" for name in sorted(noise.drift)] + ["level_drift"] * noise.level_drift.size
