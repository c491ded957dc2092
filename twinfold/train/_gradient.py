"""First-order training through time: any Optax optimiser; Adam with reduce-on-plateau as in the paper."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray, PyTree

from twinfold._core import tree_where
from twinfold.train._method import AbstractMethod, EpochReport, zeros_unless
from twinfold.train._problem import Evaluation, TrainingProblem
from twinfold.typing import Flag


class Gradient(AbstractMethod):
    """Minibatch descent with an Optax transformation.

    **Arguments:** `optimiser`; `epochs`; `batch_size` in windows (all at once when left out); `patience`, epochs
    without a better score after which a seed stops; `plateau`: (factor, patience) by which the step shrinks when
    the epoch's loss stagnates; `window`, samples per training window in this stage.

    **Example:**

    ```python
    import optax

    tw.Gradient(optax.sgd(1e-2, momentum=0.9), epochs=100, batch_size=8)
    ```
    """

    optimiser: optax.GradientTransformation
    epochs: int = eqx.field(static=True, default=500)
    batch_size: int | None = eqx.field(static=True, default=None)
    patience: int | None = eqx.field(static=True, default=None)
    plateau: tuple[float, int] | None = eqx.field(static=True, default=None)
    window: int | None = eqx.field(static=True, default=None)
    name: str = eqx.field(static=True, default="gradient")

    def __check_init__(self):
        if self.epochs < 0:
            raise ValueError(f"epochs={self.epochs}: cannot be negative.")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: a batch has at least one window.")

    def init(self, problem: TrainingProblem, params: PyTree) -> Any:
        return self.optimiser.init(params), Plateau.init(params)

    def unevaluated(self, problem: TrainingProblem, params: PyTree) -> Evaluation:
        return Evaluation(jnp.zeros((), problem.batch.y.dtype))

    def epoch(
        self, problem: TrainingProblem, params: PyTree, state: Any, key: PRNGKeyArray, trains: Flag, before: Evaluation
    ) -> tuple[PyTree, Any, EpochReport, Evaluation]:
        *moved, report = zeros_unless(trains, partial(self._descend, problem, key), params, state)
        params, state = tree_where(trains, tuple(moved), (params, state))
        return params, state, report, Evaluation(problem.score(params))

    def _descend(
        self, problem: TrainingProblem, key: PRNGKeyArray, params: PyTree, state: Any
    ) -> tuple[PyTree, Any, EpochReport]:
        windows = problem.batch.size
        size = min(self.batch_size or windows, windows)
        order = jnp.arange(windows)
        if size < windows:
            order = jax.random.permutation(key, windows)
        # Windows that do not fill a batch sit this epoch out; the order is drawn anew in the next.
        batches = order[: windows // size * size].reshape(-1, size)
        optimiser_state, plateau = state

        def update(carry: tuple, chosen: Any) -> tuple:
            params, optimiser_state = carry
            batch = problem.batch
            if size < windows:
                batch = jax.tree.map(lambda leaf: leaf[chosen], batch)
            (loss, metrics), gradient = jax.value_and_grad(problem.loss, has_aux=True)(params, batch, chosen)
            with jax.numpy_dtype_promotion("standard"):  # on which Optax relies, for the count of its steps
                updates, optimiser_state = self.optimiser.update(gradient, optimiser_state, params)
            updates = jax.tree.map(lambda update: plateau.scale * update, updates)
            return (optax.apply_updates(params, updates), optimiser_state), (loss, metrics["failed"])

        (params, optimiser_state), (losses, failed) = jax.lax.scan(update, (params, optimiser_state), batches)
        loss = jnp.mean(losses)
        report = EpochReport(loss, plateau.scale, jnp.sum(failed), jnp.array(False))
        if self.plateau is not None:
            plateau = plateau.after(loss, *self.plateau)
        return params, (optimiser_state, plateau), report


class Plateau(eqx.Module):
    """ReduceLROnPlateau: the scale shrinks by `factor` after `patience` epochs without a relative gain of 1e-4."""

    scale: jax.Array
    best: jax.Array
    waited: jax.Array

    @staticmethod
    def init(params: PyTree) -> "Plateau":
        dtype = jax.tree.leaves(params)[0].dtype
        return Plateau(jnp.ones((), dtype), jnp.array(jnp.inf, dtype), jnp.array(0))

    def after(self, loss: jax.Array, factor: float, patience: int) -> "Plateau":
        better = loss < self.best * (1 - 1e-4)
        waited = jnp.where(better, 0, self.waited + 1)
        shrink = waited > patience
        return Plateau(
            jnp.where(shrink, self.scale * factor, self.scale),
            jnp.where(better, loss, self.best),
            jnp.where(shrink, 0, waited),
        )


def Adam(
    epochs: int = 500,
    *,
    learning_rate: float = 1e-3,
    batch_size: int | None = None,
    plateau: tuple[float, int] | None = (0.5, 25),
    patience: int | None = None,
    clip: float | None = None,
    window: int | None = None,
) -> Gradient:
    """Adam; `plateau=(factor, patience)` reduces the step when the loss stagnates, `clip` bounds the gradient.

    **Example:**

    ```python
    tw.Adam(200, learning_rate=1e-2, window=11)
    ```
    """
    optimiser = optax.adam(learning_rate)
    if clip is not None:
        optimiser = optax.chain(optax.clip_by_global_norm(clip), optimiser)
    name = f"Adam {learning_rate:g}" if clip is None else f"Adam {learning_rate:g}, clip {clip:g}"
    return Gradient(
        optimiser=optimiser,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
        plateau=plateau,
        window=window,
        name=name,
    )
