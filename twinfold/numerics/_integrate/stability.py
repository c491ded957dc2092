"""Whether an explicit step is too large for how fast a system decays: the mistake that turns 4 V into 8000 V.

A step of length h multiplies the part of an error along an eigenvector of df/dx by R(h lambda), the stability
function of the tableau. Where that part decays (Re lambda < 0) and |R| > 1, the step makes it grow instead.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from twinfold.numerics._integrate.explicit import ExplicitRungeKutta


class Unstable(NamedTuple):
    """The step that was asked for, the fastest decay (both in units of time), and what would do."""

    step: float
    decay: float
    substeps: int


def amplification(method: ExplicitRungeKutta, z: np.ndarray) -> np.ndarray:
    """R(z) = 1 + z b'(I - zA)^-1 1, by the stages themselves."""
    slopes: list[np.ndarray] = []
    for row in method.a:
        stage = np.ones_like(z) + sum((z * weight * k for weight, k in zip(row, slopes, strict=True)), np.zeros_like(z))
        slopes.append(stage)
    return 1 + z * sum(weight * k for weight, k in zip(method.b, slopes, strict=True))


def check_step(
    method: ExplicitRungeKutta, eigenvalues: Sequence[float | complex] | np.ndarray, dt: float, *, reserve: float = 1.0
) -> Unstable | None:
    """None where steps of dt / substeps follow all that decays; else what is wrong and how many substeps are enough.

    With `reserve`, where steps longer by that factor do.
    """
    values = np.asarray(eigenvalues, complex)
    decaying = reserve * values[np.isfinite(values) & (np.real(values) < 0)]
    if not decaying.size or not _grows(method, decaying * dt / method.substeps).any():
        return None
    enough = method.substeps
    while _grows(method, decaying * dt / enough).any() and enough < 1_000_000:
        enough = max(enough + 1, int(1.1 * enough))
    return Unstable(dt / method.substeps, reserve / float(np.abs(np.real(decaying)).max()), enough)


def _grows(method: ExplicitRungeKutta, z: np.ndarray) -> np.ndarray:
    # Slow oscillations that a low order lets grow a little are a matter of accuracy, not of stability.
    return (np.abs(amplification(method, z)) > 1) & (np.abs(z) > 1)
