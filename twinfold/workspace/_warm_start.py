"""A fit that continues another one with more runs: its weights and parameters, and initial states of the new runs."""

import equinox as eqx
import jax
from jaxtyping import PRNGKeyArray

from twinfold.data import Dataset
from twinfold.data._rows import rows_of
from twinfold.data._warmup import DEFAULT_WARMUP
from twinfold.model import AbstractLearned, Twin
from twinfold.model._learned.base import Context


class _Trained(AbstractLearned):
    """A learned part that keeps its weights when it is initialised; its region is found anew."""

    part: AbstractLearned

    def check(self, context: Context) -> None:
        self.part.check(context)

    def initialise(self, key: PRNGKeyArray, context: Context) -> AbstractLearned:
        region = getattr(self.part, "region", None)
        return eqx.tree_at(lambda part: part.region, self.part, None) if region is not None else self.part


def can_continue(twin: Twin) -> bool:
    """Whether a fit can go on with other runs: parameters of groups of runs cannot be told from those of the runs."""
    return not any(unknown.per_group for unknown in twin.unknowns())


def warm_start(fitted: Twin, data: Dataset, *, keep_weights: bool) -> Twin:
    """A twin that is fitted to other runs from where an earlier fit ended.

    What belongs to single runs, such as their initial states, is estimated from their first samples.

    **Arguments:** `fitted`; `data`; `keep_weights`, where a fit would draw them again: `trainable` is "all".
    """
    origins = tuple(run.origin(fitted.warmup or DEFAULT_WARMUP) for run in data.runs)
    twin = eqx.tree_at(
        lambda twin: (twin.runs, twin.groups, twin.origins),
        rows_of(fitted, data).adapt(fitted),
        (data.names, data.groups, origins),
        is_leaf=lambda node: node is None,
    )
    return jax.tree.map(
        lambda node: _Trained(node) if isinstance(node, AbstractLearned) and keep_weights else node,
        twin,
        is_leaf=lambda node: isinstance(node, AbstractLearned),
    )
