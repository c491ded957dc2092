"""The least-squares problem of a fit: residuals r with loss = r'r, and their Jacobian in all parameters."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from twinfold.data import Batch
from twinfold.data._warmup import Newcomers
from twinfold.model import Twin
from twinfold.model._learned.base import learned_parts, trainable
from twinfold.numerics import NoProjection, ProjectionResult
from twinfold.train._estimate import Estimate
from twinfold.train._evidence import Weights, whitened
from twinfold.train._loss import Loss
from twinfold.train._window import Prediction, WindowStart, predict_window
from twinfold.typing import ConstraintVector, Parameters, Scalar, State


class Evaluation(eqx.Module):
    """What is known of parameters beside their loss: what the best ones are chosen by, and, if these are recorded, the
    projections of all steps on the training windows."""

    score: Float[Array, ""]
    projected: ProjectionResult | None = None


class TrainingProblem(eqx.Module):
    """What all seeds share: the terms of the loss, the data, and all of the estimate that is not trained.

    `sigma` are the units of the outputs, `rate` those of dx/dt; for `remat` see `rollout`. `projected`: whether the
    twin's own projection follows every step, or none does.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    _, (problem,), _ = tw.train.prepare(twin, data, methods=(tw.LevenbergMarquardt(5),))
    problem.batch.size  # 1
    ```
    """

    terms: Loss
    sigma: Float[Array, " k"]
    rate: Float[Array, " n"]
    batch: Batch
    valid: Batch | None
    frozen: Estimate
    remat: bool = eqx.field(static=True, default=False)
    projected: bool = eqx.field(static=True, default=True)
    newcomers: Newcomers | None = None  # validation runs whose initial states are estimated
    drawn: list[Array] | None = None  # the network weights that a seed began with, which l2 keeps them near
    estimated: tuple[str, ...] = eqx.field(static=True, default=())  # weights of the loss, see `_evidence.py`

    @property
    def windows(self) -> Int[Array, " B"]:
        """The indices of all training windows."""
        return jnp.arange(self.batch.size)

    @property
    def weights(self) -> Weights:
        """The weights of the loss that may be estimated, as they are at present."""
        dtype, outputs = self.batch.y.dtype, self.batch.y.shape[-1]
        correlation = jnp.broadcast_to(jnp.asarray(self.terms.correlation, dtype), (outputs,))
        return Weights(jnp.asarray(self.terms.l2, dtype), correlation)

    def with_weights(self, weights: Weights) -> "TrainingProblem":
        """The problem with those of these weights that it estimates."""
        terms = replace(self.terms, **{name: getattr(weights, name) for name in self.estimated})
        return replace(self, terms=terms)

    def changes(self, params: PyTree) -> list[Array]:
        """By how much each weight of the networks has changed since it was drawn."""
        return self._changes(self.estimate(params).twin)

    def _changes(self, twin: Twin) -> list[Array]:
        now = network_weights(twin)
        return now if self.drawn is None else [a - b for a, b in zip(now, self.drawn, strict=True)]

    def estimate(self, params: PyTree) -> Estimate:
        """The estimate with these trained arrays."""
        estimate = eqx.combine(params, self.frozen)
        if self.projected:
            return estimate
        return eqx.tree_at(lambda estimate: estimate.twin.cell.projection, estimate, NoProjection())

    def loss(self, params: PyTree, batch: Batch, windows: Array) -> tuple[Float[Array, ""], dict]:
        """The loss on a batch of training windows, and the number of failed trajectories."""
        residuals, failed = self.residuals(self.estimate(params), batch, windows)
        return jnp.sum(residuals**2), {"failed": failed}

    @eqx.filter_jit
    def evaluate(self, params: PyTree) -> tuple[Float[Array, ""], "Evaluation"]:
        """The loss on all training windows, and what else is known of these parameters.

        Where validation runs are no longer than the training windows, all of them are unrolled together: a projection
        is then compiled once, not twice.
        """
        estimate, count = self.estimate(params), self.batch.size
        together = self._rows_together()
        rows, windows = (self.batch, self.windows) if together is None else together
        found = jax.vmap(lambda row, window: predict_window(self, estimate, row, window))(rows, windows)
        failed = found.failed
        loss = jnp.sum(self._combined(estimate, found.values(slice(count)), failed[:count], self.batch) ** 2)
        if self.valid is None:
            score = loss
        elif together is None:
            score = self.score(params)
        else:
            features, first, last = found.values(slice(count, None))
            parts, whole_runs = (features[:, : self.valid.ts.shape[1]], first, last), Estimate(estimate.twin, None)
            score = jnp.sum(self._judge._combined(whole_runs, parts, failed[count:], self.valid) ** 2)
        return loss, Evaluation(score, jax.tree.map(lambda leaf: leaf[:count], found.projected))

    def _rows_together(self) -> tuple[Batch, Array] | None:
        """Training windows and validation runs as one batch, with their indices, if their shapes allow it."""
        if self.valid is None or self.newcomers is not None or self.valid.ts.shape[1] > self.batch.ts.shape[1]:
            return None
        batch, valid = replace(self.batch, shift=None), self.valid.padded(self.batch.ts.shape[1])
        rows = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), batch, valid)
        return rows, jnp.concatenate([self.windows, jnp.zeros(valid.size, self.windows.dtype)])  # whole runs have none

    def training_loss(self, params: PyTree) -> Float[Array, ""]:
        """The loss on all training windows."""
        return self.loss(params, self.batch, self.windows)[0]

    def score(self, params: PyTree) -> Float[Array, ""]:
        """What the best parameters are chosen by: the loss on whole validation runs, or the training loss."""
        if self.valid is None:
            return self.training_loss(params)
        twin = self.estimate(params).twin
        whole_runs = Estimate(twin if self.newcomers is None else self.newcomers.adapt(twin), None)
        return jnp.sum(self._judge.residuals(whole_runs, self.valid, jnp.arange(self.valid.size))[0] ** 2)

    @property
    def _judge(self) -> "TrainingProblem":
        """The problem with the loss by which validation runs judge."""
        return replace(self, terms=self.terms.unweighted())

    def residuals(
        self, estimate: Estimate, batch: Batch, windows: Int[Array, " B"], known: ProjectionResult | None = None
    ) -> tuple[Float[Array, " N"], Int[Array, ""]]:
        """r, and the number of windows that failed; `windows` are their indices in the whole training set."""

        def predict(row: Batch, window: Array, known: ProjectionResult | None) -> Prediction:
            return predict_window(self, estimate, row, window, known=known)

        found = jax.vmap(predict)(batch, windows, known)
        return self._combined(estimate, found.values(slice(None)), found.failed, batch), jnp.sum(found.failed)

    def residuals_and_jacobian(
        self, params: PyTree, known: ProjectionResult | None = None
    ) -> tuple[Float[Array, " N"], Float[Array, "N P"], Int[Array, ""]]:
        """r and dr/dv on all training windows, v being all of `params` as one vector; the number of failed windows.

        `known`: the projections of all steps, if these parameters have been evaluated before.
        """
        v, unravel = ravel_pytree(params)

        def rebuild(v: Float[Array, " P"]) -> Estimate:
            return self.estimate(unravel(v))

        def predict(row: Batch, window: Array, known: ProjectionResult | None) -> Prediction:
            return predict_window(self, v, row, window, rebuild, known)

        found = jax.vmap(predict)(self.batch, self.windows, known)
        tracked = (found.features, found.first, found.last)

        def residuals(parts: tuple, v: Float[Array, " P"]) -> Float[Array, " N"]:
            return self._combined(rebuild(v), parts, found.failed, self.batch)

        # Given the prediction, a residual depends on few of its values: pushing all columns forward is cheap.
        value, push = jax.linearize(residuals, tuple(each.value for each in tracked), v)
        columns = jnp.eye(v.shape[0], dtype=v.dtype)
        slopes = tuple(each.slope for each in tracked)
        jacobian = jax.vmap(push, in_axes=((-1, -1, -1), 1), out_axes=1)(slopes, columns)
        return value, jacobian, jnp.sum(found.failed)

    def constraint_residuals(self, params: PyTree) -> Float[Array, "B T m"]:
        """The relative residual of the penalised constraint at each training sample; zero where a trajectory failed."""
        estimate = self.estimate(params)
        found = jax.vmap(lambda row, window: predict_window(self, estimate, row, window))(self.batch, self.windows)
        residual = self._split(found.features.value, self.batch)[1]
        return jnp.where(jnp.isfinite(residual) & ~found.failed[:, None, None], residual, 0)

    def features(
        self, twin: Twin, t: Scalar, x: State, w: Any, p: Parameters, start: WindowStart, z: Any = None
    ) -> Float[Array, " q"]:
        """The outputs at one sample and, where they are penalised, the residuals of constraint and field."""
        parts = [twin.outputs(t, x, w, p, z)]
        at, slope = jax.jvp(lambda t: twin.state(t, x, w, p), (t,), (jnp.ones_like(t),))
        if self.terms.constraint_penalty > 0:
            parts.append(self._violation(twin, t, at, p, start))
        if self.terms.collocation > 0:
            parts.append((slope - twin.cell.rate(t, at, w, p, start.level)) / self.rate)
        return jnp.concatenate(parts)

    def _violation(self, twin: Twin, t: Scalar, x: State, p: Parameters, start: WindowStart) -> ConstraintVector:
        """The relative residual of the constraint; where g is not defined, a violation of one without a gradient."""
        defined = jnp.all(jnp.isfinite(twin.constraint.residual(t, jax.lax.stop_gradient(x), p, start.level)))
        inside = jnp.where(defined, x, jax.lax.stop_gradient(start.x))
        g = twin.constraint.residual(t, inside, p, start.level)
        return jnp.where(defined, g / jnp.maximum(start.scale, jnp.finfo(x.dtype).tiny), 1.0)

    def _combined(
        self, estimate: Estimate, parts: tuple[Array, Array, Array], failed: Bool[Array, " B"], batch: Batch
    ) -> Float[Array, " N"]:
        """r from features, first and last states. A failed trajectory counts with its value, without a gradient.

        A value that was not measured has a residual of zero.
        """
        features, first, last = (_keep_gradient(~failed, part) for part in parts)
        predicted, constraint, collocation = self._split(features, batch)
        measured = jnp.maximum(jnp.sum(batch.mask), 1).astype(batch.y.dtype)
        error = (predicted - batch.y) / self.sigma[None, None]
        error = jnp.where(batch.mask, self.terms.robust(error), 0)
        if _is_on(self.terms.correlation):
            error = whitened(error, batch.mask, self.weights.correlation)
        found = [error / jnp.sqrt(measured)]
        found.extend(self._equations(constraint, collocation, batch))
        if estimate.shooting is not None:
            joined = batch.previous_window >= 0
            gap = (last[batch.previous_window] - first) / estimate.shooting.size.value[None]
            weight = self.terms.continuity / jnp.maximum(jnp.sum(joined) * first.shape[-1], 1).astype(first.dtype)
            found.append(jnp.where(joined[:, None], jnp.sqrt(weight) * gap, 0))
        if _is_on(self.terms.l2):
            found.extend(jnp.sqrt(self.weights.l2) * change for change in self._changes(estimate.twin))
        if _is_on(self.terms.prior):
            weight = jnp.sqrt(self.terms.prior / jnp.sum(batch.is_run_start).astype(batch.y.dtype))
            for unknown in estimate.twin.unknowns():
                if unknown.spread is not None:
                    found.append(weight * unknown.raw / unknown.spread)
        return jnp.concatenate([part.reshape(-1) for part in found])

    def _split(self, features: Float[Array, "B T q"], batch: Batch) -> list[Array]:
        """Features as outputs, constraint residuals and collocation residuals; a penalty that is off has no columns."""
        outputs = batch.y.shape[-1]
        slopes = self.rate.shape[0] if self.terms.collocation > 0 else 0
        return jnp.split(features, [outputs, features.shape[-1] - slopes], axis=-1)

    def _equations(
        self, constraint: Float[Array, "B T m"], collocation: Float[Array, "B T k"], batch: Batch
    ) -> list[Array]:
        """Weighted residuals of the constraint penalty and of collocation."""
        real = (jnp.arange(batch.ts.shape[1], dtype=batch.length.dtype)[None] < batch.length[:, None])[..., None]
        if batch.shift is not None:
            constraint = constraint + batch.shift
        weighted = ((self.terms.constraint_penalty, constraint), (self.terms.collocation, collocation))
        return [
            jnp.where(real, jnp.sqrt(weight / (jnp.sum(real) * each.shape[-1]).astype(each.dtype)) * each, 0)
            for weight, each in weighted
            if weight > 0
        ]


def _is_on(weight: float | str | Array) -> bool:
    """Whether a term takes part; see `Loss.traced`."""
    return not isinstance(weight, float | int) or weight > 0


def _keep_gradient(keep: Bool[Array, " B"], values: Float[Array, "B ..."]) -> Float[Array, "B ..."]:
    keep = keep.reshape(keep.shape + (1,) * (values.ndim - 1))
    return jnp.where(keep, values, jax.lax.stop_gradient(values))


def network_weights(twin: Twin) -> list[Array]:
    """All weights of the learned parts."""
    return [leaf for part in learned_parts(twin) for leaf in jax.tree.leaves(eqx.filter(part, trainable(part)))]
