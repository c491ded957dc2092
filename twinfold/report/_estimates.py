"""The unknown parameters of a fitted twin: estimates and standard errors.

The standard error is that of `identify.uncertainty` with the learned parts held fixed. If the fit is given, it is
multiplied by the factor by which it grows because those parts were trained too (`identify.posterior`).
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from twinfold._core import quick_jit
from twinfold.data import Batch, Dataset
from twinfold.data._rows import initial_state, known_batch
from twinfold.identify import Uncertainty, posterior, uncertainty
from twinfold.model import Twin, Unknown, simulate_unchecked
from twinfold.model._unknown import is_unknown
from twinfold.report._numbers import format_estimate
from twinfold.train import Fit, Loss
from twinfold.train._prepare import output_scale

MAX_PARAMETERS = 64  # scalars whose standard errors are computed together
INITIAL = ".initial"  # the path of the initial state in a twin
MAX_JACOBIAN_SIZE = 20_000_000  # entries


@dataclasses.dataclass(frozen=True)
class ParameterEstimate:
    """One scalar: its standard `error` is infinite if the data do not identify it, NaN if not computed.

    `inflation` is the factor by which the learned parts increase the error; NaN if not computed.
    """

    name: str
    value: float
    guess: float
    error: float = math.nan
    inflation: float = math.nan

    @property
    def flag(self) -> str:
        """Why the value is not to be trusted; "" if it may be."""
        if math.isinf(self.error):
            return "not identifiable"
        return "the error exceeds the value" if self.error > abs(self.value) else ""

    def __str__(self) -> str:
        """For example k = 2.031 ± 0.012 (first guess 1)."""
        error = "" if math.isnan(self.error) else f" ± {self.error:.2g}"
        error = " (not identifiable)" if math.isinf(self.error) else error
        return f"{self.name} = {format_estimate(self.value, self.error)}{error} (first guess {self.guess:.5g})"


def estimate_parameters(
    twin: Twin, fit: Fit | None, data: Dataset, config: Mapping[str, Any], problems: list[str]
) -> list[ParameterEstimate]:
    """Every unknown scalar of a twin; the reason for missing standard errors is added to `problems`."""
    leaves = jax.tree_util.tree_flatten_with_path(twin, is_leaf=is_unknown)[0]
    unknowns = [(jax.tree_util.keystr(path), node) for path, node in leaves if is_unknown(node)]
    scalars = [(path, *scalar) for path, node in unknowns for scalar in _scalars(twin, path, node)]
    estimates = [estimate for _, estimate, _ in scalars]
    # Initial states add to the errors of the parameters, but belong to the runs, not to the system.
    listed = [twin.warmup is None or path != INITIAL for path, *_ in scalars]
    if len(scalars) > MAX_PARAMETERS:
        problems.append(f"Standard errors are not computed for {len(scalars)} parameters ({MAX_PARAMETERS} at most).")
    if not 0 < len(scalars) <= MAX_PARAMETERS:
        return list(itertools.compress(estimates, listed))
    try:
        names = [estimate.name for estimate in estimates]
        found_errors = raw_uncertainty(twin, data, names).errors
        errors = [found_errors[name] for name in names]
        inflation = _inflation(fit, data, config)
    except ValueError as error:
        problems.append(f"Standard errors could not be computed: {error}")
        return list(itertools.compress(estimates, listed))
    found = []
    for (path, estimate, slope), raw_error in zip(scalars, errors, strict=True):
        error = abs(slope) * raw_error * inflation.get(path, 1.0)
        found.append(dataclasses.replace(estimate, error=error, inflation=inflation.get(path, math.nan)))
    return list(itertools.compress(found, listed))


def _scalars(twin: Twin, path: str, unknown: Unknown) -> list[tuple[ParameterEstimate, float]]:
    """The estimate and dvalue/draw of each scalar of an unknown, in the order of its raw values."""
    owners: list[tuple[str, int | None]] = [("", None)]
    if unknown.owner is not None:
        owner, names = np.asarray(unknown.owner.value), (twin.groups if unknown.per_group else twin.runs) or ()
        runs = [int(np.argmax(owner == i)) for i in range(owner.max() + 1)]
        owners = [(f" of {names[run]}", run) for run in runs]
    guess, found = np.asarray(unknown.guess.value), []
    for suffix, run in owners:
        value, slope = (np.asarray(each) for each in _value_and_slope(unknown, run))
        for place in np.ndindex(value.shape):
            index = f"[{', '.join(map(str, place))}]" if place else ""
            name = f"{_parameter_name(path)}{index}{suffix}"
            found.append((ParameterEstimate(name, float(value[place]), float(guess[place])), float(slope[place])))
    return found


def _value_and_slope(unknown: Unknown, run: int | None) -> tuple[Array, Array]:
    """The value and dvalue/draw, elementwise: no value depends on another's raw one."""

    def shifted(by: Array) -> Array:
        return eqx.tree_at(lambda u: u.raw, unknown, unknown.raw + by).value(run)

    return jax.jvp(shifted, (jnp.zeros((), unknown.raw.dtype),), (jnp.ones((), unknown.raw.dtype),))


