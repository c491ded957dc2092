"""Unknown physical parameters: estimated with the network, positive or bounded where physics says so.

Each is stored as a dimensionless `raw` that starts at zero, so that a parameter of 1e-4 and one of 1e6 take
steps of the same relative size:

    free      value = start + max(|start|, 1) raw        positive  value = start exp(raw)
    bounded   value = lower + (upper - lower) sigmoid(logit(start) + raw)
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from twinfold._core import Frozen


class Unknown(eqx.Module):
    """A parameter to be estimated from data.

    **Arguments:** `start`, the first guess; `positive=True`, or `bounds=(lower, upper)`, to keep it there;
    `per_run=True` for one value per run (where it starts), or `per_group=True` for one per group of runs (a
    battery cell's own capacity), rather than one shared by all; `spread`, how far it is believed to be from `start`,
    in units of `raw` (0.1 is about 10 %), for `Loss(prior=...)`.
    """

    start: Frozen
    raw: Float[Array, "..."]
    positive: bool = eqx.field(static=True)
    bounds: tuple[float, float] | None = eqx.field(static=True)
    per_run: bool = eqx.field(static=True)
    per_group: bool = eqx.field(static=True)
    spread: float | None = eqx.field(static=True)
    owner: Frozen | None  # which of the values belongs to each run

    def __init__(
        self,
        start: ArrayLike | list,
        *,
        positive: bool = False,
        bounds: tuple[float, float] | None = None,
        per_run: bool = False,
        per_group: bool = False,
        spread: float | None = None,
    ):
        start = np.asarray(start, dtype=float)
        if not np.all(np.isfinite(start)):
            raise ValueError(f"Unknown(start={start}): the first guess must be finite.")
        if positive and bounds is not None:
            raise ValueError("Unknown: give either positive=True or bounds=(lower, upper), not both.")
        if positive and not np.all(start > 0):
            raise ValueError(f"Unknown(start={start}, positive=True): the first guess must be positive.")
        if spread is not None and not spread > 0:
            raise ValueError(f"Unknown(spread={spread}): it must be positive.")
        if per_run and per_group:
            raise ValueError("Unknown: give either per_run=True or per_group=True, not both.")
        if bounds is not None and not (bounds[0] < bounds[1]):
            raise ValueError(f"Unknown(bounds={bounds}): the lower bound must be below the upper one.")
        if bounds is not None and not np.all((bounds[0] < start) & (start < bounds[1])):
            raise ValueError(f"Unknown(start={start}, bounds={bounds}): the first guess must lie inside.")
        self.start = Frozen(jnp.asarray(start))
        self.raw = jnp.zeros(start.shape)
        self.positive = positive
        self.bounds = bounds
        self.per_run, self.per_group, self.spread = per_run, per_group, spread
        self.owner = None

    @property
    def own(self) -> bool:
        """Whether runs, or groups of runs, have a value of their own."""
        return self.per_run or self.per_group

    def value(self, run: int | Int[ArrayLike, ""] | None = None) -> Float[Array, "..."]:
        """The parameter in physical units, for one run where it has a value for each."""
        raw = self.raw
        if self.owner is not None and run is not None:
            raw = raw[self.owner.value[run]]
        elif self.owner is not None:
            raw = jnp.zeros_like(self.start.value)  # a run that was not fitted: the first guess
        return self._physical(raw)

    def _physical(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        start = self.start.value
        if self.positive:
            return start * jnp.exp(raw)
        if self.bounds is not None:
            lower, upper = self.bounds
            fraction = (start - lower) / (upper - lower)
            return lower + (upper - lower) * jax.nn.sigmoid(jnp.log(fraction / (1 - fraction)) + raw)
        return start + jnp.maximum(jnp.abs(start), 1) * raw

    def for_runs(self, groups: tuple[str, ...]) -> "Unknown":
        """A copy with a value for each run, or for each group (`groups` names that of each run), at the first guess."""
        distinct = list(dict.fromkeys(groups))
        owner = [distinct.index(group) for group in groups] if self.per_group else range(len(groups))
        count = len(distinct) if self.per_group else len(groups)
        raw = jnp.zeros((count, *self.start.value.shape), self.raw.dtype)
        return eqx.tree_at(
            lambda u: (u.raw, u.owner),
            self,
            (raw, Frozen(jnp.asarray(list(owner), jnp.int32))),
            is_leaf=lambda node: node is None,
        )

    def centred(self) -> "Unknown":
        """A copy that starts from the median of the values that runs or groups have: the first guess for a new one."""
        if self.owner is None:
            return self
        middle = jnp.median(self.raw, axis=0)
        return eqx.tree_at(
            lambda u: (u.start, u.raw, u.owner),
            self,
            (Frozen(self._physical(middle)), jnp.zeros_like(middle), None),
            is_leaf=lambda node: node is None,
        )


def is_unknown(node: Any) -> bool:
    """Whether `node` is an `Unknown`, for use as `is_leaf`."""
    return isinstance(node, Unknown)


def as_parameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` with what is known marked as such: `Frozen` arrays beside the `Unknown` ones."""
    return {
        name: jax.tree.map(
            lambda leaf: leaf if isinstance(leaf, Unknown | Frozen) else Frozen(jnp.asarray(leaf)),
            entry,
            is_leaf=lambda node: isinstance(node, Unknown | Frozen | list),
        )
        for name, entry in params.items()
    }


def parameter_values(params: Mapping[str, Any], run: int | Int[ArrayLike, ""] | None = None) -> dict[str, Any]:
    """The parameters p as plain arrays: known ones as they are, unknown ones at their present estimate."""

    def plain(node: Any) -> Any:
        return node.value(run) if is_unknown(node) else node.value

    return {
        name: jax.tree.map(plain, entry, is_leaf=lambda node: isinstance(node, Unknown | Frozen))
        for name, entry in params.items()
    }
