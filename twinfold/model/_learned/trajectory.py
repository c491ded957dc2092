"""The state as a function of time and initial state: the trajectory network of a PINN."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from twinfold._core import Frozen
from twinfold.model._learned.base import AbstractLearned, Context
from twinfold.model._learned.mlp import Scaling
from twinfold.model._learned.network import Network
from twinfold.typing import Scalar, State


class TrajectoryNetwork(AbstractLearned):
    """x(t) = N(t, x0), for `Twin(trajectory=...)`: its field is never integrated.

    **Arguments:** `width`, `depth`; `scaling`, the units of (t, x0) and of x, or `"off"`.

    **Example:**

    ```python
    network = tw.model.TrajectoryNetwork(width=16, depth=2)
    twin = tw.Twin(lambda x: -x, trajectory=network)
    twin.initialise(jax.random.key(0), states=1).simulate([1.0], jnp.linspace(0, 1, 11)).ys[-1]
    ```
    """

    width: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    scaling: Literal["off"] | Frozen
    network: Network | None

    def __init__(
        self,
        width: int = 32,
        depth: int = 2,
        scaling: Literal["off"] | Scaling | Frozen = "off",
        network: Network | None = None,
    ):
        self.width, self.depth, self.network = width, depth, network
        self.scaling = Frozen(scaling) if isinstance(scaling, Scaling) else scaling

    def check(self, context: Context) -> None:
        if isinstance(self.scaling, Frozen) and self.scaling.value.center.shape != (1 + context.states,):
            raise ValueError(
                f"TrajectoryNetwork(scaling=...): give a center for t and each of {context.states} states."
            )

    def initialise(self, key: PRNGKeyArray, context: Context) -> "TrajectoryNetwork":
        network = Network(1 + context.states, context.states, self.width, self.depth).initialise(key, context)
        return TrajectoryNetwork(self.width, self.depth, self.scaling, network)

    def __call__(self, t: Scalar, x: State) -> State:
        if self.network is None:
            raise ValueError("The network has no weights yet: call `twin.initialise(key, ...)` or `fit` first.")
        features = jnp.concatenate([jnp.asarray(t, x.dtype)[None], x])
        if not isinstance(self.scaling, Frozen):
            return self.network(features)
        units = self.scaling.value
        return units.output * self.network((features - units.center) / units.spread)
