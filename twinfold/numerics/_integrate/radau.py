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

from twinfold.numerics._integrate.base import (
    MAX_ERROR,
    AbstractIntegrator,
    IntegratorResult,
    check_max_error,
    check_substeps,
    repeat_implicit_steps,
)
from twinfold.numerics._integrate.stages import solve_stages, step_error
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
# The embedded formula of order 3: its weights of the increments, and the real eigenvalue of the inverse of WEIGHTS.
EMBEDDED = np.array([-13 - 7 * _ROOT, -13 + 7 * _ROOT, -1.0]) / 3
EIGENVALUE = 3 + 3 ** (2 / 3) - 3 ** (1 / 3)


class Radau(AbstractIntegrator):
    """Radau IIA, order 5, with `substeps` equal steps between two samples.

    A step whose Newton iteration fails leaves the state where it was, flagged as `RESULTS.solver`. A step whose error,
    by the embedded formula of order 3, exceeds `max_error` of the size of a state is flagged as `RESULTS.inaccurate`.

    **Example:**

    ```python
    stiff = tw.Twin(lambda t, x: -1000 * (x - jnp.cos(t)), integrator=tw.Radau())
    stiff.simulate([0.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    substeps: int = eqx.field(static=True, default=1)
    max_error: float | None = eqx.field(static=True, default=MAX_ERROR, kw_only=True)

    def __check_init__(self):
        check_substeps(self.substeps)
        check_max_error(self.max_error)

    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        h = dt / self.substeps

        def one(t: Scalar, x: State) -> tuple[State, Flag, Float[Array, ""]]:
            z, solved = radau_increments(field, t, h, x, w, p)
            checked = self.max_error is not None
            error = radau_error(field, t, h, x, z, w, p) if checked else jnp.zeros((), x.dtype)
            return x + z[-1], solved, error

        return repeat_implicit_steps(one, x, t, dt, self.substeps, self.max_error)


def radau_increments(
    field: Callable[..., State], t: Scalar, h: Scalar, x: State, w: Signal, p: Parameters
) -> tuple[Float[Array, "3 n"], Flag]:
    """The increments of one step of length h: the last is that of its end."""
    weights = h * jnp.asarray(WEIGHTS, x.dtype)
    offset = jnp.zeros((len(NODES), x.shape[0]), x.dtype)
    return solve_stages(field, t + h * jnp.asarray(NODES, x.dtype), weights, offset, x, w, p)


def radau_error(
    field: Callable[..., State], t: Scalar, h: Scalar, x: State, z: Float[Array, "3 n"], w: Signal, p: Parameters
) -> Float[Array, ""]:
    """The relative error of a step with the increments z: the difference from the embedded formula (IV.8.19)."""
    difference = (h * field(t, x, w(t), p) + jnp.asarray(EMBEDDED, x.dtype) @ z) / EIGENVALUE
    return step_error(field, t, h, x, x + z[-1], difference, 1 / EIGENVALUE, w, p)
