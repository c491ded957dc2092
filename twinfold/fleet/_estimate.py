"""The scalars of many assets: one compiled program, Levenberg-Marquardt vmapped over assets, on one device or several.

    minimise over v:  sum of ((y - predicted(v)) / s)^2,    s: the spread of each output of this asset

An asset sees nothing of the others: how a fleet is cut into batches does not matter.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from twinfold.fleet._batch import AssetBatch
from twinfold.fleet._least_squares import FIRST_DAMPING, Start, fit_asset
from twinfold.fleet._standard_errors import standard_errors
from twinfold.fleet._variables import AssetVariables
from twinfold.model import Twin, simulate_unchecked

MAX_STEPS = 60
ROUND = 8  # evaluations before the assets that have converged leave
CPU_LANES, DEVICE_LANES = 32, 4096  # assets computed at a time
OK, FEW_SAMPLES, NO_START, DIVERGED, NOT_CONVERGED = range(5)
REASONS = {
    OK: "",
    FEW_SAMPLES: "too few measured samples for the number of parameters",
    NO_START: "the initial state is not finite: the first sample is incomplete, or out of range",
    DIVERGED: "the simulation, or the spread of the outputs, is not finite",
    NOT_CONVERGED: "not converged: increase max_steps, or start from a closer twin",
}


class AssetEstimates(eqx.Module):
    """The estimates of A assets: P variables with standard errors, and what is left over.

    `values` and `errors` [A, P]; `change`, the estimate in the coordinate that it moved in; `rms` and `mean` [A, k] of
    the residual of each output, in its unit; `score` [A], the residual relative to the spread of the outputs;
    `correlation` [A], its correlation time in samples; `samples` [A]; `code` [A], 0 for a usable estimate; `steps` [A],
    evaluations that it took.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    y = np.exp(-np.array([0.5, 0.8])[:, None, None] * ts[:, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)})
    estimates = tw.fleet.estimate_assets(twin, np.stack([ts, ts]), y)
    estimates.reasons  # ["", ""]
    ```
    """

    values: Float[Array, "*A P"]
    errors: Float[Array, "*A P"]
    change: Float[Array, "*A P"]
    rms: Float[Array, "*A k"]
    mean: Float[Array, "*A k"]
    score: Float[Array, "*A"]
    correlation: Float[Array, "*A"]
    samples: Int[Array, "*A"]
    code: Int[Array, "*A"]
    steps: Int[Array, "*A"]

    @property
    def reasons(self) -> list[str]:
        """Why an asset has no usable estimate; "" if it has one."""
        return [REASONS[int(code)] for code in np.asarray(self.code)]


def estimate_assets(
    twin: Twin,
    ts: Float[ArrayLike, "A T"],
    y: Float[ArrayLike, "A T k"],
    w: Float[ArrayLike, "A T d"] | None = None,
    *,
    x0: Float[ArrayLike, "A n"] | None = None,
    parameters: Sequence[str] | None = None,
    max_steps: int = MAX_STEPS,
    lanes: int | None = None,
    devices: Sequence[Any] | None = None,
) -> AssetEstimates:
    """Estimate scalars of many assets from arrays in memory, on a CPU, a GPU, or several devices.

    **Arguments:** `twin`; `ts`, times of each asset, padded by repeating the last one; `y`, outputs, NaN where nothing
    was measured and in padding; `w`, inputs; `x0`, initial states, if the twin does not give them; `parameters` and
    `max_steps` as for `fit_fleet`; `lanes`, assets computed at a time (default: 32 on a CPU, 4096 on an accelerator);
    `devices`, over which they are spread (`jax.devices()`).

    **Returns:** `AssetEstimates` as NumPy arrays.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    y = np.exp(-np.array([0.5, 0.8])[:, None, None] * ts[:, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)})
    tw.fleet.estimate_assets(twin, np.stack([ts, ts]), y).values  # [[0.5], [0.8]]
    ```
    """
    arrays = AssetBatch(*(None if each is None else np.asarray(each) for each in (ts, y, w, x0)))
    shares = 1 if devices is None else len(devices)
    lanes = min(arrays.size, default_lanes()) if lanes is None else lanes
    lanes = -(-lanes // shares) * shares
    return estimate_bucket(AssetVariables.of(twin, parameters), arrays, lanes, max_steps=max_steps, devices=devices)


def default_lanes() -> int:
    """Assets that are computed at a time where nobody says so."""
    return CPU_LANES if jax.default_backend() == "cpu" else DEVICE_LANES


def estimate_bucket(
    variables: AssetVariables,
    assets: AssetBatch,
    lanes: int,
    *,
    max_steps: int = MAX_STEPS,
    devices: Sequence[Any] | None = None,
) -> AssetEstimates:
    """The estimates of assets of one length as NumPy arrays, `lanes` at a time, with one compiled program.

    In rounds: most assets need a few steps and some need many. What has not converged after the steps of a round goes
    on in the next one, together with others like it, and does not hold up those that have.

    **Arguments:** `variables` of an asset; `assets`; `max_steps` of the iteration (0: the twin as it is); `devices`,
    over which the assets are spread evenly (their number must divide `lanes`).
    """
    dtype = np.dtype(jnp.zeros(()).dtype)
    assets = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), assets)
    count = assets.size
    starts, found = jax.tree.map(np.array, starts_of(variables, assets)), None
    waiting, limit = np.arange(count), min(ROUND, max_steps + 1)
    while len(waiting):
        for begin in range(0, len(waiting), lanes):
            chosen = waiting[np.minimum(np.arange(begin, begin + lanes), len(waiting) - 1)]  # the last ones are copies
            batch, start = jax.tree.map(lambda leaf, chosen=chosen: leaf[chosen], (assets, starts))
            placed = _placed(variables, batch, start, devices)
            result = jax.device_get(_estimate(*placed, jnp.int32(limit), max_steps > 0))
            if found is None:
                found = jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape[1:]), leaf.dtype), result[0])
            for kept, new in zip(jax.tree.leaves((found, starts)), jax.tree.leaves(result), strict=True):
                kept[chosen] = new
        assert found is not None
        waiting = waiting[(found.code[waiting] != OK) & (starts.steps[waiting] == limit) & (limit <= max_steps)]
        limit = min(limit + ROUND, max_steps + 1)
    assert found is not None
    return found


def starts_of(variables: AssetVariables, assets: AssetBatch) -> Start:
    """Where the iteration of every asset starts: at the twin's values."""
    count = assets.size
    return Start(jnp.zeros((count, variables.count)), jnp.full(count, FIRST_DAMPING), jnp.zeros(count, jnp.int32))


