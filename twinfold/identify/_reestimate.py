"""A few parameters of a twin estimated again for every run, all runs side by side, with standard errors."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.data import Batch, Dataset
from twinfold.identify._uncertainty import uncertainty
from twinfold.model import Twin
from twinfold.model._simulation import simulate_unchecked
from twinfold.train._prepare import batch_with_run_indices

STEPS = 15
DAMPING = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Reestimated:
    """P parameters of R runs: `values` and standard `errors` [R, P].

    `change` [R, P] is the logarithm of the values over those that the twin has, `covariance` [R, P, P] that of it;
    `residual` [R, T, k], measured minus predicted, NaN where nothing was measured.
    """

    names: tuple[str, ...]
    values: np.ndarray
    errors: np.ndarray
    change: np.ndarray
    covariance: np.ndarray
    residual: np.ndarray


def reestimate(twin: Twin, data: Dataset, names: Sequence[str], *, steps: int = STEPS) -> Reestimated:
    """Least squares for each run by itself: a damped Gauss-Newton step of all runs at a time.

    **Arguments:** `twin`, fitted, with parameters for the group of every run; `data`; `names` of positive parameters,
    all others stay as the twin has them; `steps`.
    """
    batch, names = batch_with_run_indices(twin, data), tuple(names)
    start = jax.vmap(lambda run: jnp.stack([twin.parameters(run)[name] for name in names]))(batch.run)
    change = np.zeros(start.shape)
    damping = np.full(len(change), DAMPING)
    left, jacobian = _linearised(twin, batch, names, change)
    cost = np.nansum(left**2, axis=(1, 2))
    for _ in range(steps):
        trial = change + _step(left, jacobian, damping)
        new_left, new_jacobian = _linearised(twin, batch, names, trial)
        new_cost = np.nansum(new_left**2, axis=(1, 2))
        better = np.isfinite(new_left).any(axis=(1, 2)) & (new_cost <= cost)
        change[better], left[better], jacobian[better] = trial[better], new_left[better], new_jacobian[better]
        cost = np.where(better, new_cost, cost)
        damping = np.where(better, damping / 5, damping * 10)
    sure = [uncertainty(r, j, names) for r, j in zip(left, jacobian, strict=True)]
    values = np.asarray(start) * np.exp(change)
    errors = values * np.array([[each.errors[name] for name in names] for each in sure])
    return Reestimated(names, values, errors, change, np.array([each.covariance for each in sure]), left)


def _step(left: np.ndarray, jacobian: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """(J'J + lambda diag J'J) d = J' r of each run, r being measured minus predicted."""
    r = np.nan_to_num(left)
    j = np.where(np.isnan(left)[..., None], 0.0, jacobian)
    normal = np.einsum("rtkp,rtkq->rpq", j, j)
    diagonal = np.einsum("rpp->rp", normal)
    damped = normal + (damping[:, None] * diagonal + 1e-12)[..., None] * np.eye(normal.shape[1])
    return np.linalg.solve(damped, np.einsum("rtkp,rtk->rp", j, r)[..., None])[..., 0]


def _linearised(twin: Twin, batch: Batch, names: tuple[str, ...], change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Measured minus predicted, [R, T, k], and the derivative of what is predicted, [R, T, k, P]."""
    predicted, jacobian = _predict(twin, batch, names, jnp.asarray(change))
    # Beyond the end of what was measured the simulation may go anywhere, or nowhere.
    left = np.where(np.asarray(batch.mask), np.asarray(batch.y) - np.asarray(predicted), np.nan)
    return left, np.array(jacobian)


@eqx.filter_jit
def _predict(
    twin: Twin, batch: Batch, names: tuple[str, ...], change: Float[Array, "R P"]
) -> tuple[Float[Array, "R T k"], Float[Array, "R T k P"]]:
    def run(row: Batch, change: Float[Array, " P"]) -> tuple[Array, Array]:
        def outputs(change: Float[Array, " P"]) -> tuple[Array, Array]:
            p = twin.parameters(row.run)
            p = p | {name: p[name] * jnp.exp(change[place]) for place, name in enumerate(names)}
            x0 = twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)
            ys = simulate_unchecked(twin, x0, row.ts, row.w, p, None).ys
            return ys, ys

        jacobian, ys = jax.jacfwd(outputs, has_aux=True)(change)
        return ys, jacobian

    return jax.vmap(run)(batch, change)
