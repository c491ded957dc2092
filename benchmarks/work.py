"""The work that every contender does, as plain NumPy: initial states, target trajectories, network weights.

A neural ODE (2 hidden layers of 64, tanh) learns two-body orbits: classical RK4 at a constant step, 200 steps,
16 trajectories; one training step is the mean squared error over all samples, its gradient, and an Adam update.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

STEPS = 200
DT = 0.05
TRAJECTORIES = 16
STATES = 4
WIDTH = 64
RATE = 1e-3
SEEDS = 25


@dataclass(frozen=True)
class Work:
    """The inputs of a training step. `weights` is (W, b) for each layer; `target` starts after the first step."""

    x0: np.ndarray
    ts: np.ndarray
    target: np.ndarray
    weights: list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Task:
    """A contender, ready to run: `step()` does the work once and returns when it is done."""

    step: Callable[[], object]
    compile_seconds: float | None
    loss: float
    gradient: np.ndarray | None
    notes: str = ""


def make_work(dtype: str) -> Work:
    """The same numbers for every contender, in its dtype."""
    random = np.random.default_rng(0)
    e = random.uniform(0.1, 0.4, TRAJECTORIES)
    zero = np.zeros_like(e)
    x0 = np.stack([1 - e, zero, zero, np.sqrt((1 + e) / (1 - e))], axis=1)
    sizes = [STATES, WIDTH, WIDTH, STATES]
    weights = []
    for columns, rows in pairwise(sizes):
        bound = 1 / np.sqrt(columns)
        draws = random.uniform(-bound, bound, (rows, columns)), random.uniform(-bound, bound, rows)
        weights.append((draws[0].astype(dtype), draws[1].astype(dtype)))
    ts = DT * np.arange(STEPS + 1)
    return Work(x0.astype(dtype), ts.astype(dtype), _orbits(x0).astype(dtype), weights)


def _orbits(x: np.ndarray, substeps: int = 20) -> np.ndarray:
    """Two-body orbits at all samples but the first, [trajectory, step, state]."""

    def field(x: np.ndarray) -> np.ndarray:
        q, p = x[:, :2], x[:, 2:]
        return np.concatenate([p, -q / np.linalg.norm(q, axis=1, keepdims=True) ** 3], axis=1)

    h, samples = DT / substeps, []
    for _ in range(STEPS):
        for _ in range(substeps):
            k1 = field(x)
            k2 = field(x + h / 2 * k1)
            k3 = field(x + h / 2 * k2)
            k4 = field(x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        samples.append(x)
    return np.stack(samples, axis=1)
