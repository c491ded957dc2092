"""From an estimate and a batch to the residual vector r with loss = r'r, and its Jacobian."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from twinfold.data import Batch
from twinfold.model import Twin
from twinfold.model._learned.base import learned_parts, trainable
from twinfold.train._estimate import Estimate
from twinfold.train._loss import Loss
from twinfold.train._window import Prediction, Rebuild, Vector, WindowStart, predict_window
from twinfold.typing import ConstraintVector, Parameters, Scalar, State


class Objective(eqx.Module):
    """The least-squares problem of a loss: `sigma` are the units of the outputs, `rate` those of dx/dt.

    `remat`: see `rollout`.
    """

    loss: Loss
    sigma: Float[Array, " k"]
    rate: Float[Array, " n"]
    remat: bool = eqx.field(static=True, default=False)

    def __call__(
        self, estimate: Estimate, batch: Batch, windows: Int[Array, " B"]
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The loss, and the number of failed trajectories."""
        residuals, failed = self.residuals(estimate, batch, windows)
        return jnp.sum(residuals**2), {"failed": failed}

    def residuals(
        self, estimate: Estimate, batch: Batch, windows: Int[Array, " B"]
    ) -> tuple[Float[Array, " N"], Int[Array, ""]]:
        """r, and the number of windows that failed; `windows` are their indices in the whole training set."""
        prediction = self.predict(lambda estimate: estimate, estimate, batch, windows)
        parts = (prediction.features.value, prediction.first.value, prediction.last.value)
        return self._residuals(estimate, parts, prediction.failed, batch), jnp.sum(prediction.failed)

    def residuals_and_jacobian(
        self, rebuild: Rebuild, v: Vector, batch: Batch, windows: Int[Array, " B"]
    ) -> tuple[Float[Array, " N"], Float[Array, "N P"], Int[Array, ""]]:
        """r and dr/dv at the estimate `rebuild(v)`, and the number of windows that failed."""
        prediction = self.predict(rebuild, v, batch, windows, slopes=True)
        tracked = (prediction.features, prediction.first, prediction.last)

        def residuals(parts: tuple, v: Vector) -> Float[Array, " N"]:
            return self._residuals(rebuild(v), parts, prediction.failed, batch)

        # Given the prediction, a residual depends on few of its values: pushing all columns forward is cheap.
        value, push = jax.linearize(residuals, tuple(each.value for each in tracked), v)
        columns = jnp.eye(v.shape[0], dtype=v.dtype)
        slopes = tuple(each.slope for each in tracked)
        jacobian = jax.vmap(push, in_axes=((-1, -1, -1), 1), out_axes=1)(slopes, columns)
        return value, jacobian, jnp.sum(prediction.failed)

    def predict(
        self, rebuild: Rebuild, v: Any, batch: Batch, windows: Int[Array, " B"], *, slopes: bool = False
    ) -> Prediction:
        """All windows at the estimate `rebuild(v)`."""
        return jax.vmap(lambda row, window: predict_window(self, rebuild, v, row, window, slopes=slopes))(
            batch, windows
        )

    def features(
        self, twin: Twin, t: Scalar, x: State, w: Any, p: Parameters, start: WindowStart, z: Any = None
    ) -> Float[Array, " q"]:
        """The outputs at one sample and, where they are penalised, the residuals of constraint and field."""
        parts = [twin.outputs(t, x, w, p, z)]
        at, slope = jax.jvp(lambda t: twin.state(t, x, w, p), (t,), (jnp.ones_like(t),))
        if self.loss.constraint_penalty > 0:
            parts.append(self._violation(twin, t, at, p, start))
        if self.loss.collocation > 0:
            parts.append((slope - twin.cell.rate(t, at, w, p, start.level)) / self.rate)
        return jnp.concatenate(parts)

    def _violation(self, twin: Twin, t: Scalar, x: State, p: Parameters, start: WindowStart) -> ConstraintVector:
        """The relative residual of the constraint; where g is not defined, a violation of one without a gradient."""
        defined = jnp.all(jnp.isfinite(twin.constraint.residual(t, jax.lax.stop_gradient(x), p, start.level)))
        inside = jnp.where(defined, x, jax.lax.stop_gradient(start.x))
        g = twin.constraint.residual(t, inside, p, start.level)
        return jnp.where(defined, g / jnp.maximum(start.scale, jnp.finfo(x.dtype).tiny), 1.0)

    def _residuals(
        self, estimate: Estimate, parts: tuple[Array, Array, Array], failed: Bool[Array, " B"], batch: Batch
    ) -> Float[Array, " N"]:
        """r from features, first and last states. A failed trajectory counts with its value, without a gradient.

        A value that was not measured has a residual of zero.
        """
        features, first, last = (_keep_gradient(~failed, part) for part in parts)
        predicted, constraint, collocation = self.split(features, batch)
        measured = jnp.maximum(jnp.sum(batch.mask), 1)
        error = (predicted - batch.y) / self.sigma
        found = [jnp.where(batch.mask, self.loss.robust(error), 0) / jnp.sqrt(measured)]
        found.extend(self._equations(constraint, collocation, batch))
        if estimate.shooting is not None:
            joined = batch.previous_window >= 0
            gap = (last[batch.previous_window] - first) / estimate.shooting.size.value
            weight = self.loss.continuity / jnp.maximum(jnp.sum(joined) * first.shape[-1], 1)
            found.append(jnp.where(joined[:, None], jnp.sqrt(weight) * gap, 0))
        if self.loss.l2 > 0:
            found.extend(jnp.sqrt(self.loss.l2) * leaf for leaf in _network_weights(estimate.twin))
        if self.loss.prior > 0:
            weight = jnp.sqrt(self.loss.prior / jnp.sum(batch.is_run_start))
            for unknown in estimate.twin.unknowns():
                if unknown.spread is not None:
                    found.append(weight * unknown.raw / unknown.spread)
        return jnp.concatenate([part.reshape(-1) for part in found])

    def split(self, features: Float[Array, "B T q"], batch: Batch) -> list[Array]:
        """Features as outputs, constraint residuals and collocation residuals; a penalty that is off has no columns."""
        outputs = batch.y.shape[-1]
        slopes = self.rate.shape[0] if self.loss.collocation > 0 else 0
        return jnp.split(features, [outputs, features.shape[-1] - slopes], axis=-1)

    def _equations(
        self, constraint: Float[Array, "B T m"], collocation: Float[Array, "B T k"], batch: Batch
    ) -> list[Array]:
        """Weighted residuals of the constraint penalty and of collocation."""
        real = (jnp.arange(batch.ts.shape[1]) < batch.length[:, None])[..., None]
        if batch.shift is not None:
            constraint = constraint + batch.shift
        weighted = ((self.loss.constraint_penalty, constraint), (self.loss.collocation, collocation))
        return [
            jnp.where(real, jnp.sqrt(weight / (jnp.sum(real) * each.shape[-1])) * each, 0)
            for weight, each in weighted
            if weight > 0
        ]


def _keep_gradient(keep: Bool[Array, " B"], values: Float[Array, "B ..."]) -> Float[Array, "B ..."]:
    keep = keep.reshape(keep.shape + (1,) * (values.ndim - 1))
    return jnp.where(keep, values, jax.lax.stop_gradient(values))


def _network_weights(twin: Twin) -> list[Array]:
    return [leaf for part in learned_parts(twin) for leaf in jax.tree.leaves(eqx.filter(part, trainable(part)))]
