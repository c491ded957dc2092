"""Diagonally implicit Runge-Kutta methods, of any tableau: stages one after the other, each solved by Newton's method.

z_i = h sum_{j<i} a_ij k_j + h a_ii f(t + c_i h, x + z_i),        x1 = x + h sum_i b_i k_i

This is how the implicit solvers of Diffrax (Kvaerno, KenCarp, implicit Euler) become a step of the cell.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.numerics._integrate.stages import solve_stages, step_error
from twinfold.typing import Flag, Parameters, Scalar, Signal, State


class DiagonalTableau(eqx.Module):
    """a, lower triangular with its diagonal (zero where a stage is explicit), b and c; b minus the embedded b."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    embedded: np.ndarray


def diagonal_step(
    tableau: DiagonalTableau, field: Callable[..., State], t: Scalar, h: Scalar, x: State, w: Signal, p: Parameters
) -> tuple[State, Flag, Float[Array, ""]]:
    """One step of length h, whether its stages were solved (if not, the state is left where it was), and its error."""
    a, b, c = (jnp.asarray(part, x.dtype) for part in (tableau.a, tableau.b, tableau.c))
    count = b.shape[0]

    def stage(carry: tuple, i: jax.Array) -> tuple[tuple, None]:
        increments, solved = carry  # h k_j
        offset, diagonal, at = a[i] @ increments, a[i, i], t + c[i] * h
        weights = (h * diagonal).astype(x.dtype)[None, None]
        z, well = solve_stages(field, at[None], weights, offset[None], x, w, p)
        # Only where it is used: elsewhere the offset may lead out of the field's domain.
        explicit = h * field(at, x + jnp.where(diagonal == 0, offset, 0), w(at), p)
        # Increments, not slopes: a step of length zero has no slope to divide out.
        implicit = (z[0] - offset) / jnp.where(diagonal == 0, 1, diagonal)
        increments = increments.at[i].set(jnp.where(diagonal == 0, explicit, implicit))
        return (increments, solved & well), None

    start = (jnp.zeros((count, x.shape[0]), x.dtype), jnp.array(True))
    (increments, solved), _ = jax.lax.scan(stage, start, jnp.arange(count))
    x1 = jnp.where(solved, x + b @ increments, x)
    difference = jnp.asarray(tableau.embedded, x.dtype) @ increments
    return x1, solved, step_error(field, t, h, x, x1, difference, float(tableau.a[-1, -1]), w, p)
