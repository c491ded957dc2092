"""The stiff Van der Pol oscillator: hundreds of units of time on a slow branch, then a jump within a thousandth of one.

x' = v,    v' = mu (1 - x^2) v - x
"""

import jax.numpy as jnp
import numpy as np

from twinfold.typing import Parameters, State

MU = 1e3
START = np.array([2.0, 0.0])
JUMP = 807.0  # time at which the slow branch first ends, for this mu

# At t = 2 mu from `START`: Mazzia and Magherini, Test Set for Initial Value Problem Solvers, 2.4 (2008), problem VDPOL
# (time there in units of mu, the velocity in units of 1 / mu).
FAR_TIME = 2 * MU
FAR_STATE = np.array([0.1706167732170483e1, -0.8928097010247975e0 / MU])


def van_der_pol(x: State, p: Parameters) -> State:
    """The field, with the damping p["mu"]."""
    return jnp.stack([x[1], p["mu"] * (1 - x[0] ** 2) * x[1] - x[0]])
