"""What belongs to one asset: scalars of the twin, and its initial state where that is estimated.

An `Unknown` moves in its own dimensionless coordinate (see `model/_unknown.py`); a known parameter by a factor exp(v).
Both are zero at the twin's value, where every estimate starts.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.io import unknown_name
from twinfold.model import Twin, Unknown
from twinfold.typing import Parameters, State


class AssetVariables(eqx.Module):
    """The variables v of one asset, and what they mean for a twin whose learned parts stay as they are."""

    twin: Twin
    names: tuple[str, ...] = eqx.field(static=True)

    @staticmethod
    def of(twin: Twin, names: Sequence[str] | None) -> "AssetVariables":
        """The variables of these parameters; of every `Unknown` scalar if `names` is None.

        **Raises:** `ValueError` for an unknown name, one that is no scalar, or a twin without any variable.
        """
        twin = centred(twin)
        if names is None:
            names = [name for name, entry in twin.params.items() if isinstance(entry, Unknown) and entry.raw.ndim == 0]
        for name in names:
            if name not in twin.params:
                raise ValueError(f"parameters: the twin has no parameter {unknown_name(name, twin.params)}")
            if np.shape(twin.parameters()[name]) != ():
                raise ValueError(f"parameters: {name} is not a scalar; only scalars are estimated for each asset.")
            if not isinstance(twin.params[name], Unknown) and not float(twin.parameters()[name]) > 0:
                raise ValueError(f"parameters: {name} is known and not positive; declare it as Unknown to estimate it.")
        variables = AssetVariables(twin, tuple(names))
        if not variables.count:
            raise ValueError("parameters: there is nothing to estimate; name parameters of the twin.")
        return variables

    @property
    def start(self) -> Unknown | None:
        """The initial state, if it is estimated."""
        initial = self.twin.initial
        return initial if isinstance(initial, Unknown) and initial.own else None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of all variables."""
        states = 0 if self.start is None else self.start.raw.shape[0]
        return (*self.names, *(f"initial[{index}]" for index in range(states)))

    @property
    def count(self) -> int:
        """The number of variables."""
        return len(self.labels)

    def values(self, v: Float[Array, " P"]) -> Float[Array, " P"]:
        """The variables in physical units."""
        p = self.twin.parameters()
        scalars = [self._scalar(name, v[index], p) for index, name in enumerate(self.names)]
        parts = [jnp.stack(scalars)] if scalars else []
        if self.start is not None:
            parts.append(self.start._physical(v[len(self.names) :]))
        return jnp.concatenate(parts)

    def slopes(self, v: Float[Array, " P"]) -> Float[Array, " P"]:
        """d values / d v: each value depends on its own variable only."""
        return jax.jvp(self.values, (v,), (jnp.ones_like(v),))[1]

    def parameters(self, v: Float[Array, " P"]) -> Parameters:
        """All parameters of the asset."""
        p = self.twin.parameters()
        return p | {name: self._scalar(name, v[index], p) for index, name in enumerate(self.names)}

    def initial_state(
        self,
        v: Float[Array, " P"],
        t: Float[Array, ""],
        y: Float[Array, " k"],
        w: Float[Array, " d"] | None,
        p: Parameters,
        x0: State | None,
    ) -> State:
        """The state at the first sample."""
        if self.start is not None:
            return self.start._physical(v[len(self.names) :])
        return self.twin.initial_state(t, y, w, p, x0=x0)

    def _scalar(self, name: str, v: Float[Array, ""], p: Parameters) -> Float[Array, ""]:
        entry = self.twin.params[name]
        return entry._physical(entry.raw + v) if isinstance(entry, Unknown) else p[name] * jnp.exp(v)


def centred(twin: Twin) -> Twin:
    """The twin for an asset that it was not fitted on: own parameters and starts are the medians of those known."""

    def middle(node: Unknown) -> Unknown:
        return node.centred() if node.own else node

    is_own = lambda node: isinstance(node, Unknown)  # noqa: E731
    return jax.tree.map(lambda node: middle(node) if is_own(node) else node, twin, is_leaf=is_own)
