"""The root of an increasing function of one variable: the charge that explains a voltage."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

BISECTION_STEPS = 40


def increasing_root(function: Callable[[Array], Array], like: Array, low: float, high: float) -> Array:
    """The root of an increasing function on (low, high), by bisection, with the derivative of the implicit function
    theorem.

    A voltage outside the range of the function must not fail: bisection then converges to an end of the interval.
    """

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        above = function(middle) > 0
        return jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])

    ends = (jnp.full_like(like, low), jnp.full_like(like, high))
    lower, upper = jax.lax.fori_loop(0, BISECTION_STEPS, halve, ends)
    root = jax.lax.stop_gradient((lower + upper) / 2)
    slope = jax.lax.stop_gradient(jax.grad(function)(root))
    # One Newton step: the value is already converged, and the derivative of the result is -function' / slope.
    return root - function(root) / slope
