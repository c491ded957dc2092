"""The residual network of the paper: sees chosen states, inputs and time, and adds to chosen components."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold._core import Frozen
from twinfold.model._learned.base import AbstractLearned, Context
from twinfold.model._learned.network import Network
from twinfold.model._learned.region import OUTSIDE
from twinfold.model._learned.structure import (
    Bounds,
    as_bounds,
    as_structure,
    bounded,
    centred_inputs,
    check_sizes,
    check_structure,
    is_monotone,
    is_symmetric,
    negated,
)
from twinfold.typing import Scalar, State


class Scaling(eqx.Module):
    """Units of a network: it sees (u - center) / spread, and its output is multiplied by `output`.

    **Example:**

    ```python
    scaling = tw.Scaling(center=jnp.zeros(1), spread=jnp.full(1, 100.0), output=jnp.full(1, 3.0))
    tw.MLP(states=[1], adds_to=[1], scaling=scaling)
    ```
    """

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


def _as_indices(indices: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if indices is None else tuple(indices)


def _as_scaling(scaling: Any) -> Any:
    if isinstance(scaling, str) and scaling not in ("off", "data"):
        raise ValueError(f'MLP(scaling={scaling!r}): give "off", "data" or a Scaling.')
    return Frozen(scaling) if isinstance(scaling, Scaling) else scaling


def _as_outside(outside: Any) -> Any:
    if outside not in OUTSIDE:
        raise ValueError(f'MLP(outside={outside!r}): give "auto", "fade", "hold" or "free".')
    return outside


class MLP(AbstractLearned):
    """A multilayer perceptron of (x[states], w[inputs], t) whose outputs add to dx[adds_to].

    **Arguments:** `states` and `adds_to`, indices into the state (all of it when left out); `inputs`, indices
    into w (none when left out); `time=True` to see t; `width`, `depth`, `activation`; `zero_last=True` to start
    as the pure physics; `scaling`, the units of features and outputs: `"data"` (mean and spread of the
    training data; of hidden states, those of the physics alone along the training inputs), `"off"`, or a `Scaling`;
    `outside`, what it does where its features leave the region that the training data covered:
    `"fade"` to zero over a `margin` (a fraction of the range of each feature), `"hold"` the value that it has there,
    `"auto"`, which fades in time and holds states and inputs, or `"free"`, whatever the network says. `fit` sets the
    region when it has trained the weights.

    What is known about the shape of what it adds holds for any weights, also outside of the data: `structure`, one or
    several of `"odd"`, `"even"`, `"increasing"`, `"decreasing"` (in each feature), `"positive"` and `"dissipative"`,
    and `bounds`, a lower and an upper one, in the units of dx/dt. A dissipative part acts against the first features,
    as friction does: the first output times the first of `states` is never positive, and so on.

    **Example:**

    ```python
    friction = tw.MLP(states=[1], adds_to=[1], width=12, depth=1, zero_last=True)
    friction = tw.MLP(states=[1], adds_to=[1], structure=["odd", "dissipative"], bounds=(-5.0, 5.0), zero_last=True)
    twin = tw.Twin(tw.GreyBox(lambda x: jnp.stack([x[1], -x[0]]), friction))
    drawn = twin.initialise(jax.random.key(0), states=2)
    drawn.simulate([1.0, 0.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    states: tuple[int, ...] | None = eqx.field(static=True, default=None, converter=_as_indices, kw_only=True)
    inputs: tuple[int, ...] = eqx.field(static=True, default=(), converter=tuple, kw_only=True)
    time: bool = eqx.field(static=True, default=False, kw_only=True)
    adds_to: tuple[int, ...] | None = eqx.field(static=True, default=None, converter=_as_indices, kw_only=True)
    width: int = eqx.field(static=True, default=32, kw_only=True)
    depth: int = eqx.field(static=True, default=2, kw_only=True)
    activation: Callable = eqx.field(static=True, default=jnp.tanh, kw_only=True)
    zero_last: bool = eqx.field(static=True, default=False, kw_only=True)
    structure: tuple[str, ...] = eqx.field(static=True, default=(), converter=as_structure, kw_only=True)
    bounds: Bounds | None = eqx.field(static=True, default=None, converter=as_bounds, kw_only=True)
    scaling: Literal["off", "data"] | Frozen = eqx.field(default="data", converter=_as_scaling, kw_only=True)
    outside: Literal["auto", "fade", "hold", "free"] = eqx.field(
        static=True, default="auto", converter=_as_outside, kw_only=True
    )
    margin: float = eqx.field(static=True, default=0.5, kw_only=True)
    units: Frozen | None = eqx.field(default=None, kw_only=True)  # these two are set by `initialise`
    network: Network | None = eqx.field(default=None, kw_only=True)
    region: Frozen | None = eqx.field(default=None, kw_only=True)  # set by `fit`

    def __check_init__(self):
        if not self.margin > 0:
            raise ValueError(f"MLP(margin={self.margin}): must be positive.")
        check_structure("MLP", self.structure, self.bounds, self.activation)
        monotone = is_monotone(self.structure)
        if self.time and (monotone or is_symmetric(self.structure)):
            raise ValueError(
                f"MLP(structure={list(self.structure)}, time=True): it relates the values at all features, and time "
                "has no other sign or direction; leave time out."
            )
        if self._fading and (monotone or (self.bounds and not self.bounds[0] <= 0 <= self.bounds[1])):
            kept = "monotone" if monotone else f"within bounds={self.bounds}"
            raise ValueError(f'MLP(outside="{self.outside}"): what fades to zero is not {kept}; give outside="hold".')

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
        states, adds_to = self._indices(context)
        features = len(states) + len(self.inputs) + self.time
        check_sizes("MLP", self.structure, features - self.time, len(adds_to), along="decreasing")
        if isinstance(self.scaling, Frozen):
            given = self.scaling.value
            shapes = given.center.shape, given.spread.shape, given.output.shape
            if shapes != ((features,), (features,), (len(adds_to),)):
                raise ValueError(
                    f"MLP(scaling=...): it has {given.center.shape[0]} centers, {given.spread.shape[0]} spreads and "
                    f"{given.output.shape[0]} outputs for {features} inputs and {len(adds_to)} outputs of the network."
                )
            centred = np.array(centred_inputs(self.structure, features, len(adds_to)))
            if np.any(np.asarray(given.center)[centred] != 0):
                raise ValueError(
                    f"MLP(scaling=Scaling(center=...), structure={list(self.structure)}): the structure is about zero; "
                    "give a center of 0."
                )
            if self.structure and not (np.all(np.asarray(given.spread) > 0) and np.all(np.asarray(given.output) > 0)):
                raise ValueError("MLP(scaling=Scaling(spread, output), structure=...): both must be positive.")

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
        if statistics is None or statistics.x_mean is None or statistics.x_std is None or statistics.rate_std is None:
            return None  # without data, or where the physics cannot be simulated along them, units are one
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
        mean, std = jnp.concatenate(center), jnp.concatenate(spread)
        centred = np.array(centred_inputs(self.structure, mean.shape[0], len(adds_to)))
        std = jnp.where(centred, jnp.sqrt(mean**2 + std**2), std)
        return Frozen(Scaling(jnp.where(centred, 0, mean), std, output))

    def initialise(self, key: PRNGKeyArray, context: Context) -> "MLP":
        states, adds_to = self._indices(context)
        network = Network(
            len(states) + len(self.inputs) + self.time,
            len(adds_to),
            self.width,
            self.depth,
            activation=self.activation,
            zero_last=self.zero_last,
            structure=negated(self.structure) if "dissipative" in self.structure else self.structure,
        ).initialise(key, context)
        return eqx.tree_at(
            lambda mlp: (mlp.units, mlp.network, mlp.region),
            self,
            (self._units(context), network, None),  # a region belongs to the weights that were trained in it
            is_leaf=lambda node: node is None,
        )

    def response(self, u: Float[Array, " in"]) -> Float[Array, " out"]:
        """The outputs where the features (states, inputs, time) are u."""
        if self.network is None:
            raise ValueError("The residual has no weights yet: call `twin.initialise(key, ...)` or `fit` first.")
        region = None if self.region is None else self.region.value
        seen = region.held(u) if region is not None and self.outside in ("hold", "auto") else u
        if self.units is None:
            out = self.network(seen)
        else:
            units = self.units.value
            out = units.output * self.network((seen - units.center) / units.spread)
        # The network is a law of resistance, as a Network by itself: what resists is subtracted.
        out = bounded(-out if "dissipative" in self.structure else out, self.structure, self.bounds)
        if region is None or not self._fading:
            return out
        return region.weight(u, slice(-1, None) if self.outside == "auto" else slice(None)) * out

    def covered(self, columns: Sequence[np.ndarray], gives: int) -> list[np.ndarray]:
        """The values of each feature that data with these values say something about.

        Where u and -u are related, what was seen at u is known at -u; what acts against a rate is zero at rest.
        """
        if is_symmetric(self.structure):
            return [np.concatenate([column, -column]) for column in columns]
        centred = centred_inputs(self.structure, len(columns), gives)
        # Two zeros, since a single value far from the others is an outlier.
        return [
            np.append(column, [0.0, 0.0]) if zero and np.isfinite(column).any() else column
            for column, zero in zip(columns, centred, strict=True)
        ]

    @property
    def _fading(self) -> bool:
        return self.outside == "fade" or (self.outside == "auto" and self.time)

    def features(self, t: Scalar, x: State, w: Float[Array, " d"] | None = None) -> Float[Array, " in"]:
        """What the network sees: the chosen states and inputs, and time."""
        features = [select(x, tuple(range(x.shape[0])) if self.states is None else self.states)]
        if self.inputs:
            if w is None:
                raise ValueError(f"MLP(inputs={list(self.inputs)}): the model was given no inputs w.")
            features.append(select(w, self.inputs))
        if self.time:
            features.append(jnp.asarray(t, x.dtype)[None])
        return jnp.concatenate(features) if len(features) > 1 else features[0]

    def __call__(self, t: Scalar, x: State, w: Float[Array, " d"] | None = None) -> State:
        out = self.response(self.features(t, x, w))
        return spread_out(out, tuple(range(x.shape[0])) if self.adds_to is None else self.adds_to, x.shape[0])
