"""A power grid on a mesh of lines: at every bus, what is fed in flows off through the lines (AC power flow).

    p_i = v_i sum_j v_j (a_ij cos(th_i - th_j) + b_ij sin(th_i - th_j))
    q_i = v_i sum_j v_j (a_ij sin(th_i - th_j) - b_ij cos(th_i - th_j))

with a + i b the admittance matrix. A constraint on a plane graph: G G' couples a bus to the neighbours of its
neighbours, in no order that makes it narrow.
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
    """side^2 buses with four states (v, th, p, q) and two constraints each, lines between neighbours."""

    side: int
    conductance: float = 1.0
    susceptance: float = -5.0

    @property
    def buses(self) -> int:
        return self.side**2

    @functools.cached_property
    def lines(self) -> tuple[np.ndarray, np.ndarray]:
        """The buses at the two ends of each line; constant, so that the sparsity can be seen."""
        bus = np.arange(self.buses).reshape(self.side, self.side)
        ends = [(bus[:, :-1], bus[:, 1:]), (bus[:-1], bus[1:])]
        first = np.concatenate([a.ravel() for a, _ in ends])
        second = np.concatenate([b.ravel() for _, b in ends])
        # Each line seen from either end.
        return np.concatenate([first, second]), np.concatenate([second, first])

    def flows(self, v: Float[Array, " k"], angle: Float[Array, " k"]) -> tuple[Array, Array]:
        """Active and reactive power that leaves each bus."""
        here, there = self.lines
        turn = angle[here] - angle[there]
        cosine, sine = jnp.cos(turn), jnp.sin(turn)
        a, b = self.conductance, self.susceptance
        # A line has a + i b on the diagonal of either end, and its negative in between.
        active = a * v[here] ** 2 - v[here] * v[there] * (a * cosine + b * sine)
        reactive = -b * v[here] ** 2 - v[here] * v[there] * (a * sine - b * cosine)
        nothing = jnp.zeros_like(v)
        return nothing.at[here].add(active), nothing.at[here].add(reactive)

    def balance(self, x: State) -> ConstraintVector:
        """What is fed in less what flows off, active and reactive, at each bus."""
        v, angle, active, reactive = x.reshape(4, -1)
        flow, swing = self.flows(v, angle)
        return jnp.concatenate([active - flow, reactive - swing])

    @functools.cached_property
    def constraint(self) -> Constraint:
        return Constraint(self.balance)

    @property
    def state(self) -> Float[Array, " n"]:
        """A balanced grid: voltages near one, angles that fall smoothly from one corner to the other."""
        row, column = np.divmod(np.arange(self.buses), self.side)
        across = (row + column) / (2 * self.side)
        v = jnp.asarray(1 + 0.02 * np.sin(6 * across))
        angle = jnp.asarray(0.4 * across**2)
        return jnp.concatenate([v, angle, *self.flows(v, angle)])

    def predictor(self, size: float) -> Float[Array, " n"]:
        """The grid with all states moved smoothly, by `size` relative to one."""
        bus = jnp.arange(4 * self.buses) / self.buses
        return self.state + size * jnp.sin(7 * bus)
