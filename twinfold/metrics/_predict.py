"""Predictions: every run simulated from its initial state, beside the measurements; the input of all metrics."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import RESULTS, outcome_codes, quick_jit, tree_take
from twinfold.data import Batch, Dataset
from twinfold.data._rows import check_rows, rows_of, simulate_row
from twinfold.data._warmup import Newcomers
from twinfold.model import Twin
from twinfold.model._learned.outside import extrapolates
from twinfold.numerics import AbstractConstraint, violation_scale
from twinfold.train import Fit

BY_SEED = ("predicted", "violation", "relative_violation", "extrapolated")  # arrays [S, R, T, ...]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Predictions of S seeds for R runs of at most T samples, beside the measurements; returned by `predict`.

    `relative_violation` is the violation divided by max(|level|, ||dg/dx(x0)|| ||x0||); both are infinite where they
    are not finite. `result` is the outcome of each step. Samples beyond the `length` of a run are padding. `warmup` is
    the number of samples from which the initial state of each run was estimated; `mask` is False there, since they
    were seen. `extrapolated` says where a learned part is outside of the region of its training data.

    **Example:**

    ```python
    ts = np.linspace(0.0, 2.0, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)], names=["a"])
    predictions = tw.predict(tw.Twin(lambda x: -x), data)
    predictions.predicted.shape  # (1, 1, 21, 1): seeds, runs, samples, outputs
    predictions.until(1.0).length  # [11]
    ```
    """

    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    ts: np.ndarray  # [R, T]
    y: np.ndarray  # [R, T, k]
    mask: np.ndarray  # [R, T, k]
    length: np.ndarray  # [R]
    predicted: np.ndarray  # [S, R, T, k]
    violation: np.ndarray  # [S, R, T, m]
    relative_violation: np.ndarray  # [S, R, T, m]
    result: RESULTS  # [S, R, T]
    warmup: np.ndarray  # [R]
    extrapolated: np.ndarray  # [S, R, T]

    @property
    def is_sample(self) -> np.ndarray:
        """[R, T]: False in the padding."""
        return np.arange(self.ts.shape[1]) < self.length[:, None]

    @property
    def failed_steps(self) -> np.ndarray:
        """[S, R, T]: the steps that did not succeed or whose prediction is not finite."""
        finite = np.isfinite(self.predicted).all(-1)
        return self.is_sample & ((np.asarray(outcome_codes(self.result)) != 0) | ~finite)

    def reason(self, seed: int, run: int) -> str:
        """Why the run at index `run` failed with the seed at index `seed`; empty if it did not."""
        failed = self.failed_steps[seed, run]
        if not failed.any():
            return ""
        first = int(failed.argmax())
        message = RESULTS[jax.tree.map(lambda codes: codes[seed, run, first], self.result)]
        return f"t = {self.ts[run, first]:.6g}: {message or 'The output is not finite.'}"

    def against(self, constraint: AbstractConstraint) -> "Predictions":
        """The predictions with the violation of `constraint` by the outputs, taken as states.

        The level of the constraint is that of the first y. For models whose state is not their output, and for a
        constraint that the model does not have.

        Where a prediction x is larger than every measured y of its run, as after an escape, the violation is divided by
        ||dg/dx(x)|| ||x|| if that is more: rounding x alone changes g by this times the precision.
        """
        ts, y0, predicted = jnp.asarray(self.ts), jnp.asarray(self.y[:, 0]), jnp.asarray(self.predicted)
        largest = jnp.asarray(np.linalg.norm(np.where(self.mask, self.y, 0.0), axis=-1).max(axis=-1))
        violation, relative = _violations(constraint, ts, y0, largest, predicted)
        return dataclasses.replace(
            self, violation=_finite_or_inf(violation), relative_violation=_finite_or_inf(relative)
        )

    def select(self, rows: slice) -> "Predictions":
        """The predictions of these runs, as long as the longest of them."""
        length = self.length[rows]
        cut = slice(int(length.max()))
        by_run = {name: getattr(self, name)[rows, cut] for name in ("ts", "y", "mask")}
        by_seed = {name: getattr(self, name)[:, rows, cut] for name in BY_SEED}
        result = tree_take(self.result, (slice(None), rows, cut))
        return dataclasses.replace(
            self, runs=self.runs[rows], length=length, warmup=self.warmup[rows], result=result, **by_run, **by_seed
        )

    def until(self, duration: float) -> "Predictions":
        """The predictions of the first `duration` units of time of each run."""
        within = self.is_sample & (self.ts - self.ts[:, :1] <= duration * (1 + 1e-9))
        length = within.sum(1)
        cut = slice(int(length.max()))
        return dataclasses.replace(
            self,
            length=length,
            mask=(self.mask & within[..., None])[:, cut],
            **{name: getattr(self, name)[:, cut] for name in ("ts", "y")},
            **{name: getattr(self, name)[:, :, cut] for name in BY_SEED},
            result=jax.tree.map(lambda codes: codes[:, :, cut], self.result),
        )


