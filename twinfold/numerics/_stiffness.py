"""A word before an explicit step diverges: which time constant it is too long for, and what to use instead."""

import warnings
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold.numerics._cell import Cell
from twinfold.numerics._integrate.explicit import ExplicitRungeKutta
from twinfold.numerics._integrate.stability import check_step
from twinfold.typing import ConstraintVector, Parameters, Scalar, State

LARGEST = 200  # states up to which the eigenvalues of df/dx are computed
RESERVE = 1.25  # a step is near its limit where one that is longer by this factor is beyond it
IMPLICIT = "Radau(), BDF(order=2, substeps=4) or DiffraxStep(diffrax.Kvaerno3())"


def unstable_step(
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
    """What is wrong with steps of `dt` from this state, in words; None where nothing is, or nothing can be said.

    Warns of a step that is stable, but only just: a state with a faster decay may come later.
    """
    if not isinstance(cell.integrator, ExplicitRungeKutta) or x.shape[0] > LARGEST:
        return None
    jacobian = np.asarray(_jacobian(cell, t, x, w, p, level))
    if not np.isfinite(jacobian).all():
        return None
    eigenvalues = np.linalg.eigvals(jacobian)
    found = check_step(cell.integrator, eigenvalues, dt)
    if found is not None:
        return (
            f"integrator: an explicit step of {found.step:.3g} (samples are up to {dt:.3g} apart) is unstable for what "
            f"decays within {found.decay:.3g} {where}. Give it substeps={found.substeps} or more, or an "
            f"implicit integrator: {IMPLICIT}."
        )
    near = check_step(cell.integrator, eigenvalues, dt, reserve=RESERVE)
    if near is not None:
        warnings.warn(
            f"integrator: an explicit step of {near.step:.3g} (samples are up to {dt:.3g} apart) is near its stability "
            f"limit for what decays within {near.decay:.3g} {where}; it diverges where something decays "
            f"faster. Give it substeps={near.substeps} or more, or an implicit integrator: {IMPLICIT}.",
            stacklevel=3,
        )
    return None


@eqx.filter_jit
def _jacobian(cell: Cell, t: Scalar, x: State, w: Any, p: Parameters, level: ConstraintVector) -> jax.Array:
    return jax.jacfwd(lambda x: cell.rate(t, x, w, p, level))(x)
