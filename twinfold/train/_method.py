"""How the parameters move: a method improves the parameters of one seed, one epoch at a time."""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from twinfold.train._problem import Evaluation, TrainingProblem
from twinfold.typing import Flag

Tree = TypeVar("Tree")


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
    def unevaluated(self, problem: TrainingProblem, params: PyTree) -> Evaluation:
        """An evaluation without a meaning, of the form of those that `epoch` returns."""

    @abc.abstractmethod
    def epoch(
        self, problem: TrainingProblem, params: PyTree, state: Any, key: PRNGKeyArray, trains: Flag, before: Evaluation
    ) -> tuple[PyTree, Any, EpochReport, Evaluation]:
        """One pass over the data (first-order) or one step (least squares), and the evaluation of what it leads to.

        `before` is the evaluation of `params`. Where it does not train, which comes first, it only evaluates them,
        `before` having no meaning: by the same program, since another one would take long to compile.
        """


def zeros_unless(needed: Flag, fn: Callable[..., Tree], *arguments: Any) -> Tree:
    """`fn(*arguments)` where needed, which must be the same for all lanes; else zeros, without the computation."""
    fn = jax.jit(fn)  # traced once, for its shapes and for the branch
    shapes = jax.eval_shape(fn, *arguments)
    return jax.lax.cond(
        needed, fn, lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), *arguments
    )
