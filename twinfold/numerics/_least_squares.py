"""Least squares for a few parameters (Levenberg-Marquardt of Optimistix), for use under `jax.vmap`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float

PENALTY = 1.0  # residual where the model gives no finite number: as much as a run far from its data


def least_squares(
    residuals: Callable[[Float[Array, " P"]], Float[Array, "..."]],
    first: Float[Array, " P"],
    max_steps: int,
) -> tuple[Float[Array, " P"], Float[Array, "..."], Float[Array, "N P"], Bool[Array, ""]]:
    """Minimise the sum of squares of residuals that have about unit scale.

    Where a residual is not finite it counts as `PENALTY`, and its derivative as zero.

    **Returns:** the parameters, the residuals there, their Jacobian, and whether the iteration has converged.
    """
    # 1e-6 in double precision, far below any standard error.
    tolerance = float(jnp.finfo(first.dtype).eps) ** 0.375
    solver = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance)

    def contained(v: Float[Array, " P"]) -> tuple[Array, Array]:
        r = residuals(v)
        r = jnp.where(jnp.isfinite(r), r, PENALTY)
        return r, r

    def surrogate(v: Float[Array, " P"], _: None) -> Array:
        """The residuals, with a Jacobian that is a matrix: the solver would store the whole linearised model."""
        fixed = jax.lax.stop_gradient(v)
        jacobian, r = jax.jacfwd(contained, has_aux=True)(fixed)
        return r + jnp.where(jnp.isfinite(jacobian), jacobian, 0) @ (v - fixed)

    solution = optx.least_squares(surrogate, solver, first, max_steps=max_steps, throw=False)
    at = solution.state.f_info
    return solution.value, at.residual, at.jac.as_matrix(), solution.result == optx.RESULTS.successful
