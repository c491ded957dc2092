"""The one table of constraints that the tests of projections, cells and rollouts share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.numerics._constraint import AbstractConstraint


@dataclass(frozen=True)
class Case:
    """A constraint with a state on it (`on`, at time `t`) and one moderately off it."""

    name: str
    constraint: AbstractConstraint
    on: np.ndarray
    off: np.ndarray
    t: float = 0.0
    p: dict[str, Any] = field(default_factory=dict)
    inside: Callable = lambda x: jnp.array(True)  # whether g is defined at x
    timed: bool = False
    affine: bool = False

    @property
    def n(self) -> int:
        return self.on.shape[0]

    def arguments(self, dtype: Any = jnp.float64) -> tuple:
        """(t, x off the manifold, p, level of `on`), each in `dtype`."""
        t, on, off = (jnp.asarray(value, dtype) for value in (self.t, self.on, self.off))
        p = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self.p)
        return t, off, p, self.constraint.level(t, on, p)


def energy(x):
    return 0.5 * (x @ x)


def lotka_volterra(x):
    return x[0] - 3 * jnp.log(x[0]) + x[1] - 1.5 * jnp.log(x[1])


def angular_momentum(x):
    return x[0] * x[3] - x[1] * x[2]


def kepler_energy(x):
    return 0.5 * (x[2] ** 2 + x[3] ** 2) - 1 / jnp.sqrt(x[0] ** 2 + x[1] ** 2)


def spring_energy(x):
    return 0.5 * (x[2] ** 2 + x[3] ** 2) + 0.25 * (x[0] ** 2 + x[1] ** 2) ** 2


def tip(t, x):
    at = jnp.stack([jnp.sum(jnp.cos(x)), jnp.sum(jnp.sin(x))])
    return at - jnp.stack([-jnp.sin(2 * jnp.pi * t) / (2 * jnp.pi), jnp.zeros_like(t)])


def ellipse(x, p):
    return jnp.sum((x / p["axes"]) ** 2) - 1


_RNG = np.random.default_rng(0)
_ROWS = _RNG.normal(size=(10, 12)) + 3 * np.eye(10, 12)


def ten_of_twelve(x):
    bent = 0.2 * jnp.concatenate([jnp.zeros(6, x.dtype), x[:4] ** 2 + x[4:8] * x[8:12]])
    return jnp.asarray(_ROWS, x.dtype) @ x + bent


def mass(x):
    return x[0] + 2 * x[1] - x[2]


_KEPLER = np.array([0.8, 0.5, -0.9, 0.7])
_SPRING = np.array([0.9, -0.2, 0.6, 0.5])
_ARM = np.array([1.0, -0.9, 1.1])
_WIDE = _RNG.normal(size=12)

CASES = [
    Case("circle", Conserved(energy), np.array([0.8, -0.6]), np.array([0.95, -0.5])),
    Case(
        "lotka_volterra",
        Conserved(lotka_volterra),
        np.array([1.2, 0.9]),
        np.array([1.35, 0.75]),
        inside=lambda x: jnp.all(x > 0),
    ),
    Case("two_body_L", Conserved(angular_momentum), _KEPLER, _KEPLER + np.array([0.05, -0.04, 0.1, 0.08])),
    Case(
        "two_body_LE",
        Stack([Conserved(angular_momentum), Conserved(kepler_energy)]),
        _KEPLER,
        _KEPLER + np.array([0.05, -0.04, 0.1, 0.08]),
    ),
    Case(
        "spring_EL",
        Stack([Conserved(spring_energy), Conserved(angular_momentum)]),
        _SPRING,
        _SPRING + np.array([0.08, 0.05, -0.1, 0.07]),
    ),
    Case("robot_arm", Conserved(tip), _ARM, _ARM + np.array([0.1, 0.15, -0.1]), t=0.3, timed=True),
    Case("rigid_body", Conserved(energy), np.array([0.6, 0.0, 0.8]), np.array([0.7, 0.1, 0.8])),
    Case(
        "ellipse",
        Constraint(ellipse),
        np.array([2 * np.cos(0.7), 0.5 * np.sin(0.7)]),
        np.array([1.7, 0.5]),
        p={"axes": np.array([2.0, 0.5])},
    ),
    Case("wide", Conserved(ten_of_twelve), _WIDE, _WIDE + 0.05 * _RNG.normal(size=12)),
    Case("affine", Conserved(mass), np.array([1.0, 0.5, -0.2]), np.array([1.2, 0.3, 0.4]), affine=True),
]
BY_NAME = {case.name: case for case in CASES}
