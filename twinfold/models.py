"""The paper's models as recipes over the same parts: what is known (nothing or physics) x what is enforced."""

from collections.abc import Callable
from typing import Any

from twinfold.constraint.base import AbstractConstraint
from twinfold.field.boxes import BlackBox, GreyBox
from twinfold.field.network import matched_width
from twinfold.field.residual import MLP
from twinfold.integrate.explicit import RK4
from twinfold.names import unknown_name
from twinfold.project.base import AbstractProjection
from twinfold.project.newton import Newton
from twinfold.project.tangent import Tangent
from twinfold.systems.base import System
from twinfold.twin import Twin


def node(network: Callable, **twin: Any) -> Twin:
    """NODE: the whole field is learned, no constraint is enforced."""
    return Twin(BlackBox(network), **twin)


def hrpinn(physics: Callable, residual: Callable, **twin: Any) -> Twin:
    """HRPINN: physics in the integrator, a network for the residual, no constraint enforced."""
    return Twin(GreyBox(physics, residual), **twin)


def pnode(
    network: Callable,
    constraint: AbstractConstraint,
    projection: AbstractProjection | None = None,
    **twin: Any,
) -> Twin:
    """PNODE: the whole field is learned, each step is projected (robustly, unless told otherwise)."""
    return node(network, constraint=constraint, projection=projection or Newton(), **twin)


def phrpinn(
    physics: Callable,
    residual: Callable,
    constraint: AbstractConstraint,
    projection: AbstractProjection | None = None,
    **twin: Any,
) -> Twin:
    """PHRPINN: physics in the integrator, a network for the residual, each step projected."""
    return hrpinn(physics, residual, constraint=constraint, projection=projection or Newton(), **twin)


MODELS = ("node", "hrpinn", "pnode_fast", "pnode_robust", "phrpinn_fast", "phrpinn_robust")


def model_for(name: str, system: System, *, parameters: int = 1200, depth: int = 2) -> Twin:
    """One of `MODELS` for a benchmark system, with a network as near as possible to `parameters` weights."""
    if name not in MODELS:
        raise ValueError(f"there is no model {unknown_name(name, MODELS)}")
    states = tuple(range(len(system.state_names)))
    seen, adds_to = (states, states) if "node" in name else (system.residual_states, system.residual_adds_to)
    width = matched_width(parameters, len(seen) + system.residual_time, len(adds_to), depth)
    network = MLP(states=seen, time=system.residual_time, adds_to=adds_to, width=width, depth=depth)
    common = {"integrator": RK4(system.substeps), "constraint": system.constraint}
    projection = {"fast": Tangent(), "robust": Newton()}.get(name.split("_")[-1])
    if name == "node":
        return node(network, **common)
    if name == "hrpinn":
        return hrpinn(system.physics, network, **common)
    if name.startswith("pnode"):
        return pnode(network, projection=projection, **common)
    return phrpinn(system.physics, network, projection=projection, **common)
