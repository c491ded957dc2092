"""How the parameters move: a method improves the parameters of one seed, one epoch at a time."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from twinfold.data import Batch
from twinfold.train._estimate import Estimate
from twinfold.train._objective import Objective


class TrainingProblem(eqx.Module):
    """What all seeds share: the data, the objective, and all of the estimate that is not trained."""

    objective: Objective
    batch: Batch
    valid: Batch | None
    frozen: Estimate

    @property
    def windows(self) -> Int[Array, " B"]:
        """The indices of all training windows."""
        return jnp.arange(self.batch.size)

    def estimate(self, params: PyTree) -> Estimate:
        return eqx.combine(params, self.frozen)

    def loss(self, params: PyTree, batch: Batch, windows: Array) -> tuple[Float[Array, ""], dict]:
        """The loss on a batch of training windows."""
        return self.objective(self.estimate(params), batch, windows)

    def training_loss(self, params: PyTree) -> Float[Array, ""]:
        """The loss on all training windows."""
        return self.loss(params, self.batch, self.windows)[0]

    def score(self, params: PyTree) -> Float[Array, ""]:
        """What the best parameters are chosen by: the loss on whole validation runs, or the training loss."""
        if self.valid is None:
            return self.training_loss(params)
        whole_runs = Estimate(self.estimate(params).twin, None)
        return self.objective(whole_runs, self.valid, jnp.arange(self.valid.size))[0]


class EpochReport(eqx.Module):
    """What one epoch did: the loss before it, the step size or damping, failed trajectories, and whether to go on."""

    loss: Float[Array, ""]
    rate: Float[Array, ""]
    failed: Array
    finished: Array


class AbstractMethod(eqx.Module):
    """An optimiser over epochs. Short windows first make a smooth landscape, whole runs last make it count."""

    epochs: eqx.AbstractVar[int]
    name: eqx.AbstractVar[str]
    patience: eqx.AbstractVar[int | None]
    window: eqx.AbstractVar[int | None]  # samples per training window in this stage; None: as `fit` says

    @abc.abstractmethod
    def init(self, problem: TrainingProblem, params: PyTree) -> Any:
        """The method's own state for one seed."""

    @abc.abstractmethod
    def epoch(
        self, problem: TrainingProblem, params: PyTree, state: Any, key: PRNGKeyArray
    ) -> tuple[PyTree, Any, EpochReport]:
        """One pass over the data (first-order) or one step (least squares)."""
