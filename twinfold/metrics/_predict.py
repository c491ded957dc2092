"""Whole runs, predicted from their initial states: what every metric is computed from."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import RESULTS
from twinfold.data import Batch, Dataset
from twinfold.model import Twin
from twinfold.model._simulation import simulate_unchecked
from twinfold.model._twin import check_model
from twinfold.numerics import AbstractConstraint, violation_scale
from twinfold.train import Fit
from twinfold.train._prepare import batch_with_run_indices


@dataclasses.dataclass(frozen=True)
class Predictions:
    """What the twins of S seeds predict for R runs of at most T samples, beside what was measured.

    `relative` is the violation divided by max(|level|, ||dg/dx(x0)|| ||x0||); both are infinite where they are not
    finite. `result` says how each step ended. Samples past a run's `length` are padding.
    """

    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    ts: np.ndarray  # [R, T]
    y: np.ndarray  # [R, T, k]
    mask: np.ndarray  # [R, T, k]
    length: np.ndarray  # [R]
    predicted: np.ndarray  # [S, R, T, k]
    violation: np.ndarray  # [S, R, T, m]
    relative: np.ndarray  # [S, R, T, m]
    result: RESULTS  # [S, R, T]

    @property
    def real(self) -> np.ndarray:
        """[R, T]: which samples are not padding."""
        return np.arange(self.ts.shape[1]) < self.length[:, None]

    @property
    def failed_steps(self) -> np.ndarray:
        """[S, R, T]: which steps did not succeed or gave a value that is not finite."""
        finite = np.isfinite(self.predicted).all(-1)
        return self.real & (np.asarray(self.result != RESULTS.successful) | ~finite)

    def reason(self, seed: int, run: int) -> str:
        """Why the run at index `run` failed with the seed at index `seed`; empty where it did not."""
        failed = self.failed_steps[seed, run]
        if not failed.any():
            return ""
        first = int(failed.argmax())
        message = RESULTS[jax.tree.map(lambda codes: codes[seed, run, first], self.result)]
        return f"t = {self.ts[run, first]:.6g}: {message or 'The output is not finite.'}"

    def against(self, constraint: AbstractConstraint) -> "Predictions":
        """The same, with the violation of `constraint` by the outputs, taken as states, at the level of the first y.

        For models whose state is not what they predict, and for a constraint that the model was not told.
        """
        violation, relative = _violations(
            constraint, jnp.asarray(self.ts), jnp.asarray(self.y[:, 0]), jnp.asarray(self.predicted)
        )
        return dataclasses.replace(self, violation=_or_infinite(violation), relative=_or_infinite(relative))

    def until(self, duration: float) -> "Predictions":
        """Only the samples of each run's first `duration` units of time."""
        within = self.real & (self.ts - self.ts[:, :1] <= duration * (1 + 1e-9))
        length = within.sum(1)
        cut = slice(int(length.max()))
        return dataclasses.replace(
            self,
            length=length,
            mask=(self.mask & within[..., None])[:, cut],
            **{name: getattr(self, name)[:, cut] for name in ("ts", "y")},
            **{name: getattr(self, name)[:, :, cut] for name in ("predicted", "violation", "relative")},
            result=jax.tree.map(lambda codes: codes[:, :, cut], self.result),
        )


def predict(model: Twin | Fit, data: Dataset) -> Predictions:
    """Roll the twin, or those of all seeds of a fit side by side, along every run of the data.

    **Arguments:** `model`, a twin or a fit; `data`, the runs: initial state, inputs and times are taken from them.

    **Returns:** `Predictions`. Failures are in there as data; nothing is raised for them.
    """
    twins, seeds = _stacked(model)
    first = model.twin_of(0) if isinstance(model, Fit) else model
    batch = _checked(first, data)
    known = {name: np.asarray(getattr(batch, name)) for name in ("ts", "y", "mask", "length")}
    predicted, violation, relative, result = _simulate(twins, batch, len(seeds))
    return Predictions(
        seeds,
        data.names,
        **known,
        predicted=np.asarray(predicted),
        violation=_or_infinite(violation),
        relative=_or_infinite(relative),
        result=result,
    )


