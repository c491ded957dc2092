"""Robertson's kinetics: three species and rates from 4e-2 to 3e7, the classical test of a stiff integrator.

    x1' = -k1 x1 + k2 x2 x3,    x2' = k1 x1 - k2 x2 x3 - k3 x2^2,    x3' = k3 x2^2,        x1 + x2 + x3 conserved

The dynamics between t = 1e-4 and 1e5 require samples that are equally spaced in the logarithm of time. The second
species is never more than 4e-5 of the total, so a correction of the mass must be weighted by the sizes of the species.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.model import Conserved
from twinfold.typing import Parameters, State

RATES = {"k1": 0.04, "k2": 1e4, "k3": 3e7}
SIZES = np.array([1.0, 1e-5, 1.0])  # typical amounts of the species
METRIC = SIZES**-2.0  # weights corrections by these amounts: `Newton(metric=METRIC)`
START = np.array([1.0, 0.0, 0.0])

# At t = 1e11 from `START`: Mazzia and Magherini, Test Set for Initial Value Problem Solvers, 2.4 (2008), problem ROBER.
FAR_TIME = 1e11
FAR_STATE = np.array([0.2083340149701255e-07, 0.8333360770334713e-13, 0.9999999791665050])


def kinetics(first: Any, second: Any, third: Any) -> State:
    """dx from the rates of the three reactions x1 -> x2, x2 + x3 -> x1 + x3, 2 x2 -> x2 + x3."""
    return jnp.stack([second - first, first - second - third, third])


def robertson(x: State, p: Parameters) -> State:
    """The field, with rate constants p["k1"], p["k2"], p["k3"] (see `RATES`)."""
    return kinetics(p["k1"] * x[0], p["k2"] * x[1] * x[2], p["k3"] * x[1] ** 2)


def mass() -> Conserved:
    """The conserved mass x1 + x2 + x3."""
    return Conserved(lambda x: jnp.sum(x))


def log_times(last: float = 1e5, *, first: float = 1e-4, per_decade: int = 4) -> Float[Array, " T"]:
    """Zero, and then this many samples per decade."""
    count = round(per_decade * np.log10(last / first))
    return jnp.asarray(np.concatenate([[0.0], np.geomspace(first, last, count + 1)]))
