"""No integration: the state stays as it is. For models that give the state as a function of time (a PINN)."""

from collections.abc import Callable

import jax.numpy as jnp

from twinfold._core import RESULTS
from twinfold.numerics._integrate.base import AbstractIntegrator, IntegratorResult
from twinfold.typing import Parameters, Scalar, Signal, State


class Hold(AbstractIntegrator):
    """x_{k+1} = x_k = x_0: the field is not integrated, it only enters the loss (`Loss(collocation=...)`).

    **Example:**

    ```python
    tw.Twin(lambda x: -x, integrator=tw.numerics.Hold()).simulate([1.0], jnp.linspace(0, 1, 3)).xs[-1]  # [1.]
    ```
    """

    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        del field, t, dt, w, p
        return IntegratorResult(jnp.asarray(x), RESULTS.successful)
