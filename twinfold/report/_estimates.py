"""The unknown parameters of a fitted twin: their values, and how sure they are.

The standard error is that of `identify.uncertainty` with the learned parts held, times the factor by which it grows
because they were learned beside the parameter (`identify.posterior`), where the fit is given to compute it.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from twinfold.data import Batch, Dataset
from twinfold.identify import posterior, uncertainty
from twinfold.model import Twin, Unknown
from twinfold.model._simulation import simulate_unchecked
from twinfold.model._unknown import is_unknown
from twinfold.train import Fit, Loss
from twinfold.train._prepare import batch_with_run_indices, output_scale

MOST = 64  # numbers whose errors are computed together
DENSE = 20_000_000  # entries of the largest Jacobian that is formed


@dataclasses.dataclass(frozen=True)
class Estimated:
    """One number: `error` is its standard error, infinite where the data say nothing of it, NaN where not computed.

    `inflation` says how many times larger the error is for the learned parts beside it; NaN where not computed.
    """

    name: str
    value: float
    start: float
    error: float
    inflation: float


def estimates(
    twin: Twin, fit: Fit | None, data: Dataset, config: Mapping[str, Any], problems: list[str]
) -> list[Estimated]:
    """Every unknown number of a twin; why errors are missing is told in `problems`."""
    places = [
        (jax.tree_util.keystr(path), node)
        for path, node in jax.tree_util.tree_flatten_with_path(twin, is_leaf=is_unknown)[0]
        if is_unknown(node)
    ]
    if not places:
        return []
    values = [_values(twin, path, node) for path, node in places]
    count = sum(len(each) for each in values)
    errors, grown = np.full(count, np.nan), dict.fromkeys([path for path, _ in places], math.nan)
    if count > MOST:
        problems.append(f"Standard errors are not computed for {count} unknown numbers ({MOST} at most).")
    else:
        try:
            errors = _errors(twin, data, [each[0] for some in values for each in some])
            grown |= _inflation(fit, data, config)
        except ValueError as error:
            problems.append(f"Standard errors could not be computed: {error}")
    found, index = [], 0
    for (path, _), some in zip(places, values, strict=True):
        factor = grown[path]
        for name, value, start, slope in some:
            error = abs(slope) * errors[index] * (1.0 if math.isnan(factor) else factor)
            found.append(Estimated(name, value, start, float(error), factor))
            index += 1
    return found


def _values(twin: Twin, path: str, unknown: Unknown) -> list[tuple[str, float, float, float]]:
    """(name, value, first guess, dvalue/draw) of each number of an unknown, in the order of its raw values."""
    owners: list[tuple[str, Any]] = [("", None)]
    if unknown.owner is not None:
        owner = np.asarray(unknown.owner.value)
        known = twin.groups if unknown.per_group else twin.runs
        owners = [
            (f" of {(known or ())[int(np.argmax(owner == i))]}", int(np.argmax(owner == i)))
            for i in range(owner.max() + 1)
        ]
    found = []
    for whose, run in owners:
        value = np.asarray(unknown.value(run))
        slope = np.asarray(_slope(unknown, run))
        for place in np.ndindex(value.shape):
            label = plain_name(path) + (f"[{', '.join(map(str, place))}]" if place else "") + whose
            start = float(np.asarray(unknown.start.value)[place])
            found.append((label, float(value[place]), start, float(slope[place])))
    return found


def _slope(unknown: Unknown, run: int | None) -> Array:
    """dvalue/draw, element by element: a value depends on no other raw one."""

    def moved(by: Array) -> Array:
        return eqx.tree_at(lambda u: u.raw, unknown, unknown.raw + by).value(run)

    return jax.jvp(moved, (jnp.zeros((), unknown.raw.dtype),), (jnp.ones((), unknown.raw.dtype),))[1]


def plain_name(path: str) -> str:
    """A place in the twin as its user knows it: .params['k'] is k."""
    if path.startswith(".params["):
        return path.removeprefix(".params").replace("'", "").replace("][", ".").strip("[]")
    return "initial state" if path == ".initial" else path.lstrip(".")


def _errors(twin: Twin, data: Dataset, names: list[str]) -> np.ndarray:
    """Standard errors in units of raw, from residuals in units of each output's spread."""
    batch = batch_with_run_indices(twin, data)
    if batch.y.size * len(names) > DENSE:
        raise ValueError(f"{batch.y.size} measured values are too many to differentiate by {len(names)} parameters.")
    predicted, jacobian = (np.asarray(part) for part in _sensitivity(twin, batch))
    scale = np.asarray(output_scale(batch, Loss()))
    left = ((np.asarray(batch.y) - predicted) / scale).reshape(-1, scale.size)
    slopes = (jacobian / scale[:, None]).reshape(-1, scale.size, len(names))
    mask = np.asarray(batch.mask).reshape(left.shape)
    with np.errstate(all="ignore"):  # a run that failed is not finite, and left out
        found = uncertainty(left, slopes, names, mask=mask)
    return np.array([found.errors[name] for name in names])


@eqx.filter_jit
def _sensitivity(twin: Twin, batch: Batch) -> tuple[Float[Array, "R T k"], Float[Array, "R T k P"]]:
    unknown = [node.raw for node in twin.unknowns()]
    raw, rebuild = ravel_pytree(unknown)

    def outputs(raw: Array) -> tuple[Array, Array]:
        moved = eqx.tree_at(lambda twin: [node.raw for node in twin.unknowns()], twin, rebuild(raw))

        def run(row: Batch) -> Array:
            p = moved.parameters(row.run)
            x0 = moved.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)
            return simulate_unchecked(moved, x0, row.ts, row.w, p, None).ys

        ys = jax.vmap(run)(batch)
        return ys, ys

    jacobian, ys = jax.jacfwd(outputs, has_aux=True)(raw)
    return ys, jacobian


def _inflation(fit: Fit | None, data: Dataset, config: Mapping[str, Any]) -> dict[str, float]:
    samples = sum(run.y.size for run in data.runs)
    # States that were estimated for windows have no place in whole runs.
    if fit is None or fit.frozen.shooting is not None or samples * fit.parameters > DENSE:
        return {}
    given = config.get("loss")
    fields = {field.name for field in dataclasses.fields(Loss)}
    chosen = {k: v for k, v in given.items() if k in fields} if isinstance(given, Mapping) else {}
    return posterior(fit, data, loss=Loss(**chosen), seed=fit.best).inflation
