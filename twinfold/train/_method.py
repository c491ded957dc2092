"""How the parameters move: a method improves the parameters of one seed, one epoch at a time."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from twinfold.train._problem import TrainingProblem


class EpochReport(eqx.Module):
    """What one epoch did: the loss before it, step size or damping, failed trajectories, whether it has converged."""

    loss: Float[Array, ""]
    rate: Float[Array, ""]
    failed: Array
    finished: Array


class AbstractMethod(eqx.Module):
    """An optimiser over epochs; `window` is the number of samples per training window, None for complete runs.

    **Example:**

    ```python
    isinstance(tw.Adam(10), tw.train.AbstractMethod)  # True
    ```
    """

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
