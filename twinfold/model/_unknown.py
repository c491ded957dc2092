"""Unknown physical parameters: estimated together with the networks, positive or bounded where physics demands it.

Each is stored as a dimensionless `raw` that starts at zero, so that a parameter of 1e-4 and one of 1e6 take
steps of the same relative size:

    free      value = guess + size raw, size = max(|guess|, 1)        positive  value = guess exp(raw)
    bounded   value = lower + (upper - lower) sigmoid(logit(guess) + raw)
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

    **Arguments:** `guess`, the first value; `positive=True`, or `bounds=(lower, upper)`, to keep it there;
    `per_run=True` for one value per run (an initial state), or `per_group=True` for one per group of runs (the
    capacity of a battery cell), rather than one shared by all; `spread`, the prior standard deviation in units of
    `raw` (0.1 is about 10 %), for `Loss(prior=...)`.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.5, positive=True)})
    twin.parameters()["k"]  # 0.5 until it is fitted
    ```
    """

    guess: Frozen
    raw: Float[Array, "..."]
    positive: bool = eqx.field(static=True)
    bounds: tuple[float, float] | None = eqx.field(static=True)
    per_run: bool = eqx.field(static=True)
    per_group: bool = eqx.field(static=True)
    spread: float | None = eqx.field(static=True)
    owner: Frozen | None  # which of the values belongs to each run
    size: Frozen | None  # of a free value, if another one than max(|guess|, 1)

    def __init__(
        self,
        guess: ArrayLike | list,
        *,
        positive: bool = False,
        bounds: tuple[float, float] | None = None,
        per_run: bool = False,
        per_group: bool = False,
        spread: float | None = None,
    ):
        guess = np.asarray(guess, dtype=float)
        if not np.all(np.isfinite(guess)):
            raise ValueError(f"Unknown(guess={guess}): the first guess must be finite.")
        if positive and bounds is not None:
            raise ValueError("Unknown: give either positive=True or bounds=(lower, upper), not both.")
        if positive and not np.all(guess > 0):
            raise ValueError(f"Unknown(guess={guess}, positive=True): the first guess must be positive.")
        if spread is not None and not spread > 0:
            raise ValueError(f"Unknown(spread={spread}): it must be positive.")
        if per_run and per_group:
            raise ValueError("Unknown: give either per_run=True or per_group=True, not both.")
        if bounds is not None and not (bounds[0] < bounds[1]):
            raise ValueError(f"Unknown(bounds={bounds}): the lower bound must be below the upper one.")
        if bounds is not None and not np.all((bounds[0] < guess) & (guess < bounds[1])):
            raise ValueError(f"Unknown(guess={guess}, bounds={bounds}): the first guess must lie inside.")
        self.guess = Frozen(jnp.asarray(guess))
        self.raw = jnp.zeros(guess.shape)
        self.positive = positive
        self.bounds = bounds
        self.per_run, self.per_group, self.spread = per_run, per_group, spread
        self.owner = None
        self.size = None

    @staticmethod
    def at_runs(values: Float[Array, "R n"], size: Float[Array, " n"]) -> "Unknown":
        """A vector for each of R runs, free, at these values; `size`, by how much it may change."""
        middle = jnp.median(values, axis=0)
        unknown = Unknown(np.zeros(values.shape[1]), per_run=True)
        return eqx.tree_at(
            lambda u: (u.guess, u.raw, u.owner, u.size),
            unknown,
            (
                Frozen(middle),
                (values - middle[None]) / size[None],
                Frozen(jnp.arange(values.shape[0], dtype=jnp.int32)),
                Frozen(size),
            ),
            is_leaf=lambda node: node is None,
        )

    @property
    def own(self) -> bool:
        """Whether each run, or each group of runs, has its own value."""
        return self.per_run or self.per_group

    def value(self, run: int | Int[ArrayLike, ""] | None = None) -> Float[Array, "..."]:
        """The parameter in physical units, for one run where it has a value for each."""
        raw = self.raw
        if self.owner is not None and run is not None:
            raw = raw[self.owner.value[run]]
        elif self.owner is not None:
            raw = jnp.zeros_like(self.guess.value)  # a run that was not fitted: the first guess
        return self._physical(raw)

    def _physical(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        guess = self.guess.value
        if self.positive:
            return guess * jnp.exp(raw)
        if self.bounds is not None:
            lower, upper = self.bounds
            fraction = (guess - lower) / (upper - lower)
            return lower + (upper - lower) * jax.nn.sigmoid(jnp.log(fraction / (1 - fraction)) + raw)
        return guess + (jnp.maximum(jnp.abs(guess), 1) if self.size is None else self.size.value) * raw

    def for_runs(self, groups: tuple[str, ...]) -> "Unknown":
        """A copy with a value for each run, or for each group (`groups` names that of each run), at the first guess."""
        distinct = list(dict.fromkeys(groups))
        owner = [distinct.index(group) for group in groups] if self.per_group else range(len(groups))
        count = len(distinct) if self.per_group else len(groups)
        raw = jnp.zeros((count, *self.guess.value.shape), self.raw.dtype)
        return self.with_raw(raw, Frozen(jnp.asarray(list(owner), jnp.int32)))

    def with_raw(self, raw: Float[Array, "..."], owner: Frozen | None) -> "Unknown":
        """A copy with these values: one for each run or group, by `owner`, or a single one without it."""
        return eqx.tree_at(lambda u: (u.raw, u.owner), self, (raw, owner), is_leaf=lambda node: node is None)

    def centred(self) -> "Unknown":
        """A copy whose first guess is the median of the values of the runs or groups: for a new one."""
        if self.owner is None:
            return self
        middle = jnp.median(self.raw, axis=0)
        return eqx.tree_at(
            lambda u: (u.guess, u.raw, u.owner),
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
