"""The region that training data covered, and what a learned part does outside of it.

A network knows nothing about features that it never saw: it extrapolates. With `fade`, its contribution goes to zero
over a margin beyond the region, so that the physics alone remains; with `hold`, its features stop there, so that it
keeps its last value. Both are continuously differentiable, and change nothing inside the region. Friction at a higher
speed is nearer to that at the highest one seen than to zero, but what was seen until some time says nothing about
later: `auto` fades in time and holds states and inputs.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

OUTSIDE = ("auto", "fade", "hold", "free")
SLACK = 0.05  # of the range, on each side: between two samples, the stages of a step pass beyond them
OUTLIER = 0.25  # a single value that widens the range of all others by more than this fraction is an outlier
FEWEST = 20  # values among which a single one can be told from the others


class Region(eqx.Module):
    """A box of features: `low` to `high`, beyond which a learned part changes over a distance of `margin`.

    **Example:**

    ```python
    region = tw.model.Region(low=jnp.zeros(1), high=jnp.ones(1), margin=jnp.full(1, 0.5))
    region.weight(jnp.array([0.9])), region.weight(jnp.array([2.0]))  # 1.0, 0.0
    region.held(jnp.array([2.0]))  # [1.25]
    ```
    """

    low: Float[Array, " in"]
    high: Float[Array, " in"]
    margin: Float[Array, " in"]

    def weight(self, u: Float[Array, " in"], of: slice = slice(None)) -> Float[Array, ""]:
        """1 inside, 0 where the distance is a margin or more: (1 - q)^2, q = sum (distance / margin)^2 up to 1.

        Only the features `of` count.
        """
        distance = jnp.maximum(jnp.maximum(self.low - u, u - self.high), 0) / self.margin
        return (1 - jnp.minimum(jnp.sum(distance[of] ** 2), 1)) ** 2

    def held(self, u: Float[Array, " in"]) -> Float[Array, " in"]:
        """u inside; beyond an end, u slows down over the margin and stops half a margin from that end."""
        above, below = (jnp.clip(beyond / self.margin, 0, 1) for beyond in (u - self.high, self.low - u))
        return jnp.clip(u, self.low, self.high) + self.margin * ((above - above**2 / 2) - (below - below**2 / 2))


def covered_region(columns: Sequence[np.ndarray], measured: Sequence[bool], margin: float, dtype: Any) -> Region:
    """The region of finite values of each feature; a single outlier among those that were measured does not widen it.

    **Arguments:** `columns`, the values of each feature (non-finite ones are left out); `measured`: which of them can
    have outliers; `margin`, as a fraction of each range.
    """
    ends = [_ends(values[np.isfinite(values)], robust) for values, robust in zip(columns, measured, strict=True)]
    low, high = np.array(ends, np.float64).T
    width = np.where(high > low, high - low, 0.1 * np.maximum(np.abs(low), 1.0))  # a constant feature has no range
    # An empty feature has infinite ends and keeps a margin of one.
    width = np.where(np.isfinite(width), width, 1.0)
    arrays = (low - SLACK * width, high + SLACK * width, margin * width)
    return Region(*(jax.device_put(each.astype(dtype)) for each in arrays))


def _ends(values: np.ndarray, robust: bool) -> tuple[float, float]:
    if not values.size:
        return -np.inf, np.inf
    values = np.sort(values)
    low, high = values[0], values[-1]
    if robust and len(values) >= FEWEST:
        inner = values[-2] - values[1]
        if inner > 0 and values[1] - low > OUTLIER * inner:
            low = values[1]
        if inner > 0 and high - values[-2] > OUTLIER * inner:
            high = values[-2]
    return float(low), float(high)