@eqx.filter_jit
def _violations(
    constraint: AbstractConstraint, ts: Float[Array, "R T"], y0: Array, xs: Float[Array, "S R T n"]
) -> tuple[Float[Array, "S R T m"], Float[Array, "S R T m"]]:
    def run(ts: Array, x0: Array, xs: Float[Array, "S T n"]) -> tuple[Array, Array]:
        level = constraint.level(ts[0], x0, {})
        scale = jnp.maximum(violation_scale(constraint, ts[0], x0, {}, level), jnp.finfo(xs.dtype).tiny)
        at = jax.vmap(lambda t, x: jnp.abs(constraint.residual(t, x, {}, level)))
        violation = jax.vmap(lambda one: at(ts, one))(xs)
        return violation, violation / scale

    return jax.vmap(run, in_axes=(0, 0, 1), out_axes=1)(ts, y0.astype(xs.dtype), xs)


def _or_infinite(values: Array) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.inf)


def _stacked(model: Twin | Fit) -> tuple[Twin, tuple[int, ...]]:
    """A twin whose arrays have a leading axis of seeds."""
    if not isinstance(model, Fit):
        return jax.tree.map(lambda leaf: leaf[None] if eqx.is_array(leaf) else leaf, model), (0,)
    arrays = model.map(lambda twin: eqx.filter(twin, eqx.is_array))
    return eqx.combine(arrays, eqx.filter(model.twin_of(0), eqx.is_array, inverse=True)), model.seeds


@eqx.filter_jit
def _simulate(twins: Twin, batch: Batch, seeds: int) -> tuple[Array, Array, Array, RESULTS]:
    def run(twin: Twin, row: Batch) -> tuple[Array, Array, Array, RESULTS]:
        p = twin.parameters(row.run)
        x0 = _initial(twin, row, p)
        simulation = simulate_unchecked(twin, x0, row.ts, row.w, p, None)
        trajectory = simulation.trajectory
        # A rollout holds its last finite state after it diverged, for the sake of training: no prediction.
        ended = jnp.cumsum(trajectory.result == RESULTS.nonfinite) > 0
        predicted = jnp.where(ended[:, None], jnp.nan, simulation.ys)
        return predicted, trajectory.violation, trajectory.relative_violation, trajectory.result

    # The number of seeds is given, since an exact twin has no array to take it from.
    each = eqx.filter_vmap(lambda twin: jax.vmap(lambda row: run(twin, row))(batch), axis_size=seeds)
    return each(twins)


def _initial(twin: Twin, row: Batch, p: Any) -> Float[Array, " n"]:
    return twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)


def _checked(twin: Twin, data: Dataset) -> Batch:
    """The runs as a batch whose run indices are the twin's, or a `ValueError` that says what does not fit."""
    batch = batch_with_run_indices(twin, data)
    row = jax.tree.map(lambda leaf: leaf[0], batch)
    p = twin.parameters(row.run)
    x0 = _initial(twin, row, p)
    if twin.initial is None and batch.x0 is None and not bool(jnp.all(jnp.isfinite(batch.origin_y))):
        raise ValueError(
            "data: the first sample of a run is not measured in full, so it cannot be the initial state. Give x0."
        )
    w = None if row.w is None else row.w[0]
    check_model(twin, row.ts[0], x0, w, p)
    outputs = jax.eval_shape(twin.outputs, row.ts[0], x0, w, p).shape[0]
    if outputs != batch.y.shape[-1]:
        raise ValueError(
            f"data: runs have {batch.y.shape[-1]} outputs, the twin observes {outputs}. Change `outputs`, or "
            "the twin's `observe`."
        )
    return batch
