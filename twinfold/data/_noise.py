"""How noisy measured values are, from how well a parabola through three neighbours of a sample predicts it."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from twinfold.data._run import Run

KEPT = 0.9  # of the squares: kinks (a step of an input, a stop) are no noise
MIN_VALUES = 8  # errors, below which nothing can be said


def output_noise(
    runs: Sequence[Run], samples: int, *, spread: Float[np.ndarray, " k"], unknown: float
) -> Float[np.ndarray, " k"]:
    """The standard deviation of the noise of each output, as a fraction of its spread.

    **Arguments:** `runs`, of which the first `samples` are used; `spread` of each output; `unknown`, the fraction for
    an output with too few values. A signal that bends much between two samples counts as noise in part.
    """
    found = []
    for output, unit in enumerate(np.asarray(spread, float)):
        parts = [_errors(run.ts[:samples], run.y[:samples, output]) for run in runs]
        squares = np.sort(np.concatenate(parts) ** 2)
        squares = squares[: int(np.ceil(KEPT * len(squares)))]
        found.append(np.sqrt(squares.mean()) / unit if len(squares) >= MIN_VALUES else unknown)
    return np.array(found)


def _errors(ts: Float[np.ndarray, " T"], y: Float[np.ndarray, " T"]) -> Float[np.ndarray, " m"]:
    """The difference of each sample from the parabola through the one before and the two after it, in units of noise.

    Missing samples are left out; the weights of the neighbours follow from the times.
    """
    there = np.isfinite(y)
    ts, y = ts[there], y[there]
    if len(ts) < 4:
        return np.zeros(0)
    at, nodes, values = ts[1:-2], np.stack([ts[:-3], ts[2:-1], ts[3:]]), np.stack([y[:-3], y[2:-1], y[3:]])
    weights = np.ones_like(nodes)
    for i in range(3):
        for j in range(3):
            if i != j:
                weights[i] *= (at - nodes[j]) / (nodes[i] - nodes[j])
    return (y[1:-2] - (weights * values).sum(0)) / np.sqrt(1 + (weights**2).sum(0))
