"""How much a model and its sensors are trusted: process noise, measurement noise, drift of parameters."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

Root: TypeAlias = Float[Array, " n"] | Float[Array, "n n"]


class Noise(eqx.Module):
    """Standard deviations of what a twin does not know.

        x(t + dt) = step(x(t)) + sqrt(dt) process,        y = observe(x) + measurement
        raw(t + dt) = raw(t) + sqrt(dt) drift,            level(t + dt) = level(t) + sqrt(dt) level_drift

    Noise grows with the square root of time, so that samples may come at any distance. On a manifold the process noise
    is its part in the tangent space.

    **Arguments:**

    - `process`: for each state, the standard deviation that a unit of time adds, or a covariance matrix.
    - `measurement`: the standard deviation of each output, positive, or a covariance matrix.
    - `drift`: by name, the unknown parameters that are estimated beside the state, and the standard deviation that a
      unit of time adds to each: in units of `raw`, see `Unknown`, so that 0.01 is about 1 % and a positive parameter
      stays positive. Zero for one that is constant.
    - `level_drift`: the standard deviation that a unit of time adds to the level of each `Conserved` quantity: zero
      where it is conserved.

    **Example:**

    ```python
    tw.estimate.Noise(process=[0.0, 0.1], measurement=[0.05], drift={"stiffness": 0.01})
    ```
    """

    process: Root  # square roots: standard deviations, or a matrix R with the covariance R R'
    measurement: Root
    drift: dict[str, Float[Array, ""]]
    level_drift: Float[Array, ""] | Float[Array, " c"]

    def __init__(
        self,
        process: ArrayLike | Sequence,
        measurement: ArrayLike | Sequence,
        *,
        drift: Mapping[str, ArrayLike] | None = None,
        level_drift: ArrayLike | Sequence = 0.0,
    ):
        self.process = as_root(process, "Noise(process=...)")
        self.measurement = as_root(measurement, "Noise(measurement=...)", positive=True)
        for name, value in (drift or {}).items():
            if not (np.ndim(value) == 0 and np.isfinite(value) and np.asarray(value) >= 0):
                raise ValueError(f"Noise(drift={{{name!r}: {value}}}): give a standard deviation, zero or more.")
        self.drift = {name: jnp.asarray(value, float) for name, value in (drift or {}).items()}
        wander = np.asarray(level_drift, float)
        if wander.ndim > 1 or not (np.isfinite(wander).all() and (wander >= 0).all()):
            raise ValueError(f"Noise(level_drift={level_drift}): give standard deviations, zero or more.")
        self.level_drift = jnp.asarray(wander)

    @property
    def states(self) -> int:
        """Number of states."""
        return self.process.shape[0]

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return self.measurement.shape[0]


def as_root(value: Any, name: str, *, positive: bool = False) -> Root:
    """The square root of a vector of standard deviations (itself) or of a covariance matrix; traced ones unchecked."""
    if isinstance(value, Tracer):
        return jnp.linalg.cholesky(value) if value.ndim == 2 else value
    given = np.asarray(value, float)
    if given.ndim == 1 and given.size and np.isfinite(given).all() and (given >= 0).all():
        if positive and not (given > 0).all():
            raise ValueError(f"{name}: a standard deviation of zero leaves nothing to weigh; give positive ones.")
        return jnp.asarray(given)
    if given.ndim == 2 and given.shape[0] == given.shape[1] and given.size and np.allclose(given, given.T):
        values, vectors = np.linalg.eigh(given)
        least = -1e-12 * np.abs(values).max()
        if (values > 0).all() or (not positive and (values >= least).all()):
            return jnp.asarray(vectors * np.sqrt(np.maximum(values, 0)))
    kind = "definite" if positive else "semidefinite"
    raise ValueError(
        f"{name}: give a vector of standard deviations, one for each, or a positive {kind} covariance matrix."
    )


def root_matrix(root: Root, dtype: Any) -> Float[Array, "n n"]:
    """The square root as a matrix."""
    root = root.astype(dtype)
    return jnp.diag(root) if root.ndim == 1 else root
