"""The Rauch-Tung-Striebel smoother: each estimate with the measurements after it too, for use offline.

    gain = C P_pred^-1,    m_s = m + gain (m_s' - m_pred),    P_s = P - gain (P_pred - P_s') gain'

with C the covariance of a state and the next, and ' for the next sample. In columns (P = into into',
P_pred = out out' + noise noise', C = into out') the last is a sum:

    P_s = (into - gain out) (into - gain out)' + gain noise noise' gain' + gain P_s' gain'

so that its root is one triangularisation. On a manifold P_pred is singular: the gain is that of P_pred + s^2 n n', with
the normals n, which is the same on the tangent space and zero on the normals. Särkkä and Svensson (2023),
chapters 12 and 13.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.estimate._estimator import Belief
from twinfold.estimate._filtering import Filtered
from twinfold.estimate._gaussian import AbstractGaussianFilter
from twinfold.estimate._square_root import triangularise

TOLERATED_ROUNDINGS = 64  # below as many, relative to the largest, a direction has no variance


@eqx.filter_jit
def smoothed(estimator: AbstractGaussianFilter, record: Filtered) -> Belief:
    """The beliefs at all samples of a record, given all of its measurements.

    **Arguments:** the `estimator` that has filtered the `record`.

    **Returns:** a `Belief` whose arrays have a leading axis of the samples; on the manifold, as those of the filter.

    **Example:**

    ```python
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1]))
    ts = jnp.linspace(0, 1, 11)
    record = tw.estimate.filtered(estimator, estimator.init(0.0, [0.5], [1.0]), ts, jnp.exp(-ts)[:, None])
    belief = tw.estimate.smoothed(estimator, record)
    belief.covariance[0] < record.corrected.covariance[0]  # the later samples tell about the first one
    ```
    """
    beliefs = record.corrected

    def back(later: Belief, belief: Belief) -> tuple[Belief, Belief]:
        moved = estimator.propagate(belief, later.t, later.w)
        normals = estimator.space.normals(moved.mean, later.t, belief.level)
        gain = _gain(moved.into, moved.out, moved.noise, normals)
        root = triangularise(
            jnp.concatenate([moved.into - gain @ moved.out, gain @ moved.noise, gain @ later.root], axis=1)
        )
        mean = belief.mean + gain @ (later.mean - moved.mean)
        mean, _ = estimator.space.project(mean, belief.t, belief.level, belief.mean)
        root = estimator.space.tangent(mean, belief.t, belief.level)(root)
        level = estimator.space.level(mean, belief.level)
        now = eqx.tree_at(lambda b: (b.mean, b.root, b.level), belief, (mean, root, level))
        return now, now

    last, rest = (jax.tree.map(lambda leaf, at=at: leaf[at], beliefs) for at in (-1, slice(None, -1)))
    found: Any = jax.lax.scan(back, last, rest, reverse=True)[1]
    return jax.tree.map(lambda before, end: jnp.concatenate([before, end[None]]), found, last)


def _gain(
    into: Float[Array, "N c"], out: Float[Array, "N c"], noise: Float[Array, "N q"], normals: Float[Array, "m N"]
) -> Float[Array, "N N"]:
    """into out' (out out' + noise noise')^+ on the tangent space, zero on the normals.

    In the inverse each row has unit length, so that units do not matter; without the normals, a row that is zero but
    for rounding would be scaled up.
    """
    columns = jnp.concatenate([out, noise], axis=1)
    columns = jnp.concatenate([columns, jnp.max(jnp.abs(columns)) * normals.T], axis=1)
    lengths = jnp.sqrt(jnp.sum(columns**2, axis=1))
    lengths = jnp.where(lengths > 0, lengths, 1)
    left, sizes, _ = jnp.linalg.svd(columns / lengths[:, None], full_matrices=False)
    least = TOLERATED_ROUNDINGS * jnp.finfo(columns.dtype).eps * jnp.max(sizes)
    inverse = jnp.where(sizes > least, 1 / jnp.where(sizes > least, sizes, 1) ** 2, 0)
    cross = into @ out.T / lengths[None]
    return (cross @ left * inverse[None]) @ left.T / lengths[None]
