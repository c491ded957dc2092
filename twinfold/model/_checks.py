"""What `Twin.simulate` asks of its arguments and of the model before it computes, and says about the result."""

import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from twinfold._core import RESULTS, check_times, first_failure
from twinfold.model._implicit import Implicit, check_implicit
from twinfold.model._learned.base import Context, learned_parts
from twinfold.model._simulation import Simulation, SimulationError
from twinfold.numerics import NoProjection
from twinfold.numerics._constraint import check_constraint
from twinfold.typing import Parameters, Scalar, State

if TYPE_CHECKING:
    from twinfold.model._twin import Twin


def float_dtype(x0: Array) -> jnp.dtype:
    """The dtype of a simulation that starts at `x0`: its own, or a floating-point one for integers."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(x0.dtype, jnp.float32)


def checked_arguments(x0: Any, ts: Any, w: Any, level: Any, inconsistent_x0: str) -> tuple[Any, Any, Any, Any]:
    """The arguments of a simulation as arrays of one dtype, or a `ValueError` that names the wrong one."""
    x0, ts = jnp.asarray(x0), jnp.asarray(ts)
    dtype = float_dtype(x0)
    if x0.ndim != 1 or x0.shape[0] == 0:
        raise ValueError(f"x0 has shape {x0.shape}; it must be a vector of states (use jax.vmap for a batch).")
    if not bool(jnp.all(jnp.isfinite(x0))):
        raise ValueError(f"x0 is not finite: {np.asarray(x0)}.")
    if inconsistent_x0 not in ("project", "refuse"):
        raise ValueError(f'inconsistent_x0={inconsistent_x0!r}: give "project" or "refuse".')
    check_times(np.asarray(ts), "ts")
    if w is not None:
        w = jnp.asarray(w, dtype)
        if w.ndim != 2 or w.shape[0] != ts.shape[0]:
            raise ValueError(f"w has shape {w.shape}; it must have a row for each of the {ts.shape[0]} times.")
        if not bool(jnp.all(jnp.isfinite(w))):
            raise ValueError("w is not finite.")
    level = None if level is None else jnp.atleast_1d(jnp.asarray(level, dtype))
    return x0.astype(dtype), ts.astype(dtype), w, level


def check_model(twin: "Twin", t: Scalar, x: State, w: Any, p: Parameters) -> int:
    """The number of constraints, or a `ValueError` that names what does not fit, before anything compiles."""
    inputs = 0 if w is None else w.shape[0]
    context = Context(x.shape[0], inputs, x.dtype)
    for part in learned_parts(twin):
        part.check(context)
    if isinstance(twin.algebraic, Implicit):
        check_implicit(twin.algebraic, t, twin.state(t, x, w, p), w, p)
    level = jax.eval_shape(twin.constraint.level, t, x, p)
    rate = jax.eval_shape(twin.cell.rate, t, x, w, p, level)
    if getattr(rate, "shape", None) != x.shape:
        raise ValueError(f"field: dx has shape {getattr(rate, 'shape', type(rate))} for a state of shape {x.shape}.")
    count = check_constraint(twin.constraint, t, x, p)
    metric = twin.projection.metric
    if metric is not None and metric.states != x.shape[0]:
        raise ValueError(f"metric: it has {metric.states} weights for {x.shape[0]} states.")
    outputs = jax.eval_shape(twin.outputs, t, x, w, p)
    if outputs.ndim != 1:
        raise ValueError(f"observe: y has shape {outputs.shape}; it must be a vector of outputs.")
    return count


def raise_or_warn(twin: "Twin", simulation: Simulation, inconsistent_x0: str, throw: bool) -> None:
    """A `SimulationError` if it failed, and `throw`; warnings of a projected x0 and of constraints that add nothing."""
    trajectory = simulation.trajectory
    violation = np.asarray(trajectory.initial_violation)
    failed = np.asarray(trajectory.result != RESULTS.successful)
    if throw and failed.any():
        index = int(failed.argmax())
        outcome = first_failure(trajectory.result)
        message = f"At t = {float(trajectory.ts[index]):.6g} (sample {index}): {RESULTS[outcome]}"
        if index == 0 and violation.size:
            message += f" The violation of x0 is {violation}."
        raise SimulationError(message, simulation)
    tolerated = np.sqrt(np.finfo(violation.dtype).eps) * np.asarray(trajectory.scale)
    projected = inconsistent_x0 == "project" and not isinstance(twin.projection, NoProjection)
    if projected and (violation > tolerated).any():
        warnings.warn(
            f"x0 violates the constraint by {violation}; it was projected onto the manifold before the simulation. "
            'Pass inconsistent_x0="refuse" to make this an error.',
            stacklevel=3,
        )
    redundant = np.max(np.asarray(trajectory.redundant), initial=0)
    if redundant > 0:
        warnings.warn(
            f"constraint: {redundant} of {violation.shape[-1]} depend on the others (the same one twice, a sum of "
            "others). They hold together with these and only add to the cost: remove them.",
            stacklevel=3,
        )
