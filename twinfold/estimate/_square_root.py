"""Covariances by their square roots: P = S S' is positive semidefinite whatever is rounded, in float32 too.

Sums of covariances are QR factorisations: [A B] [A B]' = A A' + B B' = L L' with the triangular factor L of [A B]. No
difference of covariances is ever formed. Kailath, Sayed and Hassibi, *Linear Estimation* (2000), chapter 12.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Bool, Float


def triangularise(rows: Float[Array, "r c"]) -> Float[Array, "r r"]:
    """The lower triangular L with L L' = rows rows'."""
    r, c = rows.shape
    if c < r:
        rows = jnp.concatenate([rows, jnp.zeros((r, r - c), rows.dtype)], axis=1)
    return jnp.linalg.qr(rows.T, mode="r").T


class Conditioned(eqx.Module):
    """A Gaussian given a measurement: the correction of its mean, its new root, and how likely the measurement was."""

    correction: Float[Array, " N"]
    root: Float[Array, "N N"]
    nis: Float[Array, ""]  # normalised innovation squared, chi-squared with as many degrees of freedom as values used
    log_likelihood: Float[Array, ""]


def condition(
    spread: Float[Array, "N c"],
    outputs: Float[Array, "k c"],
    noise: Float[Array, "k l"],
    residual: Float[Array, " k"],
    used: Bool[Array, " k"],
) -> Conditioned:
    """The measurement update by one triangularisation.

        [ R  Y ]   ->   [ S  0 ]        S S' = Y Y' + R R',    gain = K S^-1,    L L' = X X' - K K'
        [ 0  X ]        [ K  L ]

    **Arguments:** X, the `spread` of the state with P = X X'; Y, that of the `outputs`, Y X' being their covariance
    with the state; R, the root of the measurement `noise`; the `residual`; which of its values are `used`. A value
    that is not used is replaced by one of unit variance that depends on nothing: its row is left out.
    """
    k, n = residual.shape[0], spread.shape[0]
    unused = jnp.diag(jnp.where(used, 0, 1).astype(spread.dtype))
    above = jnp.concatenate([unused, jnp.where(used[:, None], jnp.concatenate([noise, outputs], axis=1), 0)], axis=1)
    below = jnp.concatenate([jnp.zeros((n, k + noise.shape[1]), spread.dtype), spread], axis=1)
    factor = triangularise(jnp.concatenate([above, below]))
    scale, gain, root = factor[:k, :k], factor[k:, :k], factor[k:, k:]
    white = jax.scipy.linalg.solve_triangular(scale, jnp.where(used, residual, 0), lower=True)
    nis = white @ white
    volume = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(scale))))
    count = jnp.sum(used).astype(nis.dtype)
    return Conditioned(gain @ white, root, nis, -0.5 * nis - volume - 0.5 * math.log(2 * math.pi) * count)
