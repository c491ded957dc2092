"""Radau IIA of order 5: the method for stiff systems, L-stable, with three implicit stages solved together.

Use it where an explicit step is limited by something fast that has long decayed. It follows steps of any length that
its Newton iteration can solve, and conserves what is linear in the state exactly. Hairer and Wanner, Solving Ordinary
Differential Equations II, IV.8.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import RESULTS
from twinfold.numerics._integrate.base import AbstractIntegrator, IntegratorResult, check_substeps, repeat_steps
from twinfold.numerics._integrate.stages import solve_stages
from twinfold.typing import Flag, Parameters, Scalar, Signal, State

_ROOT = 6**0.5
NODES = np.array([(4 - _ROOT) / 10, (4 + _ROOT) / 10, 1.0])
WEIGHTS = np.array(
    [
        [(88 - 7 * _ROOT) / 360, (296 - 169 * _ROOT) / 1800, (-2 + 3 * _ROOT) / 225],
        [(296 + 169 * _ROOT) / 1800, (88 + 7 * _ROOT) / 360, (-2 - 3 * _ROOT) / 225],
        [(16 - _ROOT) / 36, (16 + _ROOT) / 36, 1 / 9],
    ]
)


class Radau(AbstractIntegrator):
    """Radau IIA, order 5, with `substeps` equal steps between two samples.

    A step whose Newton iteration fails leaves the state where it was, flagged as `RESULTS.solver`.

    **Example:**

    ```python
    stiff = tw.Twin(lambda t, x: -1000 * (x - jnp.cos(t)), integrator=tw.Radau())
    stiff.simulate([0.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    substeps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_substeps(self.substeps)

    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        h = dt / self.substeps

        def one(t: Scalar, carry: tuple[State, Flag]) -> tuple[State, Flag]:
            x, solved = carry
            x, well = radau_step(field, t, h, x, w, p)
            return x, solved & well

        x1, solved = repeat_steps(one, (x, jnp.array(True)), t, dt, self.substeps)
        return IntegratorResult(x1, RESULTS.where(solved, RESULTS.successful, RESULTS.solver))


def radau_step(
    field: Callable[..., State], t: Scalar, h: Scalar, x: State, w: Signal, p: Parameters
) -> tuple[Float[Array, " n"], Flag]:
    """One step of length h: the last stage is its end."""
    weights = h * jnp.asarray(WEIGHTS, x.dtype)
    offset = jnp.zeros((len(NODES), x.shape[0]), x.dtype)
    z, solved = solve_stages(field, t + h * jnp.asarray(NODES, x.dtype), weights, offset, x, w, p)
    return x + z[-1], solved
