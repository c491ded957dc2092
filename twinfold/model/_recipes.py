"""The paper's models and their rivals as recipes over the same parts: what is known x what is enforced."""

from collections.abc import Callable
from typing import Any

from twinfold.model._fields import BlackBox, GreyBox
from twinfold.model._learned.energy import Energy, Hamiltonian, Lagrangian
from twinfold.model._stabilised import Stabilised
from twinfold.model._twin import Twin
from twinfold.numerics import AbstractConstraint, AbstractProjection, Newton


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


def snde(network: Callable, constraint: AbstractConstraint, gamma: float = 8.0, **twin: Any) -> Twin:
    """SNDE: the whole field is learned and pulled back to the manifold at the rate `gamma` (White et al.)."""
    return Twin(Stabilised(BlackBox(network), constraint, gamma), constraint=constraint, **twin)


def hnn(energy: Energy, **twin: Any) -> Twin:
    """HNN: the field of a learned Hamiltonian of (q, p)."""
    return Twin(Hamiltonian(energy), **twin)


def lnn(energy: Energy, **twin: Any) -> Twin:
    """LNN: the field of a learned Lagrangian of (q, q')."""
    return Twin(Lagrangian(energy), **twin)


def pinn(trajectory: Callable, physics: Callable, residual: Callable, **twin: Any) -> Twin:
    """PINN: the trajectory as a network of time and initial state; fit it with `Loss(collocation=...)`.

    The field (known physics and a network for the rest) is not integrated: the loss asks the trajectory to obey it.
    """
    return Twin(GreyBox(physics, residual), trajectory=trajectory, **twin)
