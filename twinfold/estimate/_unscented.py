"""The unscented Kalman filter: the twin is evaluated at points around its mean."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold.estimate._gaussian import AbstractGaussianFilter, Columns, Linearised, check_gate
from twinfold.estimate._noise import Noise
from twinfold.estimate._state_space import StateSpace, Vector, state_space
from twinfold.model import Twin


class UnscentedKalmanFilter(AbstractGaussianFilter):
    """A Gaussian passes through the twin by 2 N + 1 points, at m and at m +- sqrt(N + l) S_i.

        mean = sum w_i fn(s_i),    covariance = sum v_i (fn(s_i) - mean) (fn(s_i) - mean)'
        l = alpha^2 (N + kappa) - N,    w_0 = l / (N + l),    v_0 = w_0 + 1 - alpha^2 + beta,    w_i = v_i = 1/2/(N + l)

    Right to second order where the extended filter is to first, without derivatives, for 2 N + 1 steps. The points are
    projected onto the manifold and into the bounds, so that the twin is evaluated where it is defined.

    **Arguments:** `twin`, `noise`, `run`, `gate` as for `ExtendedKalmanFilter`; `alpha`, `beta`, `kappa`: the defaults
    put the points at sqrt(N) standard deviations. The square-root form needs v_0 >= 0.

    **Example:**

    ```python
    pendulum = tw.Twin(lambda x: jnp.stack([x[1], -9.81 * jnp.sin(x[0])]), observe=lambda x: jnp.sin(x[:1]))
    estimator = tw.estimate.UnscentedKalmanFilter(pendulum, tw.estimate.Noise([0.0, 0.1], [0.05]))
    belief, innovation = estimator.update(estimator.init(0.0, [0.5, 0.0], [0.3, 0.3]), [0.6])
    estimator.estimate(belief).x
    ```
    """

    space: StateSpace
    noise: Noise
    gate: float | None = eqx.field(static=True)
    alpha: float = eqx.field(static=True)
    beta: float = eqx.field(static=True)
    kappa: float = eqx.field(static=True)

    def __init__(
        self,
        twin: Twin,
        noise: Noise,
        *,
        run: int | str | None = None,
        gate: float | None = None,
        alpha: float = 1.0,
        beta: float = 2.0,
        kappa: float = 0.0,
    ):
        check_gate(gate)
        self.space = state_space(twin, noise, run)
        self.noise = noise
        self.gate = gate
        self.alpha, self.beta, self.kappa = float(alpha), float(beta), float(kappa)
        given = (
            f"UnscentedKalmanFilter(alpha={alpha}, beta={beta}, kappa={kappa}) for {self.space.size} estimated values"
        )
        reach, _, first = self._weights()
        if not reach > 0:
            raise ValueError(f"{given}: alpha^2 (N + kappa) must be positive.")
        if first < 0:
            raise ValueError(
                f"{given}: the weight of the mean in the covariance is {first:.3g}. It must not be negative, or the "
                "covariance may be: take a larger alpha or beta."
            )

    def _weights(self) -> tuple[float, float, float]:
        """N + l, w_0 and v_0."""
        size = self.space.size
        reach = self.alpha**2 * (size + self.kappa)
        first = 1 - size / reach if reach else -math.inf
        return reach, first, first + 1 - self.alpha**2 + self.beta

    def linearise(self, fn: Callable, admit: Callable, mean: Vector, root: Columns) -> Linearised:
        reach, w_0, v_0 = self._weights()
        offsets = math.sqrt(reach) * root.T
        around = jnp.concatenate([mean[None] + offsets, mean[None] - offsets])
        values, end = jax.vmap(fn)(jnp.concatenate([mean[None], jax.vmap(admit)(around)]))
        rest = np.full(len(around), 1 / (2 * reach))
        weights = jnp.asarray(np.append(w_0, rest), mean.dtype)
        roots = jnp.asarray(np.sqrt(np.append(v_0, rest)), mean.dtype)
        middle = weights @ values
        # The points stand for the columns of the root: admitting one does not change how far it reaches.
        half = root / math.sqrt(2)
        into = jnp.concatenate([jnp.zeros((len(mean), 1), mean.dtype), half, -half], axis=1)
        return Linearised(middle, into, (roots[:, None] * (values - middle[None])).T, end)
