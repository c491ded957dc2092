"""A power grid on a mesh of lines: the injected power of each bus equals the flow into its lines (AC power flow).

    p_i = v_i sum_j v_j (a_ij cos(th_i - th_j) + b_ij sin(th_i - th_j))
    q_i = v_i sum_j v_j (a_ij sin(th_i - th_j) - b_ij cos(th_i - th_j))

with a + i b the admittance matrix. The constraint lives on a planar graph: G G' couples a bus to the neighbours of its
neighbours, and no ordering makes it banded.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.model import Constraint
from twinfold.typing import ConstraintVector, State


@dataclasses.dataclass(frozen=True)
class PowerGrid:
    """A square mesh of side^2 buses with four states (v, th, p, q) and two constraints each."""

    side: int
    conductance: float = 1.0
    susceptance: float = -5.0

    @property
    def buses(self) -> int:
        return self.side**2

    @functools.cached_property
    def lines(self) -> tuple[np.ndarray, np.ndarray]:
        """The buses at both ends of each line; constant arrays, so that the sparsity can be detected."""
        bus = np.arange(self.buses).reshape(self.side, self.side)
        ends = [(bus[:, :-1], bus[:, 1:]), (bus[:-1], bus[1:])]
        first = np.concatenate([a.ravel() for a, _ in ends])
        second = np.concatenate([b.ravel() for _, b in ends])
        # Each line in both directions.
        return np.concatenate([first, second]), np.concatenate([second, first])

    def flows(self, v: Float[Array, " k"], angle: Float[Array, " k"]) -> tuple[Array, Array]:
        """Active and reactive power that flows out of each bus."""
        here, there = self.lines
        difference = angle[here] - angle[there]
        cosine, sine = jnp.cos(difference), jnp.sin(difference)
        a, b = self.conductance, self.susceptance
        # A line contributes a + i b to the diagonal of both ends, and its negative off the diagonal.
        active = a * v[here] ** 2 - v[here] * v[there] * (a * cosine + b * sine)
        reactive = -b * v[here] ** 2 - v[here] * v[there] * (a * sine - b * cosine)
        zero = jnp.zeros_like(v)
        return zero.at[here].add(active), zero.at[here].add(reactive)

    def balance(self, x: State) -> ConstraintVector:
        """Injected power minus outflow, active and reactive, at each bus."""
        v, angle, active, reactive = x.reshape(4, -1)
        active_flow, reactive_flow = self.flows(v, angle)
        return jnp.concatenate([active - active_flow, reactive - reactive_flow])

    @functools.cached_property
    def constraint(self) -> Constraint:
        return Constraint(self.balance)

    @property
    def state(self) -> Float[Array, " n"]:
        """A balanced grid: voltages near one, and angles that vary smoothly from one corner to the other."""
        row, column = np.divmod(np.arange(self.buses), self.side)
        position = (row + column) / (2 * self.side)
        v = jnp.asarray(1 + 0.02 * np.sin(6 * position))
        angle = jnp.asarray(0.4 * position**2)
        return jnp.concatenate([v, angle, *self.flows(v, angle)])

    def predictor(self, size: float) -> Float[Array, " n"]:
        """The grid with a smooth displacement of all states by `size`."""
        bus = jnp.arange(4 * self.buses) / self.buses
        return self.state + size * jnp.sin(7 * bus)
