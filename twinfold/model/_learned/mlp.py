"""The residual network of the paper: sees chosen states, inputs and time, and adds to chosen components."""

from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold._core import Frozen
from twinfold.model._learned.base import AbstractLearned, Context
from twinfold.model._learned.network import Network
from twinfold.typing import Scalar, State


class Scaling(eqx.Module):
    """Units of a network: it sees (u - center) / spread, and its output is multiplied by `output`."""

    center: Float[Array, " in"]
    spread: Float[Array, " in"]
    output: Float[Array, " out"]


def select(x: Float[Array, " n"], indices: tuple[int, ...]) -> Float[Array, " k"]:
    """x[indices], as a slice where the indices are consecutive (a gather is slow inside a scan)."""
    if indices and indices == tuple(range(indices[0], indices[-1] + 1)):
        return x[indices[0] : indices[-1] + 1]
    return jnp.stack([x[i] for i in indices]) if indices else x[:0]


def spread_out(values: Float[Array, " k"], indices: tuple[int, ...], size: int) -> Float[Array, " n"]:
    """A vector of length `size` with `values` at `indices` and zero elsewhere."""
    if indices == tuple(range(indices[0], indices[-1] + 1)):
        return jnp.pad(values, (indices[0], size - 1 - indices[-1]))
    place = np.zeros((size, len(indices)))
    place[list(indices), range(len(indices))] = 1
    return jnp.asarray(place, values.dtype) @ values


class MLP(AbstractLearned):
    """A multilayer perceptron of (x[states], w[inputs], t) whose outputs add to dx[adds_to].

    **Arguments:** `states` and `adds_to`, indices into the state (all of it when left out); `inputs`, indices
    into w (none when left out); `time=True` to see t; `width`, `depth`, `activation`; `zero_last=True` to start
    as the pure physics; `scaling`: `"off"`, `"data"` (mean and spread of the training data, padding left out),
    or a `Scaling`.
    """

    states: tuple[int, ...] | None = eqx.field(static=True)
    inputs: tuple[int, ...] = eqx.field(static=True)
    time: bool = eqx.field(static=True)
    adds_to: tuple[int, ...] | None = eqx.field(static=True)
    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)
    zero_last: bool = eqx.field(static=True)
    scaling: Literal["off", "data"] | Frozen
    units: Frozen | None
    network: Network | None

    def __init__(
        self,
        *,
        states: Sequence[int] | None = None,
        inputs: Sequence[int] = (),
        time: bool = False,
        adds_to: Sequence[int] | None = None,
        width: int = 32,
        depth: int = 2,
        activation: Callable = jnp.tanh,
        zero_last: bool = False,
        scaling: Literal["off", "data"] | Scaling = "off",
    ):
        if isinstance(scaling, str) and scaling not in ("off", "data"):
            raise ValueError(f'MLP(scaling={scaling!r}): give "off", "data" or a Scaling.')
        self.states = None if states is None else tuple(states)
        self.inputs = tuple(inputs)
        self.time = time
        self.adds_to = None if adds_to is None else tuple(adds_to)
        self.width, self.depth, self.activation, self.zero_last = width, depth, activation, zero_last
        self.scaling = Frozen(scaling) if isinstance(scaling, Scaling) else scaling
        self.units = None
        self.network = None

    def check(self, context: Context) -> None:
        for name, indices, size, what in (
            ("states", self.states, context.states, "state"),
            ("adds_to", self.adds_to, context.states, "state"),
            ("inputs", self.inputs, context.inputs, "input"),
        ):
            for index in indices or ():
                if not 0 <= index < size:
                    raise ValueError(
                        f"MLP({name}={list(indices or ())}): there is no {what} {index}; "
                        f"the model has {size} (0 to {size - 1})."
                        if size
                        else f"MLP({name}={list(indices or ())}): the model has no {what}s."
                    )
            if indices is not None and len(set(indices)) < len(indices):
                raise ValueError(f"MLP({name}={list(indices)}): an index appears twice.")
        if self.adds_to == ():
            raise ValueError("MLP(adds_to=[]): the residual must add to at least one state.")
        if self.states == () and not self.inputs and not self.time:
            raise ValueError("MLP(states=[]): the residual must see a state, an input or time.")
        if isinstance(self.scaling, Frozen):
            states, adds_to = self._indices(context)
            seen, given = len(states) + len(self.inputs) + self.time, self.scaling.value
            if given.center.shape != (seen,) or given.spread.shape != (seen,) or given.output.shape != (len(adds_to),):
                raise ValueError(
                    f"MLP(scaling=...): it has {given.center.shape[0]} centers, {given.spread.shape[0]} spreads and "
                    f"{given.output.shape[0]} outputs for {seen} inputs and {len(adds_to)} outputs of the network."
                )

    def _indices(self, context: Context) -> tuple[tuple[int, ...], tuple[int, ...]]:
        everything = tuple(range(context.states))
        states = everything if self.states is None else self.states
        return states, everything if self.adds_to is None else self.adds_to

    def _units(self, context: Context) -> Frozen | None:
        if isinstance(self.scaling, Frozen):
            return self.scaling
        if self.scaling == "off":
            return None
        statistics = context.statistics
        if statistics is None:
            raise ValueError('MLP(scaling="data"): no training data were given to compute the scaling from.')
        if statistics.x_mean is None or statistics.x_std is None or statistics.rate_std is None:
            raise ValueError(
                'MLP(scaling="data"): the states are not what is observed, so their size is not known. '
                'Give it as scaling=Scaling(center, spread, output), or scaling="off".'
            )
        states, adds_to = self._indices(context)
        center, spread = [select(statistics.x_mean, states)], [select(statistics.x_std, states)]
        if self.inputs:
            assert statistics.w_mean is not None
            assert statistics.w_std is not None
            center.append(select(statistics.w_mean, self.inputs))
            spread.append(select(statistics.w_std, self.inputs))
        if self.time:
            center.append(statistics.t_mean[None])
            spread.append(statistics.t_std[None])
        output = select(statistics.rate_std, adds_to)
        return Frozen(Scaling(jnp.concatenate(center), jnp.concatenate(spread), output))

    def initialise(self, key: PRNGKeyArray, context: Context) -> "MLP":
        states, adds_to = self._indices(context)
        network = Network(
            len(states) + len(self.inputs) + self.time,
            len(adds_to),
            self.width,
            self.depth,
            activation=self.activation,
            zero_last=self.zero_last,
        ).initialise(key, context)
        return eqx.tree_at(
            lambda mlp: (mlp.units, mlp.network),
            self,
            (self._units(context), network),
            is_leaf=lambda node: node is None,
        )

    def __call__(self, t: Scalar, x: State, w: Float[Array, " d"] | None = None) -> State:
        if self.network is None:
            raise ValueError("The residual has no weights yet: call `twin.initialise(key, ...)` or `fit` first.")
        everything = tuple(range(x.shape[0]))
        seen = [select(x, everything if self.states is None else self.states)]
        if self.inputs:
            if w is None:
                raise ValueError(f"MLP(inputs={list(self.inputs)}): the model was given no inputs w.")
            seen.append(select(w, self.inputs))
        if self.time:
            seen.append(jnp.asarray(t, x.dtype)[None])
        u = jnp.concatenate(seen) if len(seen) > 1 else seen[0]
        if self.units is None:
            out = self.network(u)
        else:
            units = self.units.value
            out = units.output * self.network((u - units.center) / units.spread)
        return spread_out(out, everything if self.adds_to is None else self.adds_to, x.shape[0])
