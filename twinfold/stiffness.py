"""A word before an explicit step diverges: which time constant it is too long for, and what to use instead."""

from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold._types import Level, Parameters, Scalar, State
from twinfold.cell import Cell
from twinfold.integrate.explicit import ExplicitRungeKutta
from twinfold.integrate.stability import check_step

LARGEST = 200  # states up to which the eigenvalues of df/dx are computed


def unstable_step(cell: Cell, t: Scalar, x: State, w: Any, p: Parameters, level: Level, dt: float) -> str | None:
    """What is wrong with steps of `dt` from this state, in words; None where nothing is, or nothing can be said."""
    if not isinstance(cell.integrator, ExplicitRungeKutta) or x.shape[0] > LARGEST:
        return None
    jacobian = np.asarray(_jacobian(cell, t, x, w, p, level))
    if not np.isfinite(jacobian).all():
        return None
    found = check_step(cell.integrator, np.linalg.eigvals(jacobian), dt)
    if found is None:
        return None
    return (
        f"integrator: an explicit step of {found.step:.3g} (samples are up to {dt:.3g} apart) is unstable for what "
        f"decays within {found.decay:.3g} at the initial state. Give it substeps={found.substeps} or more, or an "
        "implicit integrator: DiffraxStep(diffrax.Kvaerno3()), DiffraxStep(diffrax.ImplicitEuler())."
    )


@eqx.filter_jit
def _jacobian(cell: Cell, t: Scalar, x: State, w: Any, p: Parameters, level: Level) -> jax.Array:
    return jax.jacfwd(lambda x: cell.rate(t, x, w, p, level))(x)
