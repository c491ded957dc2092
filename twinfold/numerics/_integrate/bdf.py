"""Backward differentiation formulas over the substeps of a sample: one small implicit solve for each, for stiff fields.

x_{k+1} = a_1 x_k + ... + a_q x_{k+1-q} + h b f(t_{k+1}, x_{k+1})

A cell is a one-step method (a projection may have moved the state), so the formula starts afresh at each sample; its
first q - 1 substeps are taken with Radau IIA, so that no order is lost. Use it with many substeps of a large system,
where Radau's three stages at once cost too much; orders 1 and 2 are stable for all that decays, the higher ones for
what does not oscillate much faster than it decays. Hairer and Wanner, Solving Ordinary Differential Equations II, V.1.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.numerics._integrate.base import (
    MAX_ERROR,
    AbstractIntegrator,
    IntegratorResult,
    check_max_error,
    integrator_result,
)
from twinfold.numerics._integrate.radau import radau_increments
from twinfold.numerics._integrate.stages import solve_stages, step_error
from twinfold.typing import Flag, Parameters, Scalar, Signal, State

# (a_1, ..., a_q) and b.
FORMULAS: dict[int, tuple[tuple[float, ...], float]] = {
    1: ((1.0,), 1.0),
    2: ((4 / 3, -1 / 3), 2 / 3),
    3: ((18 / 11, -9 / 11, 2 / 11), 6 / 11),
    4: ((48 / 25, -36 / 25, 16 / 25, -3 / 25), 12 / 25),
    5: ((300 / 137, -300 / 137, 200 / 137, -75 / 137, 12 / 137), 60 / 137),
}


class BDF(AbstractIntegrator):
    """The formula of order 1 to 5 on `substeps` equal parts of each sample interval (at least `order` of them).

    `BDF(order=1)` is implicit Euler. A substep whose Newton iteration fails leaves the state where it was, flagged as
    `RESULTS.solver`; one that differs from the trapezoidal rule by more than `max_error` of the size of a state is
    flagged as `RESULTS.inaccurate`.

    **Example:**

    ```python
    stiff = tw.Twin(lambda t, x: -1000 * (x - jnp.cos(t)), integrator=tw.BDF(order=2, substeps=8))
    stiff.simulate([0.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    order: int = eqx.field(static=True, default=2)
    substeps: int = eqx.field(static=True, default=4)
    max_error: float | None = eqx.field(static=True, default=MAX_ERROR, kw_only=True)

    def __check_init__(self):
        check_max_error(self.max_error)
        if self.order not in FORMULAS:
            raise ValueError(f"BDF(order={self.order}): give an order from 1 to 5; higher ones are not stable.")
        if self.substeps < self.order:
            raise ValueError(
                f"BDF(order={self.order}, substeps={self.substeps}): the first {self.order - 1} substeps of a sample "
                f"are taken with Radau; give substeps={self.order} or more, or use Radau(substeps={self.substeps})."
            )

    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        h = dt / self.substeps
        ends = t + h * jnp.arange(1, self.substeps + 1, dtype=jnp.result_type(float, h))
        started, solved = self._start(field, t, h, x, w, p)

        def one(carry: tuple, end: Scalar) -> tuple[tuple, None]:
            past, solved, error = carry
            new, well = self._advance(field, end, h, past, w, p)
            if self.max_error is not None:
                error = jnp.maximum(error, _error(field, end, h, past[0], new[0], w, p))
            return (new, solved & well, error), None

        start = (started, solved, jnp.zeros((), x.dtype))
        (past, solved, error), _ = jax.lax.scan(one, start, ends[self.order - 1 :])
        return integrator_result(past[0], solved, error, self.max_error)

    def _start(
        self, field: Callable[..., State], t: Scalar, h: Scalar, x: State, w: Signal, p: Parameters
    ) -> tuple[Float[Array, "order n"], Flag]:
        """The states at the first `order` ends, newest first."""

        def one(carry: tuple, start: Scalar) -> tuple[tuple, State]:
            x, solved = carry
            z, well = radau_increments(field, start, h, x, w, p)
            return (x + z[-1], solved & well), x + z[-1]

        starts = t + h * jnp.arange(self.order - 1, dtype=jnp.result_type(float, h))
        (_, solved), xs = jax.lax.scan(one, (x, jnp.array(True)), starts)
        return jnp.concatenate([x[None], xs])[::-1], solved

    def _advance(
        self,
        field: Callable[..., State],
        end: Scalar,
        h: Scalar,
        past: Float[Array, "order n"],
        w: Signal,
        p: Parameters,
    ) -> tuple[Float[Array, "order n"], Flag]:
        weights, rate = FORMULAS[self.order]
        # The weights add up to one: differences keep the digits of a small step.
        offset = jnp.asarray(np.array(weights), past.dtype) @ (past - past[:1])
        ts, scale = jnp.asarray(end)[None], (h * jnp.full((1, 1), rate, past.dtype)).astype(past.dtype)
        z, solved = solve_stages(field, ts, scale, offset[None], past[0], w, p)
        return jnp.concatenate([past[:1] + z, past[:-1]]), solved


def _error(
    field: Callable[..., State], end: Scalar, h: Scalar, x: State, x1: State, w: Signal, p: Parameters
) -> Float[Array, ""]:
    """The relative error of a substep from x to x1: the difference from the trapezoidal rule.

    More than the error of a formula of order 3 or higher.
    """
    start = end - h
    difference = x + 0.5 * h * (field(start, x, w(start), p) + field(end, x1, w(end), p)) - x1
    return step_error(field, start, h, x, x1, difference, 0.5, w, p)
