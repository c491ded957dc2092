"""Fields of mechanics with a learned energy: what they conserve is built in, what they cannot represent too.

Both know nothing of the physics but that there is an energy (Greydanus et al. 2019; Cranmer et al. 2020). States are
(q, p) or (q, q'), half positions, half momenta or velocities, in canonical coordinates; no dissipation, no inputs.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold._core import Frozen
from twinfold.model._learned.base import AbstractLearned, Context
from twinfold.model._learned.network import Network
from twinfold.numerics._linalg.dense import solve_general
from twinfold.typing import State


class Energy(AbstractLearned):
    """A scalar network of the whole state, which it sees in units of the training data where `scaling="data"`.

    **Example:**

    ```python
    twin = tw.model.hnn(tw.model.Energy(width=16, depth=2))
    drawn = twin.initialise(jax.random.key(0), states=2)
    drawn.simulate([1.0, 0.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    width: int = eqx.field(static=True, default=32)
    depth: int = eqx.field(static=True, default=2)
    scaling: Literal["off", "data"] = eqx.field(static=True, default="off")
    units: Frozen | None = None
    network: Network | None = None

    def check(self, context: Context) -> None:
        if context.states % 2:
            raise ValueError(f"Energy: a mechanical system has as many velocities as positions, not {context.states}.")
        if self.scaling == "data" and context.statistics is not None and context.statistics.x_std is None:
            raise ValueError('Energy(scaling="data"): the states are not what is observed; give scaling="off".')

    def initialise(self, key: PRNGKeyArray, context: Context) -> "Energy":
        network = Network(context.states, 1, self.width, self.depth).initialise(key, context)
        units = None
        if self.scaling == "data":
            statistics = context.statistics
            if statistics is None or statistics.x_mean is None or statistics.x_std is None:
                raise ValueError('Energy(scaling="data"): no training data were given to compute the scaling from.')
            units = Frozen((statistics.x_mean, statistics.x_std))
        return Energy(self.width, self.depth, self.scaling, units, network)

    def __call__(self, x: State) -> Float[Array, ""]:
        if self.network is None:
            raise ValueError("The energy has no weights yet: call `twin.initialise(key, ...)` or `fit` first.")
        if self.units is None:
            return self.network(x)[0]
        center, spread = self.units.value
        # In units of its own the energy of motions of this size is of size one; its gradient has those of the state.
        return jnp.max(spread) ** 2 * self.network((x - center) / spread)[0]


class Hamiltonian(eqx.Module):
    """q' = dH/dp, p' = -dH/dq: a Hamiltonian neural network. Conserves its own H, whatever it has learned."""

    energy: Energy

    def __call__(self, x: State) -> State:
        slope = jax.grad(self.energy)(x)
        half = x.shape[0] // 2
        return jnp.concatenate([slope[half:], -slope[:half]])


class Lagrangian(eqx.Module):
    """q'' = (d2L/dq'2)^-1 (dL/dq - d2L/dq'dq q'): a Lagrangian neural network.

    L = |q'|^2 / 2 + N(q, q'): it starts at unit masses, since a random network has no invertible mass matrix.
    """

    energy: Energy

    def __call__(self, x: State) -> State:
        half = x.shape[0] // 2
        q, v = x[:half], x[half:]

        def lagrangian(q: State, v: State) -> Float[Array, ""]:
            return 0.5 * jnp.sum(v**2) + self.energy(jnp.concatenate([q, v]))

        force = jax.grad(lagrangian)(q, v)
        momentum = jax.grad(lagrangian, argnums=1)
        mass = jax.jacfwd(momentum, argnums=1)(q, v)
        _, carried = jax.jvp(lambda q: momentum(q, v), (q,), (v,))
        return jnp.concatenate([v, solve_general(mass, force - carried)])
