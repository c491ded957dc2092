"""How uncertain a fitted twin's predictions are, under the loads it was fitted on and under others.

    v ~ N(v*, s^2 tau / N  H^-1),    H = J'J of the loss at its minimum v*,    var y(t) = (dy/dv) cov (dy/dv)'

the linearised (Laplace) posterior of all that was trained: network weights and unknown parameters alike. The loss has
its priors in J (`Loss(l2=..., prior=...)`), so that a direction of which the data say nothing keeps the uncertainty
that it was given beforehand. Errors of a model are correlated in time: N samples count as N / tau.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from twinfold.data import Batch, Dataset
from twinfold.identify._uncertainty import correlation_time
from twinfold.model import Twin
from twinfold.model._unknown import is_unknown
from twinfold.train import Fit, Loss
from twinfold.train._method import TrainingProblem
from twinfold.train._objective import Objective
from twinfold.train._prepare import batch_with_run_indices, output_scale

RIDGE = 1e-12  # of the largest curvature: a direction without data or prior is as good as unknown


@dataclass(frozen=True, eq=False)
class Posterior:
    """The uncertainty of one seed's fit, in units of the scaled output.

    `error` is the root mean square of what is left on the training data, `covariance` that of all trained values.
    `inflation` says for each unknown parameter how many times its standard deviation grows because there are learned
    parts beside it: far above 1, the data do not tell it from them.
    """

    error: float
    samples: float
    covariance: np.ndarray
    inflation: dict[str, float]
    _problem: TrainingProblem
    _params: PyTree

    def spread(self, data: Dataset) -> np.ndarray:
        """The standard deviation of the predicted outputs at each sample of each run: [R, T, k]; 0 in the padding."""
        batch = batch_with_run_indices(self._problem.frozen.twin, data)
        real = jnp.broadcast_to((jnp.arange(batch.ts.shape[1]) < batch.length[:, None])[..., None], batch.mask.shape)
        # Every sample counts, measured or not.
        batch = eqx.tree_at(lambda batch: batch.mask, batch, real)
        jacobian = np.asarray(_linearised(self._problem, self._params, batch)[1])[: batch.y.size]
        variance = np.einsum("np,pq,nq->n", jacobian, self.covariance, jacobian) * int(real.sum())
        spread = np.sqrt(np.maximum(variance, 0.0)).reshape(batch.y.shape)
        return np.where(np.asarray(real), spread, 0)


def posterior(fit: Fit, data: Dataset, *, loss: Loss, seed: int = 0) -> Posterior:
    """The linearised posterior of a fit on the data, and with the loss, that it was made with.

    **Arguments:** `fit`; `data`; `loss`; `seed`, the index of the seed.
    """
    params, twin = jax.tree.map(lambda leaf: leaf[seed], fit.params), fit.twin_of(seed)
    batch = batch_with_run_indices(twin, data)
    objective = Objective(loss, output_scale(batch, loss), jnp.ones(1, batch.y.dtype))
    problem = TrainingProblem(objective, batch, None, fit.frozen)
    residual, jacobian = (np.asarray(part) for part in _linearised(problem, params, batch))
    measured = int(batch.mask.sum())
    errors = residual[: batch.y.size].reshape(batch.y.shape) * np.sqrt(measured)
    times = [correlation_time(each, mask) for each, mask in zip(errors, np.asarray(batch.mask), strict=True)]
    mean_square = float(np.sum(errors**2) / measured)
    samples = measured / float(np.mean(times))
    h = jacobian.T @ jacobian
    h = h + RIDGE * np.trace(h) / len(h) * np.eye(len(h))
    inverse = np.linalg.inv(h)
    return Posterior(
        error=float(np.sqrt(mean_square)),
        samples=samples,
        covariance=mean_square / samples * inverse,
        inflation=_inflation(h, inverse, _names(twin, params)),
        _problem=problem,
        _params=params,
    )


def _names(twin: Twin, params: PyTree) -> list[str]:
    """For each trained number the unknown parameter that it belongs to; empty for weights."""
    places = jax.tree_util.tree_flatten_with_path(twin, is_leaf=is_unknown)[0]
    unknown = {jax.tree_util.keystr(path) for path, node in places if is_unknown(node)}
    names = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        # The twin is the estimate's, and an unknown's raw value one of its own leaves.
        inside = jax.tree_util.keystr(path[1:-1])
        names += [inside if inside in unknown else ""] * leaf.size
    return names


def _inflation(h: np.ndarray, inverse: np.ndarray, names: list[str]) -> dict[str, float]:
    own = [index for index, name in enumerate(names) if name]
    if not own:
        return {}
    alone = np.linalg.inv(h[np.ix_(own, own)])
    grown = np.sqrt(np.diag(inverse)[own] / np.diag(alone))
    out: dict[str, float] = {}
    for place, value in zip(own, grown, strict=True):
        out[names[place]] = max(float(value), out.get(names[place], 0.0))
    return out


@eqx.filter_jit
def _linearised(problem: TrainingProblem, params: PyTree, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The residuals of a batch (those of the data first) and their derivative in all that was trained, [N, P]."""
    v, unravel = ravel_pytree(params)
    residual, jacobian, _ = problem.objective.residuals_and_jacobian(
        lambda v: problem.estimate(unravel(v)), v, batch, jnp.arange(batch.size)
    )
    return residual, jacobian