def _placed(
    variables: AssetVariables, batch: AssetBatch, start: Start, devices: Sequence[Any] | None
) -> tuple[AssetVariables, AssetBatch, Start]:
    """The arguments, spread over the devices."""
    if devices is None or len(devices) < 2:
        return variables, batch, start
    if batch.size % len(devices):
        raise ValueError(f"devices: {batch.size} assets cannot be spread evenly over {len(devices)} devices.")
    mesh = jax.sharding.Mesh(np.array(devices), ("assets",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("assets"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    arrays, rest = eqx.partition(variables, eqx.is_array)
    variables = eqx.combine(jax.device_put(arrays, everywhere), rest)
    return variables, *jax.device_put((batch, start), split)


@eqx.filter_jit
def _estimate(
    variables: AssetVariables, batch: AssetBatch, start: Start, limit: Int[Array, ""], fitted: bool
) -> tuple[AssetEstimates, Start]:
    return jax.vmap(partial(_estimate_one, variables, limit, fitted))(batch, start)


def _estimate_one(
    variables: AssetVariables, limit: Int[Array, ""], fitted: bool, asset: AssetBatch, begin: Start
) -> tuple[AssetEstimates, Start]:
    mask = jnp.isfinite(asset.y)
    y = jnp.where(mask, asset.y, 0)
    count = jnp.sum(mask, axis=0)
    spread = _spread(y, mask, count)
    scale = spread * jnp.sqrt(jnp.maximum(jnp.sum(count), 1).astype(y.dtype))
    w0 = None if asset.w is None else asset.w[0]

    def start(v: Float[Array, " P"], p: Any) -> Array:
        return variables.initial_state(v, asset.ts[0], asset.y[0], w0, p, asset.x0)

    def residuals(v: Float[Array, " P"]) -> Float[Array, "T k"]:
        p = variables.parameters(v)
        predicted = simulate_unchecked(variables.twin, start(v, p), asset.ts, asset.w, p).valid_ys
        return jnp.where(mask, (y - predicted) / scale[None], 0)

    total = jnp.sum(count)
    if fitted:
        best, after = fit_asset(residuals, begin, total, limit)
        v, residual, jacobian, converged, finite, steps = best
    else:  # the twin as it is
        v, residual, steps, after = begin.v, residuals(begin.v), begin.steps, begin
        converged = finite = jnp.all(jnp.isfinite(residual))
        jacobian = jnp.zeros((*residual.shape, v.size), y.dtype)
    finite = finite & jnp.all(jnp.isfinite(scale))
    first = jnp.zeros_like(v)
    begins = jnp.all(jnp.isfinite(start(first, variables.parameters(first))))
    errors, tau = standard_errors(residual, jacobian, mask)
    code = jnp.where(converged, OK, NOT_CONVERGED)
    code = jnp.where(finite, code, DIVERGED)
    code = jnp.where(begins, code, NO_START)
    code = jnp.where(total > variables.count, code, FEW_SAMPLES)
    usable = (code == OK) | (code == NOT_CONVERGED)
    left = jnp.where(usable, residual, jnp.nan) * scale[None]
    each = jnp.maximum(count, 1).astype(y.dtype)
    estimates = AssetEstimates(
        values=jnp.where(usable, variables.values(v), jnp.nan),
        errors=jnp.where(usable, errors * jnp.abs(variables.slopes(v)), jnp.nan),
        change=jnp.where(usable, v, jnp.nan),
        rms=jnp.sqrt(jnp.sum(left**2, axis=0) / each),
        mean=jnp.sum(left, axis=0) / each,
        score=jnp.sqrt(jnp.sum((left / spread[None]) ** 2) / jnp.maximum(total, 1).astype(y.dtype)),
        correlation=tau,
        samples=total.astype(jnp.int32),
        code=code.astype(jnp.int32),
        steps=steps.astype(jnp.int32),
    )
    return estimates, after


def _spread(y: Float[Array, "T k"], mask: Bool[Array, "T k"], count: Int[Array, " k"]) -> Float[Array, " k"]:
    """The standard deviation of each output; 1 where it is zero."""
    each = jnp.maximum(count, 1).astype(y.dtype)
    mean = jnp.sum(y, axis=0) / each
    spread = jnp.sqrt(jnp.sum(jnp.where(mask, (y - mean[None]) ** 2, 0), axis=0) / each)
    return jnp.where(spread > 0, spread, 1)
