"""The models of the comparison: each can be built for any benchmark system, with the same number of weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from twinfold import model as models
from twinfold.io import unknown_name
from twinfold.model import MLP, Energy, Scaling, Slack, Statistics, TrajectoryNetwork, Twin, matched_width
from twinfold.numerics import RK4, AbstractProjection, Hold, Newton, Tangent
from twinfold.systems import System

DEPTH = 2
CANONICAL = ("mass_spring", "two_body", "nonlinear_spring")


@dataclass(frozen=True)
class Design:
    """The inputs of a contender: system, number of weights, and statistics for scaling (None: raw data)."""

    system: System
    parameters: int
    statistics: Statistics | None

    @property
    def common(self) -> dict[str, Any]:
        """Arguments that all twins of a system share."""
        return {
            "integrator": RK4(self.system.substeps),
            "constraint": self.system.constraint,
            "params": self.system.params,
        }

    def black_box(self) -> MLP:
        """A network for the entire field."""
        return self._network(tuple(range(len(self.system.state_names))), None, self.parameters)

    def residual(self, parameters: int | None = None) -> MLP:
        """A network for the unknown part of the field."""
        return self._network(self.system.residual_states, self.system.residual_adds_to, parameters or self.parameters)

    def energy(self) -> Energy:
        """A scalar network of the state (Hamiltonian or Lagrangian)."""
        width = matched_width(self.parameters, len(self.system.state_names), 1, DEPTH)
        return Energy(width, DEPTH, "off" if self.statistics is None else "data")

    def trajectory(self, parameters: int) -> TrajectoryNetwork:
        """A network that maps time and initial state to the state."""
        states = len(self.system.state_names)
        width, units = matched_width(parameters, 1 + states, states, DEPTH), self.statistics
        if units is None or units.x_mean is None or units.x_std is None:
            return TrajectoryNetwork(width, DEPTH)
        center = jnp.concatenate([units.t_mean[None], units.x_mean])
        return TrajectoryNetwork(
            width, DEPTH, Scaling(center, jnp.concatenate([units.t_std[None], units.x_std]), units.x_std)
        )

    def _network(self, states: tuple[int, ...], adds_to: tuple[int, ...] | None, parameters: int) -> MLP:
        time = self.system.residual_time
        outputs = len(self.system.state_names) if adds_to is None else len(adds_to)
        width = matched_width(parameters, len(states) + time, outputs, DEPTH)
        scaling = self._scaling(states, adds_to)
        # Time leaves what was seen for good: a residual fades there. Elsewhere, networks are compared as they
        # extrapolate.
        outside = "auto" if time and adds_to is not None else "free"
        return MLP(
            states=states, time=time, adds_to=adds_to, width=width, depth=DEPTH, scaling=scaling, outside=outside
        )

    def _scaling(self, states: tuple[int, ...], adds_to: tuple[int, ...] | None) -> Any:
        """Scaling passed by value: a twin whose outputs are not its states cannot compute it from the data."""
        units = self.statistics
        if units is None or units.x_mean is None or units.x_std is None or units.rate_std is None:
            return "off"
        center, spread = units.x_mean[jnp.array(states)], units.x_std[jnp.array(states)]
        if self.system.residual_time:
            center = jnp.concatenate([center, units.t_mean[None]])
            spread = jnp.concatenate([spread, units.t_std[None]])
        return Scaling(center, spread, units.rate_std if adds_to is None else units.rate_std[jnp.array(adds_to)])


@dataclass(frozen=True)
class Contender:
    """A model of the comparison.

    **Arguments:** `build` returns the twin; `soft` and `collocation`, weights of the loss; `multipliers`: train with
    the augmented Lagrangian; `trained`: whether the model has anything to train; `canonical`: whether it requires
    canonical coordinates.
    """

    title: str
    build: Callable[[Design], Twin]
    soft: float = 0.0
    collocation: float = 0.0
    multipliers: bool = False
    trained: bool = True
    canonical: bool = False

    def unsupported(self, system: str) -> str:
        """Why the model cannot represent a system; empty if it can."""
        if not self.canonical or system in CANONICAL:
            return ""
        return f"{self.title} requires canonical coordinates of a conservative mechanical system; {system} has none."


def _projected(grey: bool, projection: AbstractProjection) -> Callable[[Design], Twin]:
    def build(design: Design) -> Twin:
        if grey:
            return models.phrpinn(design.system.physics, design.residual(), projection=projection, **design.common)
        return models.pnode(design.black_box(), projection=projection, **design.common)

    return build


def _slack(design: Design) -> Twin:
    """PHRPINN robust whose constraint may give way as far as the data ask for."""
    common = design.common | {"constraint": Slack(design.system.constraint)}
    return models.phrpinn(design.system.physics, design.residual(), projection=Newton(), **common)


def _hrpinn(design: Design) -> Twin:
    return models.hrpinn(design.system.physics, design.residual(), **design.common)


def _pinn(design: Design) -> Twin:
    """Two networks with half of the weights each: one for the trajectory, one for the unknown part of the field."""
    half = design.parameters // 2
    common = {name: value for name, value in design.common.items() if name != "integrator"}
    return models.pinn(design.trajectory(half), design.system.physics, design.residual(half), **common)


def _constant(design: Design) -> Twin:
    """Predicts the mean of the training data."""
    units = design.statistics
    assert units is not None
    assert units.x_mean is not None
    mean = units.x_mean
    common: dict[str, Any] = design.common | {"integrator": Hold()}
    return Twin(lambda x: jnp.zeros_like(x), observe=lambda x: mean.astype(x.dtype), initial=lambda y: y, **common)


CONTENDERS: dict[str, Contender] = {
    "constant": Contender("constant", _constant, trained=False),
    "physics": Contender("known physics", lambda design: Twin(design.system.physics, **design.common), trained=False),
    "node": Contender("NODE", lambda design: models.node(design.black_box(), **design.common)),
    "pinn": Contender("PINN", _pinn, soft=0.1, collocation=0.1),
    "hrpinn": Contender("HRPINN", _hrpinn),
    "hrpinn_soft": Contender("HRPINN soft", _hrpinn, soft=1.0),
    "alm": Contender("HRPINN ALM", _hrpinn, soft=1.0, multipliers=True),
    "snde": Contender("SNDE", lambda design: models.snde(design.black_box(), **design.common)),
    "hnn": Contender("HNN", lambda design: models.hnn(design.energy(), **design.common), canonical=True),
    "lnn": Contender("LNN", lambda design: models.lnn(design.energy(), **design.common), canonical=True),
    "pnode_fast": Contender("PNODE fast", _projected(False, Tangent())),
    "pnode_robust": Contender("PNODE robust", _projected(False, Newton())),
    "phrpinn_fast": Contender("PHRPINN fast", _projected(True, Tangent())),
    "phrpinn_robust": Contender("PHRPINN robust", _projected(True, Newton())),
    # For constraints that may be wrong: see the experiment `misspecification`.
    "phrpinn_slack": Contender("PHRPINN slack", _slack),
}


def contender(name: str) -> Contender:
    """The model with this name. **Raises:** `ValueError` that lists the names."""
    if name not in CONTENDERS:
        raise ValueError(f"there is no model {unknown_name(name, CONTENDERS)}")
    return CONTENDERS[name]


def model_for(name: str, system: System, *, parameters: int = 1200) -> Twin:
    """The twin of a contender for a system, without scaling."""
    return contender(name).build(Design(system, parameters, None))
