"""No integration: the state stays as it is. For models that say what happens as a function of time (a PINN)."""

from collections.abc import Callable

import jax.numpy as jnp

from twinfold._core import RESULTS
from twinfold.numerics._integrate.base import AbstractIntegrator, Predicted
from twinfold.typing import Parameters, Scalar, Signal, State


class Hold(AbstractIntegrator):
    """x_{k+1} = x_k = x_0: the field is not integrated, it only enters the loss (`Loss(collocation=...)`)."""

    def step(self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters) -> Predicted:
        del field, t, dt, w, p
        return Predicted(jnp.asarray(x), RESULTS.successful)
