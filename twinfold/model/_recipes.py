"""The paper's models and their rivals as recipes over the same parts: what is known x what is enforced."""

from collections.abc import Callable
from typing import Any

from twinfold.model._fields import BlackBox, GreyBox
from twinfold.model._learned.energy import Energy, Hamiltonian, Lagrangian
from twinfold.model._stabilised import Stabilised
from twinfold.model._twin import Twin
from twinfold.numerics import AbstractConstraint, AbstractProjection, Newton


def node(network: Callable, **twin: Any) -> Twin:
    """NODE: the whole field is learned, no constraint is enforced.

    **Example:**

    ```python
    tw.node(tw.MLP(width=16, depth=2))
    ```
    """
    return Twin(BlackBox(network), **twin)


def hrpinn(physics: Callable, residual: Callable, **twin: Any) -> Twin:
    """HRPINN: physics in the integrator, a network for the residual, no constraint enforced.

    **Example:**

    ```python
    tw.hrpinn(lambda x: jnp.stack([x[1], -x[0]]), tw.MLP(states=[1], adds_to=[1]))
    ```
    """
    return Twin(GreyBox(physics, residual), **twin)


def pnode(
    network: Callable,
    constraint: AbstractConstraint,
    projection: AbstractProjection | None = None,
    **twin: Any,
) -> Twin:
    """PNODE: the whole field is learned, each step is projected (with `Newton` when left out).

    **Example:**

    ```python
    tw.pnode(tw.MLP(width=16, depth=2), tw.Conserved(lambda x: 0.5 * x @ x))
    ```
    """
    return node(network, constraint=constraint, projection=projection or Newton(), **twin)


def phrpinn(
    physics: Callable,
    residual: Callable,
    constraint: AbstractConstraint,
    projection: AbstractProjection | None = None,
    **twin: Any,
) -> Twin:
    """PHRPINN: physics in the integrator, a network for the residual, each step projected.

    **Example:**

    ```python
    physics = lambda x: jnp.stack([x[1], jnp.zeros_like(x[0])])
    tw.phrpinn(physics, tw.MLP(states=[0], adds_to=[1]), tw.Conserved(lambda x: 0.5 * x @ x))
    ```
    """
    return hrpinn(physics, residual, constraint=constraint, projection=projection or Newton(), **twin)


def snde(network: Callable, constraint: AbstractConstraint, gamma: float = 8.0, **twin: Any) -> Twin:
    """SNDE: the whole field is learned and pulled back to the manifold at the rate `gamma` (White et al.).

    **Example:**

    ```python
    tw.model.snde(tw.MLP(width=16, depth=2), tw.Conserved(lambda x: 0.5 * x @ x), gamma=8.0)
    ```
    """
    return Twin(Stabilised(BlackBox(network), constraint, gamma), constraint=constraint, **twin)


def hnn(energy: Energy, **twin: Any) -> Twin:
    """HNN: the field of a learned Hamiltonian of (q, p).

    **Example:**

    ```python
    tw.model.hnn(tw.model.Energy(width=16, depth=2))
    ```
    """
    return Twin(Hamiltonian(energy), **twin)


def lnn(energy: Energy, **twin: Any) -> Twin:
    """LNN: the field of a learned Lagrangian of (q, q').

    **Example:**

    ```python
    tw.model.lnn(tw.model.Energy(width=16, depth=2))
    ```
    """
    return Twin(Lagrangian(energy), **twin)


def pinn(trajectory: Callable, physics: Callable, residual: Callable, **twin: Any) -> Twin:
    """PINN: the trajectory as a network of time and initial state; fit it with `Loss(collocation=...)`.

    The field (known physics and a network for the rest) is not integrated: the loss penalises a trajectory that does
    not obey it.

    **Example:**

    ```python
    network = tw.model.TrajectoryNetwork(width=16, depth=2)
    tw.model.pinn(network, lambda x: -x, tw.MLP(width=8, depth=1))
    ```
    """
    return Twin(GreyBox(physics, residual), trajectory=trajectory, **twin)
