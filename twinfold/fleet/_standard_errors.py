"""Standard errors of many assets at once: the formulas of `identify/_uncertainty.py`, compiled and vmapped.

covariance = s^2 tau (J'J)^-1,        s^2 = r'r / (n - p tau),        tau = 1 + 2 sum_k correlation(k)
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

TOLERANCE = 1e-6  # singular values below this fraction of the largest are weak directions
IN_WEAK = 1e-3  # a parameter with a larger share in a weak direction is not determined


def standard_errors(
    residual: Float[Array, "T k"], jacobian: Float[Array, "T k P"], mask: Bool[Array, "T k"]
) -> tuple[Float[Array, " P"], Float[Array, ""]]:
    """The standard error of each variable, infinite if the data do not determine it, and the correlation time.

    **Arguments:** `residual` in order of time; `jacobian`, its derivative; `mask`, True where it counts.
    """
    count, p = jnp.sum(mask).astype(residual.dtype), jacobian.shape[-1]
    r = jnp.where(mask, residual, 0)
    tau = correlation_time(r, mask, p)
    rows = jnp.where(mask[..., None], jacobian, 0).reshape(-1, p)
    size = jnp.linalg.norm(rows, axis=0)
    size = jnp.where(size > 0, size, 1)
    # The triangular factor has the same singular values, and accelerators factorise small matrices many at a time.
    _, singular, directions = jnp.linalg.svd(jnp.linalg.qr(rows / size[None], mode="r"), full_matrices=False)
    weak = singular <= TOLERANCE * singular[0]
    freedom = count - jnp.sum(~weak).astype(tau.dtype) * tau
    noise = jnp.sum(r**2) / freedom
    determined = jnp.where(weak[:, None], 0, directions / size[None])
    weights = jnp.where(weak, 0, 1 / jnp.where(weak, 1, singular) ** 2)
    variance = noise * tau * jnp.sum(weights[:, None] * determined**2, axis=0)
    in_weak = jnp.any(weak[:, None] & (jnp.abs(directions) > IN_WEAK), axis=0)
    return jnp.where(in_weak | (count <= p), jnp.inf, jnp.sqrt(variance)), tau


def correlation_time(r: Float[Array, "T k"], mask: Bool[Array, "T k"], fitted: int) -> Float[Array, ""]:
    """The integrated autocorrelation time of a residual in samples; see `identify.correlation_time`."""
    count = jnp.sum(mask).astype(r.dtype)
    power = jnp.sum(r**2)
    safe = jnp.where(power > 0, power, 1)
    pairs = jnp.maximum(jnp.sum(mask[1:] & mask[:-1]), 1).astype(r.dtype)
    lag_one = jnp.sum(r[1:] * r[:-1]) / safe * (count / pairs)
    corrected = (lag_one + fitted / count) / jnp.maximum(1 - (fitted + 2) / count, 0.5)
    longest = jnp.maximum(count / (fitted + 2), 1)
    first_order = jnp.where(corrected < 1, (1 + corrected) / (1 - jnp.minimum(corrected, 1 - 1e-12)), longest)
    # All autocorrelations at once; twice the length, so that they do not wrap around.
    spectrum = jnp.fft.rfft(r, 2 * r.shape[0], axis=0)
    products = jnp.sum(jnp.fft.irfft(jnp.abs(spectrum) ** 2, 2 * r.shape[0], axis=0), axis=1)[1 : r.shape[0]]
    correlations = products / safe
    significant = jnp.cumprod((correlations >= 2 / jnp.sqrt(count)).astype(r.dtype))
    summed = 1 + 2 * jnp.sum(correlations * significant)
    return jnp.where(power > 0, jnp.clip(jnp.maximum(first_order, summed), 1, longest), 1)
