"""One step of a numerical integrator: the recurrent update of the paper's Eq. 3."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import RESULTS
from twinfold.typing import Flag, Parameters, Scalar, Signal, State


class IntegratorResult(eqx.Module):
    """The state after a step, and whether the integrator's own solve succeeded.

    **Example:**

    ```python
    field = lambda t, x, w, p: -x
    out = tw.RK4().step(field, 0.0, 0.1, jnp.ones(1), lambda t: None, {})
    out.x  # about [0.905]
    ```
    """

    x: State
    result: RESULTS


class AbstractIntegrator(eqx.Module):
    """Advances dx/dt = field(t, x, w(t), p) by one step.

    **Example:**

    ```python
    class ForwardEuler(tw.numerics.AbstractIntegrator):
        def step(self, field, t, dt, x, w, p):
            return tw.numerics.IntegratorResult(x + dt * field(t, x, w(t), p), tw.RESULTS.successful)

    tw.Twin(lambda x: -x, integrator=ForwardEuler()).simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    @abc.abstractmethod
    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        """The state at t + dt. `field(t, x, w, p)` is the vector field, `w(t)` the input within the step."""


MAX_ERROR = 0.1  # of a step, relative to the size of each state: beyond it a step is wrong, not merely inaccurate


def repeat_implicit_steps(
    one: Callable[[Scalar, State], tuple[State, Flag, Float[Array, ""]]],
    x: State,
    t: Scalar,
    dt: Scalar,
    substeps: int,
    max_error: float | None,
) -> IntegratorResult:
    """The state after `substeps` steps `one(t, x)` -> (x, whether it was solved, its error), and how they ended."""

    def step(t: Scalar, carry: tuple[State, Flag, Array]) -> tuple[State, Flag, Array]:
        x, solved, error = carry
        x, well, new = one(t, x)
        return x, solved & well, jnp.maximum(error, new)

    start = (x, jnp.array(True), jnp.zeros((), x.dtype))
    x1, solved, error = repeat_steps(step, start, t, dt, substeps)
    return integrator_result(x1, solved, error, max_error)


def integrator_result(x: State, solved: Flag, error: Float[Array, ""], max_error: float | None) -> IntegratorResult:
    """The outcome of an implicit step: its equations may not be solved, or its `error` exceed what is allowed."""
    result = RESULTS.where(solved, RESULTS.successful, RESULTS.solver)
    if max_error is not None:
        result = RESULTS.where(solved & ~(error <= max_error), RESULTS.inaccurate, result)
    return IntegratorResult(x, result)


def check_max_error(max_error: float | None) -> None:
    """A `ValueError` unless the error can be compared with it."""
    if max_error is not None and not max_error > 0:
        raise ValueError(f"max_error={max_error}: give a positive part of the size of a state, or None for no check.")


def check_substeps(substeps: int) -> None:
    """A `ValueError` unless the number of substeps can be taken."""
    if substeps < 1:
        raise ValueError(f"substeps={substeps}: an integrator takes at least one step between samples.")


def repeat_steps(one: Callable[[Any, Any], Any], carry: Any, t: Scalar, dt: Scalar, substeps: int) -> Any:
    """`carry = one(t_i, carry)` at the starts of `substeps` equal parts of [t, t + dt]."""
    if substeps == 1:
        return one(t, carry)
    starts = t + dt / substeps * jnp.arange(substeps, dtype=jnp.result_type(float, dt))
    return jax.lax.scan(lambda carry, t: (one(t, carry), None), carry, starts)[0]
