"""The description of a system with known truth: physics, residual, constraint, and the settings of an experiment."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.numerics import AbstractConstraint


@dataclass(frozen=True)
class System:
    """A constrained dynamical system whose right-hand side is split into known physics and an unknown residual.

    **Arguments:**

    - `name`, `title`: for code and for tables; `state_names`.
    - `truth(t, x)`, the whole right-hand side; `physics(t, x)`, its known part.
    - `residual_states`, `residual_time`: the states that the residual depends on, and whether it depends on time;
      `residual_adds_to`: the derivatives that it contributes to.
    - `constraint`: the invariants of the truth.
    - `draw(key, count)`: random initial states.
    - `dt`, `horizon`, `long_horizon`: the sampling step, and the end times of training and of long evaluation.
    - `substeps`: RK4 steps per sample that keep the discretisation error small.
    - `train`, `valid`, `test`, `long_test`: numbers of trajectories.
    - `notes`: sources of the settings, and remarks on comparisons.
    - `params`: p, if physics or constraint use it.

    **Example:**

    ```python
    system = tw.systems.two_body()
    residual = tw.MLP(states=system.residual_states, adds_to=system.residual_adds_to, width=8, depth=1)
    twin = tw.phrpinn(system.physics, residual, system.constraint, integrator=tw.RK4(system.substeps))
    ```
    """

    name: str
    title: str
    state_names: tuple[str, ...]
    truth: Callable
    physics: Callable
    residual_states: tuple[int, ...]
    residual_adds_to: tuple[int, ...]
    residual_time: bool
    constraint: AbstractConstraint
    draw: Callable[[PRNGKeyArray, int], Float[Array, "count n"]]
    dt: float
    horizon: float
    long_horizon: float
    substeps: int
    train: int
    valid: int
    test: int
    long_test: int
    notes: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
