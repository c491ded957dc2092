"""Stability check for explicit steps: whether a step is too long for how fast a system decays.

A step of length h multiplies the part of an error along an eigenvector of df/dx by R(h lambda), the stability
function of the tableau. Where that part decays (Re lambda < 0) and |R| > 1, the step makes it grow instead.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from twinfold.numerics._cell import Cell
from twinfold.numerics._integrate.explicit import ExplicitRungeKutta
from twinfold.typing import ConstraintVector, Parameters, Scalar, State

MAX_STATES = 200  # up to which the eigenvalues of df/dx are computed
RESERVE = 1.25  # a step is near its limit if one that is longer by this factor is beyond it
MAX_SUBSTEPS = 1_000_000
IMPLICIT = "Radau(), BDF(order=2, substeps=4) or DiffraxStep(diffrax.Kvaerno3())"


class UnstableStep(NamedTuple):
    """A step that is too long: its length, the fastest decay time, and the number of substeps that is enough."""

    step: float
    decay: float
    substeps: int


def unstable_step(
    method: ExplicitRungeKutta, eigenvalues: Sequence[float | complex] | np.ndarray, dt: float, *, reserve: float = 1.0
) -> UnstableStep | None:
    """What is wrong with steps of dt / substeps for a system with these eigenvalues of df/dx; None if nothing is.

    **Arguments:** `method`; `eigenvalues`; `dt`, the sampling interval; `reserve`: test steps longer by this factor.

    **Example:**

    ```python
    tw.numerics.unstable_step(tw.RK4(), [-1.0, -1000.0], 0.01)  # substeps=4 would be enough
    ```
    """
    values = np.asarray(eigenvalues, complex)
    decaying = reserve * values[np.isfinite(values) & (np.real(values) < 0)]
    if not decaying.size or not _grows(method, decaying * dt / method.substeps).any():
        return None
    enough = method.substeps
    while _grows(method, decaying * dt / enough).any() and enough < MAX_SUBSTEPS:
        enough = max(enough + 1, int(1.1 * enough))
    return UnstableStep(dt / method.substeps, reserve / float(np.abs(np.real(decaying)).max()), enough)


def amplification(method: ExplicitRungeKutta, z: np.ndarray) -> np.ndarray:
    """R(z) = 1 + z b'(I - zA)^-1 1, by the stages themselves."""
    slopes: list[np.ndarray] = []
    for row in method.a:
        stage = np.ones_like(z) + sum((z * weight * k for weight, k in zip(row, slopes, strict=True)), np.zeros_like(z))
        slopes.append(stage)
    return 1 + z * sum(weight * k for weight, k in zip(method.b, slopes, strict=True))


def _grows(method: ExplicitRungeKutta, z: np.ndarray) -> np.ndarray:
    # A slow oscillation that a low order lets grow a little is a matter of accuracy, not of stability.
    return (np.abs(amplification(method, z)) > 1) & (np.abs(z) > 1)


def stability_problem(
    cell: Cell,
    t: Scalar,
    x: State,
    w: Any,
    p: Parameters,
    level: ConstraintVector,
    dt: float,
    *,
    where: str = "at the initial state",
) -> str | None:
    """A message if an explicit step of `dt` from this state is unstable; None if it is stable, or nothing is known.

    Warns of a step that is near its limit: a state with a faster decay may come later.
    """
    if not isinstance(cell.integrator, ExplicitRungeKutta) or x.shape[0] > MAX_STATES:
        return None
    jacobian = np.asarray(_jacobian(cell, t, x, w, p, level))
    if not np.isfinite(jacobian).all():
        return None
    eigenvalues = np.linalg.eigvals(jacobian)
    found = unstable_step(cell.integrator, eigenvalues, dt)
    if found is not None:
        return (
            f"integrator: an explicit step of {found.step:.3g} (samples are up to {dt:.3g} apart) is unstable for a "
            f"decay within {found.decay:.3g} {where}. Give it substeps={found.substeps} or more, or an "
            f"implicit integrator: {IMPLICIT}."
        )
    near = unstable_step(cell.integrator, eigenvalues, dt, reserve=RESERVE)
    if near is not None:
        warnings.warn(
            f"integrator: an explicit step of {near.step:.3g} (samples are up to {dt:.3g} apart) is near its stability "
            f"limit for a decay within {near.decay:.3g} {where}; it diverges where something decays "
            f"faster. Give it substeps={near.substeps} or more, or an implicit integrator: {IMPLICIT}.",
            stacklevel=3,
        )
    return None


@eqx.filter_jit
def _jacobian(cell: Cell, t: Scalar, x: State, w: Any, p: Parameters, level: ConstraintVector) -> jax.Array:
    return jax.jacfwd(lambda x: cell.rate(t, x, w, p, level))(x)
