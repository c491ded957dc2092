"""The extended Kalman filter: the twin is linear around its mean."""

from collections.abc import Callable

import equinox as eqx
import jax

from twinfold.estimate._gaussian import AbstractGaussianFilter, Columns, Linearised, check_gate
from twinfold.estimate._noise import Noise
from twinfold.estimate._state_space import StateSpace, Vector, state_space
from twinfold.model import Twin


class ExtendedKalmanFilter(AbstractGaussianFilter):
    """A Gaussian passes through the twin by its derivative at the mean, which JAX computes.

        fn(s) ~ fn(m) + F (s - m),        value N(fn(m), F P F')

    The fast choice: one derivative of a step for each estimated value.

    **Arguments:** `twin`; its `noise`, which names the parameters that are followed beside the state; `run`, whose own
    parameters to use; `gate`: the probability with which a good value is refused as an outlier, `None` to refuse none.
    A value is refused where its squared innovation, over its variance, exceeds that quantile of chi-squared.

    **Example:**

    ```python
    twin = tw.Twin(lambda x: jnp.stack([x[1], -4.0 * x[0]]), observe=lambda x: x[:1])
    estimator = tw.estimate.ExtendedKalmanFilter(twin, tw.estimate.Noise([0.0, 0.1], [0.05]))
    belief = estimator.init(0.0, [1.0, 0.0], [0.5, 0.5])
    belief, _ = estimator.predict(belief, 0.1)
    belief, innovation = estimator.update(belief, [0.9])
    estimator.estimate(belief).x
    ```
    """

    space: StateSpace
    noise: Noise
    gate: float | None = eqx.field(static=True)

    def __init__(self, twin: Twin, noise: Noise, *, run: int | str | None = None, gate: float | None = None):
        check_gate(gate)
        self.space = state_space(twin, noise, run)
        self.noise = noise
        self.gate = gate

    def linearise(self, fn: Callable, admit: Callable, mean: Vector, root: Columns) -> Linearised:
        value, push, end = jax.linearize(fn, mean, has_aux=True)
        out = jax.vmap(push, in_axes=1, out_axes=1)(root)
        return Linearised(value, root, out, jax.tree.map(lambda leaf: leaf[None], end))
