"""Explicit Runge-Kutta methods as unrolled tableaus: the fastest choice wherever the system is not stiff.

k_i = f(t + c_i h, x + h sum_j a_ij k_j),        x1 = x + h sum_i b_i k_i
"""

from collections.abc import Callable

import equinox as eqx

from twinfold._core import RESULTS
from twinfold.numerics._integrate.base import AbstractIntegrator, IntegratorResult, check_substeps, repeat_steps
from twinfold.typing import Parameters, Scalar, Signal, State


class ExplicitRungeKutta(AbstractIntegrator):
    """The method of a given tableau, with `substeps` equal steps between two samples.

    **Example:**

    ```python
    ralston = tw.numerics.ExplicitRungeKutta(a=((), (2 / 3,)), b=(0.25, 0.75), c=(0.0, 2 / 3), order=2)
    tw.Twin(lambda x: -x, integrator=ralston).simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    a: tuple[tuple[float, ...], ...] = eqx.field(static=True)
    b: tuple[float, ...] = eqx.field(static=True)
    c: tuple[float, ...] = eqx.field(static=True)
    order: int = eqx.field(static=True)
    substeps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_substeps(self.substeps)

    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        h = dt / self.substeps

        def one(t: Scalar, x: State) -> State:
            slopes = []
            for row, node in zip(self.a, self.c, strict=True):
                stage = x
                for weight, slope in zip(row, slopes, strict=True):
                    if weight != 0:
                        stage = stage + (h * weight) * slope
                at = t + h * node
                slopes.append(field(at, stage, w(at), p))
            for weight, slope in zip(self.b, slopes, strict=True):
                if weight != 0:
                    x = x + (h * weight) * slope
            return x

        return IntegratorResult(repeat_steps(one, x, t, dt, self.substeps), RESULTS.successful)


def Euler(substeps: int = 1) -> ExplicitRungeKutta:
    """Forward Euler, order 1.

    **Example:**

    ```python
    tw.Twin(lambda x: -x, integrator=tw.Euler(substeps=2)).simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """
    return ExplicitRungeKutta(a=((),), b=(1.0,), c=(0.0,), order=1, substeps=substeps)


def Midpoint(substeps: int = 1) -> ExplicitRungeKutta:
    """Explicit midpoint, order 2.

    **Example:**

    ```python
    tw.Twin(lambda x: -x, integrator=tw.Midpoint(substeps=2)).simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """
    return ExplicitRungeKutta(a=((), (0.5,)), b=(0.0, 1.0), c=(0.0, 0.5), order=2, substeps=substeps)


def Heun(substeps: int = 1) -> ExplicitRungeKutta:
    """Heun's trapezoidal method, order 2.

    **Example:**

    ```python
    tw.Twin(lambda x: -x, integrator=tw.Heun(substeps=2)).simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """
    return ExplicitRungeKutta(a=((), (1.0,)), b=(0.5, 0.5), c=(0.0, 1.0), order=2, substeps=substeps)


def RK4(substeps: int = 1) -> ExplicitRungeKutta:
    """The classical Runge-Kutta method, order 4.

    **Example:**

    ```python
    tw.Twin(lambda x: -x, integrator=tw.RK4(substeps=2)).simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """
    return ExplicitRungeKutta(
        a=((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)),
        b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
        c=(0.0, 0.5, 0.5, 1.0),
        order=4,
        substeps=substeps,
    )
