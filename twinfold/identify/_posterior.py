"""Uncertainty of the predictions of a fitted twin, under the loads it was fitted on and under others.

    v ~ N(v*, s^2 tau / N  H^-1),    H = J'J of the loss at its minimum v*,    var y(t) = (dy/dv) cov (dy/dv)'

This is the linearised (Laplace) posterior of all trained values, network weights and unknown parameters alike. J
includes the priors of the loss (`Loss(l2=..., prior=...)`), so a direction without information from the data keeps its
prior uncertainty. Model errors are correlated in time: N samples count as N / tau.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import ArrayLike, PyTree

from twinfold._core import quick_jit, tree_take
from twinfold.data import Dataset
from twinfold.data._rows import known_batch
from twinfold.identify._uncertainty import correlation_time
from twinfold.model import Twin
from twinfold.model._unknown import is_unknown
from twinfold.train import Fit, Loss, TrainingProblem
from twinfold.train._evidence import coloured
from twinfold.train._prepare import output_scale

RIDGE = 1e-12  # of the mean curvature: keeps H invertible where there is neither data nor prior


@dataclass(frozen=True, eq=False)
class Posterior:
    """The uncertainty of the fit of one seed, in units of the scaled outputs.

    `error` is the root mean square residual on the training data, `samples` the effective number of samples N / tau,
    `covariance` that of all trained values. `inflation` is, for each unknown parameter, the factor by which its
    standard deviation grows because learned parts are fitted beside it: far above 1, the data do not separate the two.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(5), progress=False)
    posterior = tw.identify.posterior(fit, data, loss=tw.Loss())
    posterior.spread(data).shape  # (1, 21, 1): runs, samples, outputs
    ```
    """

    error: float
    samples: float
    covariance: np.ndarray
    inflation: dict[str, float]
    _problem: TrainingProblem
    _params: PyTree

    def spread(self, data: Dataset) -> np.ndarray:
        """Return the standard deviation of the predicted outputs at each sample, [R, T, k]; 0 in the padding."""
        batch = known_batch(self._problem.frozen.twin, data)
        real = np.arange(batch.ts.shape[1]) < np.asarray(batch.length)[:, None]
        real = jnp.broadcast_to(jnp.asarray(real)[..., None], batch.mask.shape)
        # Predictions exist at every sample, measured or not.
        batch = eqx.tree_at(lambda batch: batch.mask, batch, real)
        jacobian = np.asarray(_linearise(dataclasses.replace(self._problem, batch=batch), self._params)[1])[
            : batch.y.size
        ]
        # A residual of the loss is divided by the root of their number.
        spread = (self._deviation(jacobian) * np.sqrt(int(real.sum()))).reshape(batch.y.shape)
        return np.where(np.asarray(real), spread, 0)

    def spread_of(self, function: Callable[[Twin], ArrayLike]) -> np.ndarray:
        """Return the standard deviation of anything that follows from the twin: a learned law at some speeds, say.

        **Arguments:** `function` of the twin; it returns an array.

        **Returns:** an array of the same shape.

        **Example:**

        ```python
        ts = np.linspace(0, 2, 21)
        data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
        twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
        fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(5), progress=False)
        posterior = tw.identify.posterior(fit, data, loss=tw.Loss())
        posterior.spread_of(lambda twin: 1 / twin.parameters()["k"])  # that of the time constant
        ```
        """
        v, unravel = ravel_pytree(self._params)

        def value(v: jax.Array) -> jax.Array:
            return jnp.asarray(function(eqx.combine(unravel(v), self._problem.frozen).twin))

        return self._deviation(np.asarray(jax.jacfwd(value)(v)))

    def _deviation(self, jacobian: np.ndarray) -> np.ndarray:
        """The standard deviation of values with this Jacobian [..., P] in the trained ones."""
        variance = np.sum((jacobian @ self.covariance) * jacobian, axis=-1)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def posterior(fit: Fit, data: Dataset, *, loss: Loss, seed: int = 0) -> Posterior:
    """Return the linearised posterior of a fit.

    **Arguments:** `fit`; the `data` and the `loss` that it was made with; `seed`, the index of the seed.

    **Returns:** a `Posterior`.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(5), progress=False)
    tw.identify.posterior(fit, data, loss=tw.Loss()).inflation  # {".params['k']": 1.0}: there is no learned part
    ```
    """
    params, twin, loss = tree_take(fit.params, seed), fit.twin_of(seed), fit.loss_of(seed, loss)
    batch = known_batch(twin, data)
    rate = jax.device_put(np.ones(1, batch.y.dtype))
    problem = TrainingProblem(loss, output_scale(batch, loss), rate, batch, None, fit.frozen)
    residual, jacobian = (np.asarray(part) for part in _linearise(problem, params))
    measured = int(np.asarray(batch.mask).sum())
    errors = residual[: batch.y.size].reshape(batch.y.shape) * np.sqrt(measured)
    plain = np.asarray(coloured(jnp.asarray(errors), batch.mask, problem.weights.correlation))
    times = [correlation_time(each, mask) for each, mask in zip(errors, np.asarray(batch.mask), strict=True)]
    mean_square = float(np.sum(errors**2) / measured)
    samples = measured / float(np.mean(times))
    h = jacobian.T @ jacobian
    h = h + RIDGE * np.trace(h) / len(h) * np.eye(len(h))
    inverse = np.linalg.inv(h)
    return Posterior(
        error=float(np.sqrt(np.sum(plain**2) / measured)),
        samples=samples,
        covariance=mean_square / samples * inverse,
        inflation=_inflation(h, inverse, _unknown_names(twin, params)),
        _problem=dataclasses.replace(problem, terms=loss.unweighted()),
        _params=params,
    )


def _unknown_names(twin: Twin, params: PyTree) -> list[str]:
    """For each trained number, the path of the unknown parameter that it belongs to; empty for network weights."""
    nodes = jax.tree_util.tree_flatten_with_path(twin, is_leaf=is_unknown)[0]
    unknown = {jax.tree_util.keystr(path) for path, node in nodes if is_unknown(node)}
    names = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        # `params` is an Estimate: its first key is the twin, and the last one the raw value inside the Unknown.
        inside = jax.tree_util.keystr(path[1:-1])
        names += [inside if inside in unknown else ""] * leaf.size
    return names


def _inflation(h: np.ndarray, inverse: np.ndarray, names: list[str]) -> dict[str, float]:
    """The ratio of the standard deviations with and without the learned parts, the largest of each parameter."""
    own = [index for index, name in enumerate(names) if name]
    alone = np.linalg.inv(h[np.ix_(own, own)])
    inflation: dict[str, float] = {}
    for index, ratio in zip(own, np.sqrt(np.diag(inverse)[own] / np.diag(alone)), strict=True):
        inflation[names[index]] = max(float(ratio), inflation.get(names[index], 0.0))
    return inflation


@quick_jit
def _linearise(problem: TrainingProblem, params: PyTree) -> tuple[jax.Array, jax.Array]:
    """The residuals (those of the data first) and their derivative in all trained values, [N, P]."""
    return problem.residuals_and_jacobian(params)[:2]
