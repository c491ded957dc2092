"""Some parameters of a twin, re-estimated for every run separately and all runs in parallel, with standard errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from twinfold._core import quick_jit
from twinfold.data import Batch, Dataset
from twinfold.data._rows import rows_of, simulate_row
from twinfold.identify._uncertainty import uncertainty
from twinfold.model import Twin
from twinfold.numerics._least_squares import PENALTY, least_squares

MAX_STEPS = 64


@dataclass(frozen=True, eq=False)
class ParameterEstimates:
    """P parameters of R runs: `values` and standard `errors`, [R, P].

    `change` [R, P] is the logarithm of the values relative to those of the twin, and `covariance` [R, P, P] that of the
    change. `residual` [R, T, k] is measured minus predicted, NaN where not measured. `failures` maps the name of a run
    to the reason why it has no estimate (NaN) or why its estimate has not converged.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-np.array([0.5, 0.7])[:, None, None] * ts[:, None]), names=["a", "b"])
    estimates = tw.identify.reestimate(tw.Twin(lambda x, p: -p["k"] * x, params={"k": 0.6}), data, ["k"])
    estimates.values  # [[0.5], [0.7]]
    estimates.failures  # {}
    ```
    """

    names: tuple[str, ...]
    values: np.ndarray
    errors: np.ndarray
    change: np.ndarray
    covariance: np.ndarray
    residual: np.ndarray
    failures: dict[str, str]


def reestimate(
    twin: Twin,
    data: Dataset,
    names: Sequence[str],
    *,
    scale: Sequence[float] | None = None,
    max_steps: int = MAX_STEPS,
) -> ParameterEstimates:
    """Re-estimate parameters for each run by least squares (Levenberg-Marquardt), starting at the twin's values.

    A run that fails is reported in `failures` and does not affect the others.

    **Arguments:** `twin`, fitted, with parameters for the group of every run; `data`; `names` of positive parameters
    (all others keep the twin's values); `scale` of each output, the errors that count alike (default: 1, so that
    outputs count in their own units; a smaller scale gives an output more weight); `max_steps` of the iteration for
    each run.

    **Returns:** `ParameterEstimates`.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-np.array([0.5, 0.7])[:, None, None] * ts[:, None]))
    tw.identify.reestimate(tw.Twin(lambda x, p: -p["k"] * x, params={"k": 0.6}), data, ["k"]).values
    ```
    """
    rows, names = rows_of(twin, data), tuple(names)
    twin, batch = rows.adapt(twin), rows.batch
    first = np.asarray(jax.vmap(lambda run: jnp.stack([twin.parameters(run)[name] for name in names]))(batch.run))
    mask = np.asarray(batch.mask)
    unit = np.ones(mask.shape[-1]) if scale is None else np.asarray(scale, np.float64)
    if unit.shape != mask.shape[-1:] or not (np.isfinite(unit) & (unit > 0)).all():
        raise ValueError(f"scale={scale}: give one positive number for each of the {mask.shape[-1]} outputs.")
    # One more factor for all outputs leaves their weights alone; it makes the damping independent of the unit.
    spread = np.std((np.asarray(batch.y) / unit)[mask])
    size = spread * np.sqrt(mask.sum(axis=(1, 2))) if spread > 0 else np.ones(len(mask))
    sizes = np.maximum(size, np.finfo(float).tiny)[:, None] * unit
    solution = _solve(twin, batch, names, jnp.asarray(sizes, batch.y.dtype), max_steps)
    change, residual, jacobian, converged = (np.array(part) for part in solution)
    residual = np.where(mask & (residual != PENALTY), residual * sizes[:, None], np.nan)
    jacobian = jacobian.reshape(*residual.shape, len(names)) * sizes[:, None, :, None]
    errors, covariance = np.full(change.shape, np.nan), np.full((*change.shape, len(names)), np.nan)
    failures: dict[str, str] = {}
    for index, run in enumerate(data.names):
        try:
            result = uncertainty(residual[index] / unit, jacobian[index] / unit[:, None], names)
        except ValueError as error:
            failures[run] = f"{error} A sample counts only if it was measured and its prediction is finite."
            change[index] = np.nan
            continue
        covariance[index] = result.covariance
        errors[index] = [result.errors[name] for name in names]
        if not converged[index]:
            failures[run] = f"Not converged after {max_steps} steps: increase max_steps, or start from a closer twin."
    values = first * np.exp(change)
    return ParameterEstimates(names, values, values * errors, change, covariance, residual, failures)


@quick_jit
def _solve(
    twin: Twin, batch: Batch, names: tuple[str, ...], scale: Float[Array, "R k"], max_steps: int
) -> tuple[Float[Array, "R P"], Float[Array, "R T k"], Float[Array, "R N P"], Bool[Array, " R"]]:
    """The change of each run, its scaled residuals, their Jacobian, and whether it has converged."""

    def run(row: Batch, scale: Float[Array, " k"]) -> tuple[Array, Array, Array, Array]:
        def residuals(change: Float[Array, " P"]) -> Array:
            p = with_change(twin.parameters(row.run), names, change)
            error = (row.y - simulate_row(twin, row, p).valid_ys) / scale[None]
            return jnp.where(row.mask, error, 0)

        return least_squares(residuals, jnp.zeros(len(names), batch.y.dtype), max_steps)

    return jax.vmap(run)(batch, scale)


def with_change(p: dict[str, Any], names: Sequence[str], change: Float[Array, " P"]) -> dict[str, Any]:
    """The parameters, those in `names` changed by these logarithms."""
    return p | {name: p[name] * jnp.exp(change[index]) for index, name in enumerate(names)}
