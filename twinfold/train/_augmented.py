"""The augmented Lagrangian: a constraint enforced in training only, by a penalty and multipliers.

    L = data + mu mean |g + lambda|^2,    lambda <- lambda + g    every few epochs

at each training sample, with g the relative residual and mu = `Loss.constraint_penalty`. Unlike a plain penalty, mu
need not grow without bound to hold the constraint on the training data; nothing holds it when the twin is simulated.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from twinfold._core import tree_where
from twinfold.train._method import AbstractMethod, EpochReport
from twinfold.train._problem import Evaluation, TrainingProblem
from twinfold.typing import Flag


class AugmentedLagrangian(AbstractMethod):
    """`inner`, with multipliers updated every `every` epochs; needs `Loss(constraint_penalty=...)`.

    **Example:**

    ```python
    method = tw.AugmentedLagrangian(tw.LevenbergMarquardt(40), every=5)  # with loss=tw.Loss(constraint_penalty=1e-2)
    ```
    """

    inner: AbstractMethod
    every: int = eqx.field(static=True)
    epochs: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    patience: int | None = eqx.field(static=True)
    window: int | None = eqx.field(static=True)

    def __init__(self, inner: AbstractMethod, every: int = 10):
        self.inner, self.every = inner, every
        self.epochs, self.patience, self.window = inner.epochs, inner.patience, inner.window
        self.name = f"{inner.name}, multipliers"

    def init(self, problem: TrainingProblem, params: PyTree) -> Any:
        if problem.terms.constraint_penalty == 0:
            raise ValueError("AugmentedLagrangian: give Loss(constraint_penalty=...), the weight of its penalty.")
        shift = jnp.zeros_like(jax.lax.stop_gradient(problem.constraint_residuals(params)))
        return self.inner.init(_shifted(problem, shift), params), shift, jnp.array(0)

    def unevaluated(self, problem: TrainingProblem, params: PyTree) -> Evaluation:
        return self.inner.unevaluated(problem, params)

    def epoch(
        self, problem: TrainingProblem, params: PyTree, state: Any, key: PRNGKeyArray, trains: Flag, before: Evaluation
    ) -> tuple[PyTree, Any, EpochReport, Evaluation]:
        inner, shift, epoch = state
        params, inner, report, after = self.inner.epoch(_shifted(problem, shift), params, inner, key, trains, before)
        if problem.valid is None:  # losses with different multipliers cannot be compared
            after = eqx.tree_at(lambda after: after.score, after, problem.score(params))
        due = trains & ((epoch + 1) % self.every == 0)
        # New multipliers change the loss: an inner method that has converged has to continue.
        last = eqx.tree_at(lambda report: report.finished, report, jnp.array(False))
        shift = tree_where(due, shift + jax.lax.stop_gradient(problem.constraint_residuals(params)), shift)
        return params, (inner, shift, epoch + jnp.where(trains, 1, 0)), last, after


def _shifted(problem: TrainingProblem, shift: Float[Array, "B T m"]) -> TrainingProblem:
    return eqx.tree_at(lambda problem: problem.batch.shift, problem, shift, is_leaf=lambda node: node is None)