def predict(model: Twin | Fit, data: Dataset) -> Predictions:
    """Simulate every run of the data with a twin, or with the twins of all seeds of a fit.

    **Arguments:** `model`, a twin or a fit; `data`, the runs, from which initial states, inputs and times are taken.

    **Returns:** `Predictions`. A failed step is reported in `Predictions.result`; it raises no error.

    **Raises:** `ValueError` if the twin and the data do not match.

    **Example:**

    ```python
    ts = np.linspace(0.0, 2.0, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)])
    tw.predict(tw.Twin(lambda x: -x), data).predicted[0, 0, -1]  # [0.13533553]
    ```
    """
    fitted = isinstance(model, Fit)
    twin = model.twin_of(0) if fitted else model
    rows = rows_of(twin, data)
    check_rows(twin, rows, data)
    seeds = model.seeds if fitted else (0,)
    twins, batch = _stacked(model) if fitted else twin, rows.batch
    predicted, violation, relative, result, extrapolated = _simulate(twins, batch, rows.newcomers, fitted)
    return Predictions(
        seeds,
        data.names,
        **{name: np.asarray(getattr(batch, name)) for name in ("ts", "y", "length")},
        mask=np.asarray(rows.unseen.mask),
        warmup=rows.warmup,
        predicted=np.asarray(predicted),
        violation=_finite_or_inf(violation),
        relative_violation=_finite_or_inf(relative),
        result=result,
        extrapolated=np.asarray(extrapolated) & (np.arange(batch.ts.shape[1]) < np.asarray(batch.length)[:, None]),
    )


@quick_jit
def _violations(
    constraint: AbstractConstraint,
    ts: Float[Array, "R T"],
    y0: Array,
    largest: Float[Array, " R"],
    xs: Float[Array, "S R T n"],
) -> tuple[Float[Array, "S R T m"], Float[Array, "S R T m"]]:
    def run(inputs: tuple[Array, Array, Array, Float[Array, "S T n"]]) -> tuple[Array, Array]:
        ts, x0, largest, xs = inputs
        level = constraint.level(ts[0], x0, {})
        scale = jnp.maximum(violation_scale(constraint, ts[0], x0, {}, level), jnp.finfo(xs.dtype).tiny)

        def at(t: Array, x: Array) -> tuple[Array, Array]:
            violation = jnp.abs(constraint.residual(t, x, {}, level))
            own = violation_scale(constraint, t, x, {}, level)
            escaped = (jnp.linalg.norm(x) > largest) & jnp.isfinite(own)
            return violation, violation / jnp.where(escaped, jnp.maximum(own, scale), scale)

        return jax.vmap(lambda one: jax.vmap(at)(ts, one))(xs)

    # One run at a time: a derivative for each sample of all of them together would not fit into memory.
    violation, relative = jax.lax.map(run, (ts, y0.astype(xs.dtype), largest, jnp.moveaxis(xs, 1, 0)))
    return jnp.moveaxis(violation, 0, 1), jnp.moveaxis(relative, 0, 1)


def _finite_or_inf(values: Array) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.inf)


def _stacked(fit: Fit) -> Twin:
    """A twin whose arrays have a leading axis of seeds."""
    arrays = fit.map(lambda twin: eqx.filter(twin, eqx.is_array))
    return eqx.combine(arrays, eqx.filter(fit.twin_of(0), eqx.is_array, inverse=True))


@quick_jit
def _simulate(
    twins: Twin, batch: Batch, newcomers: Newcomers | None, stacked: bool
) -> tuple[Array, Array, Array, RESULTS, Array]:
    """The predictions of a stack of twins, or of one twin, in either case with a leading axis of seeds."""

    def run(twin: Twin, row: Batch) -> tuple[Array, Array, Array, RESULTS, Array]:
        p = twin.parameters(row.run)
        simulation = simulate_row(twin, row, p)
        trajectory = simulation.trajectory

        def outside(t: Array, x: Array, w: Array | None) -> Array:
            return extrapolates(twin, t, twin.state(t, x, w, p), w)

        extrapolated = jax.vmap(outside)(row.ts, trajectory.xs, row.w)
        violations = trajectory.violation, trajectory.relative_violation
        return simulation.valid_ys, *violations, trajectory.result, extrapolated

    def runs(twin: Twin) -> tuple[Array, Array, Array, RESULTS, Array]:
        twin = twin if newcomers is None else newcomers.adapt(twin)
        return jax.vmap(lambda row: run(twin, row))(batch)

    return eqx.filter_vmap(runs)(twins) if stacked else jax.tree.map(lambda leaf: leaf[None], runs(twins))