def _parameter_name(path: str) -> str:
    """A path in the twin as its user knows it: .params['k'] is k."""
    if path.startswith(".params["):
        return path.removeprefix(".params").replace("'", "").replace("][", ".").strip("[]")
    return "initial state" if path == INITIAL else path.lstrip(".")


def raw_uncertainty(twin: Twin, data: Dataset, names: list[str]) -> Uncertainty:
    """Standard errors and covariance in units of raw, from residuals in units of each output's spread."""
    batch = known_batch(twin, data)
    if batch.y.size * len(names) > MAX_JACOBIAN_SIZE:
        raise ValueError(
            f"the Jacobian of {batch.y.size} measured values by {len(names)} parameters has more than "
            f"{MAX_JACOBIAN_SIZE} entries."
        )
    jacobian, predicted = (np.asarray(part) for part in _sensitivity(twin, batch))
    scale = np.asarray(output_scale(batch, Loss()))
    residual = ((np.asarray(batch.y) - predicted) / scale).reshape(-1, scale.size)
    slopes = (jacobian / scale[:, None]).reshape(-1, scale.size, len(names))
    with np.errstate(all="ignore"):  # values of failed runs are not finite; `uncertainty` drops them
        return uncertainty(residual, slopes, names, mask=np.asarray(batch.mask).reshape(residual.shape))


@quick_jit
def _sensitivity(twin: Twin, batch: Batch) -> tuple[Float[Array, "R T k P"], Float[Array, "R T k"]]:
    """The derivative of all outputs with respect to all raw parameters, and the outputs."""
    raw, unravel = ravel_pytree([unknown.raw for unknown in twin.unknowns()])

    def outputs(raw: Array) -> tuple[Array, Array]:
        moved = eqx.tree_at(lambda twin: [unknown.raw for unknown in twin.unknowns()], twin, unravel(raw))

        def run(row: Batch) -> Array:
            p = moved.parameters(row.run)
            x0 = initial_state(moved, row, p)
            # Zero, with a derivative: else JAX differentiates the whole scan once more to find that x has one.
            x0 = x0 + 0 * jnp.sum(raw).astype(x0.dtype)
            return simulate_unchecked(moved, x0, row.ts, row.w, p).ys

        ys = jax.vmap(run)(batch)
        return ys, ys

    return jax.jacfwd(outputs, has_aux=True)(raw)


def _inflation(fit: Fit | None, data: Dataset, config: Mapping[str, Any]) -> dict[str, float]:
    """The factor by which the learned parts increase the error of each unknown, by path; empty if not computed."""
    samples = sum(run.y.size for run in data.runs)
    # Shooting states belong to windows, not to whole runs.
    if fit is None or fit.frozen.shooting is not None or samples * fit.parameters > MAX_JACOBIAN_SIZE:
        return {}
    given = config.get("loss")
    fields = {field.name for field in dataclasses.fields(Loss)}
    chosen = {name: value for name, value in given.items() if name in fields} if isinstance(given, Mapping) else {}
    return posterior(fit, data, loss=Loss(**chosen), seed=fit.best).inflation
