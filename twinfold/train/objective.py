"""From an estimate and a batch to the residual vector r with loss = r'r."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold._types import Level, Parameters, Scalar, State
from twinfold.constraint.base import violation_scale
from twinfold.data.batch import Batch
from twinfold.field.learned import AbstractLearned, learned_parts, trainable
from twinfold.rollout import rollout
from twinfold.train.estimate import Estimate
from twinfold.train.loss import Loss
from twinfold.twin import Twin


class Setup(eqx.Module):
    """What a window starts with: its state, and the level and scale of its run's constraint."""

    x: State
    level: Level
    scale: Level


class Prediction(eqx.Module):
    """What the residuals are made of, for each window: features at its samples, first and last state."""

    features: Float[Array, "B T q"]  # outputs, then relative constraint and collocation residuals where penalised
    first: Float[Array, "B n"]
    last: Float[Array, "B n"]
    failed: Bool[Array, " B"]


class Objective(eqx.Module):
    """The least-squares problem of a loss: `sigma` are the units of the outputs, `rate` those of dx/dt.

    `recompute`: see `rollout`.
    """

    loss: Loss
    sigma: Float[Array, " k"]
    rate: Float[Array, " n"]
    recompute: bool = eqx.field(static=True, default=False)

    def setup(self, estimate: Estimate, row: Batch, window: Int[Array, ""]) -> Setup:
        """Start of one window (`row` is a batch without its leading axis)."""
        twin = estimate.twin
        p = twin.parameters(row.run)
        origin = twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)
        level = twin.constraint.level(row.origin_t, origin, p)
        scale = jax.lax.stop_gradient(violation_scale(twin.constraint, row.origin_t, origin, p, level))
        inside = row.y[0] if estimate.shooting is None else estimate.shooting.state(window)
        return Setup(jnp.where(row.begins, origin, inside) if inside.shape == origin.shape else origin, level, scale)

    def features(
        self, twin: Twin, t: Scalar, x: State, w: Any, p: Parameters, setup: Setup, z: Any = None
    ) -> Float[Array, " q"]:
        """The outputs at one sample and, where they are penalised, what they leave of the equations."""
        parts = [twin.outputs(t, x, w, p, z)]
        at, slope = jax.jvp(lambda t: twin.state(t, x, w, p), (t,), (jnp.ones_like(t),))
        if self.loss.soft > 0:
            parts.append(self._violation(twin, t, at, p, setup))
        if self.loss.collocation > 0:
            parts.append((slope - twin.cell.rate(t, at, w, p, setup.level)) / self.rate)
        return jnp.concatenate(parts)

    def _violation(self, twin: Twin, t: Scalar, x: State, p: Parameters, setup: Setup) -> Level:
        """The relative residual of the constraint; where g is not defined, a violation of one without a gradient."""
        defined = jnp.all(jnp.isfinite(twin.constraint.residual(t, jax.lax.stop_gradient(x), p, setup.level)))
        inside = jnp.where(defined, x, jax.lax.stop_gradient(setup.x))
        g = twin.constraint.residual(t, inside, p, setup.level)
        return jnp.where(defined, g / jnp.maximum(setup.scale, jnp.finfo(x.dtype).tiny), 1.0)

    def predict_window(
        self, estimate: Estimate, row: Batch, window: Int[Array, ""]
    ) -> tuple[Float[Array, "T q"], State, State, Bool[Array, ""]]:
        """One window, rolled out."""
        twin = estimate.twin
        p = twin.parameters(row.run)
        setup = self.setup(estimate, row, window)
        known = {"p": p, "level": setup.level}
        trajectory = rollout(twin.cell, setup.x, row.ts, row.w, **known, recompute=self.recompute, throw=False)
        at = (row.ts, trajectory.xs, row.w, trajectory.zs)
        features = jax.vmap(lambda t, x, w, z: self.features(twin, t, x, w, p, setup, z))(*at)
        return features, setup.x, trajectory.xs[row.length - 1], trajectory.failed

    def predict(self, estimate: Estimate, batch: Batch, windows: Int[Array, " B"]) -> Prediction:
        """All windows; `windows` are their indices in the whole training set."""
        out = jax.vmap(lambda row, window: self.predict_window(estimate, row, window))(batch, windows)
        return Prediction(*out)

    def residuals(self, estimate: Estimate, prediction: Prediction, batch: Batch) -> Float[Array, " N"]:
        """r, with the loss as its sum of squares. A failed trajectory counts with its value, without a gradient."""
        features, first, last = jax.tree.map(
            lambda leaf: _keep_gradient(~prediction.failed, leaf),
            (prediction.features, prediction.first, prediction.last),
        )
        predicted, constraint, collocation = self.split(features, batch)
        measured = jnp.maximum(jnp.sum(batch.mask), 1)
        error = (predicted - batch.y) / self.sigma
        parts = [jnp.where(batch.mask, self.loss.robust(error), 0) / jnp.sqrt(measured)]
        parts.extend(self._equations(constraint, collocation, batch))
        if estimate.shooting is not None:
            joined = batch.follows >= 0
            gap = (last[batch.follows] - first) / estimate.shooting.size.value
            weight = self.loss.continuity / jnp.maximum(jnp.sum(joined) * first.shape[-1], 1)
            parts.append(jnp.where(joined[:, None], jnp.sqrt(weight) * gap, 0))
        if self.loss.l2 > 0:
            parts.extend(jnp.sqrt(self.loss.l2) * leaf for leaf in _network_weights(estimate.twin))
        if self.loss.prior > 0:
            weight = jnp.sqrt(self.loss.prior / jnp.sum(batch.begins))
            for unknown in estimate.twin.unknowns():
                if unknown.spread is not None:
                    parts.append(weight * unknown.raw / unknown.spread)
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def split(self, features: Float[Array, "B T q"], batch: Batch) -> list[Array]:
        """Features as outputs, constraint residuals and collocation residuals; what is not penalised has no columns."""
        outputs = batch.y.shape[-1]
        slopes = self.rate.shape[0] if self.loss.collocation > 0 else 0
        return jnp.split(features, [outputs, features.shape[-1] - slopes], axis=-1)

    def _equations(
        self, constraint: Float[Array, "B T m"], collocation: Float[Array, "B T k"], batch: Batch
    ) -> list[Array]:
        """Weighted residuals of the soft constraint and of collocation."""
        real = (jnp.arange(batch.ts.shape[1]) < batch.length[:, None])[..., None]
        if batch.shift is not None:
            constraint = constraint + batch.shift
        weighted = ((self.loss.soft, constraint), (self.loss.collocation, collocation))
        return [
            jnp.where(real, jnp.sqrt(weight / (jnp.sum(real) * each.shape[-1])) * each, 0)
            for weight, each in weighted
            if weight > 0
        ]

    def __call__(
        self, estimate: Estimate, batch: Batch, windows: Int[Array, " B"]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The loss and what else is worth knowing of the batch."""
        prediction = self.predict(estimate, batch, windows)
        residuals = self.residuals(estimate, prediction, batch)
        return jnp.sum(residuals**2), {"failed": jnp.sum(prediction.failed)}


def _keep_gradient(keep: Bool[Array, " B"], values: Float[Array, "B ..."]) -> Float[Array, "B ..."]:
    keep = keep.reshape(keep.shape + (1,) * (values.ndim - 1))
    return jnp.where(keep, values, jax.lax.stop_gradient(values))


def _network_weights(twin: Twin) -> list[Array]:
    parts: list[AbstractLearned] = learned_parts(twin)
    return [leaf for part in parts for leaf in jax.tree.leaves(eqx.filter(part, trainable(part)))]
