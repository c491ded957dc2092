"""What a benchmark system is: its truth, what is assumed known of it, its invariants and its settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.numerics import AbstractConstraint


@dataclass(frozen=True)
class System:
    """A constrained dynamical system with the split into known physics and unknown residual of the paper.

    `truth(t, x)` is the whole right-hand side, `physics(t, x)` its known part; the residual network sees
    `residual_states` (and time, where `residual_time`) and adds to `residual_adds_to`. `draw(key, count)`
    draws initial states. `notes` says where the settings come from and what to know of a comparison on it.
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
    horizon: float  # T of the training trajectories
    long_horizon: float  # T of the long evaluation
    substeps: int  # RK4 steps between samples that keep the floor low
    train: int  # number of trajectories of each kind
    valid: int
    test: int
    long_test: int
    notes: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)  # p, where physics or constraint name it
