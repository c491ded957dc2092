"""What is minimised: a sum of squares, so that first-order and least-squares methods solve the same problem.

L = mean rho((y^ - y) / s)  +  l2 |theta - theta_0|^2  +  constraint_penalty mean |g - level + shift|^2
  +  collocation mean |(dx^/dt - f(t, x^)) / r|^2  +  continuity mean |x_end - x_next|^2
  +  prior / runs  sum (raw / spread)^2
"""

from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.train._evidence import AUTO, FIRST_L2


class Loss(eqx.Module):
    """The terms of the loss and their weights.

    **Arguments:** `huber`: None for squared errors, or the size (in units of the scaled output) beyond which an
    error counts linearly (pseudo-Huber); `scale`: `"std"` divides each output by its spread in the training data,
    `"off"` takes it as it is; `l2` on the change of network weights since they were drawn, or `"auto"` to estimate it
    (the largest evidence); `correlation` of errors at neighbouring samples, from 0 to below 1, or `"auto"` to estimate
    it: the loss is then of what an error does not have in common with the one before; `constraint_penalty` on the
    relative violation of the constraint, the soft alternative to a projection; `collocation` on the field, for a
    `Twin(trajectory=...)` (a PINN), which is never integrated; `continuity` between shooting windows; `prior` on each
    `Unknown` with a `spread`: the squared error (in units of the scaled output) of a run that would be accepted to keep
    such a parameter within its spread.

    **Example:**

    ```python
    tw.Loss(huber=0.1, l2=1e-4)
    ```
    """

    huber: float | None = eqx.field(static=True, default=None)
    scale: Literal["std", "off"] = eqx.field(static=True, default="std")
    l2: float | Literal["auto"] | Float[Array, ""] = 0.0
    constraint_penalty: float = eqx.field(static=True, default=0.0)
    collocation: float = eqx.field(static=True, default=0.0)
    continuity: float | Float[Array, ""] = 30.0
    prior: float | Float[Array, ""] = 0.0
    correlation: float | Literal["auto"] | Float[Array, "..."] = 0.0

    def __check_init__(self):
        if self.scale not in ("std", "off"):
            raise ValueError(f'Loss(scale={self.scale!r}): give "std" or "off".')
        if self.huber is not None and not self.huber > 0:
            raise ValueError(f"Loss(huber={self.huber}): the size must be positive.")
        for name in ("l2", "correlation"):
            if isinstance(getattr(self, name), str) and name not in self.estimated:
                raise ValueError(f'Loss({name}={getattr(self, name)!r}): give a number or "auto".')
        for name in ("l2", "constraint_penalty", "collocation", "continuity", "prior"):
            value = getattr(self, name)
            if isinstance(value, float | int) and not value >= 0:
                raise ValueError(f"Loss({name}={value}): a weight cannot be negative.")
        if isinstance(self.correlation, float | int) and not 0 <= self.correlation < 1:
            raise ValueError(f"Loss(correlation={self.correlation}): it must be from 0 to below 1.")

    @property
    def estimated(self) -> tuple[str, ...]:
        """The names of the weights that are "auto"."""
        return tuple(name for name in ("l2", "correlation") if self._is_auto(name))

    def _is_auto(self, name: str) -> bool:
        value = getattr(self, name)
        return isinstance(value, str) and value == AUTO

    def unweighted(self) -> "Loss":
        """The loss by which validation runs judge: of the errors as they are, without what restrains a fit."""
        return replace(self, l2=0.0, prior=0.0, correlation=0.0)

    def traced(self, dtype: Any) -> "Loss":
        """The loss whose weights are arrays, so that a compiled program serves all their values.

        A weight of zero stays a number: without its term the program is another one. Those that are estimated have
        their first values.
        """
        first = {"l2": FIRST_L2, "correlation": 0.0}
        weights = {name: getattr(self, name) for name in ("l2", "continuity", "prior", "correlation")}
        on = {name: value for name, value in weights.items() if name in self.estimated or value > 0}
        values = {name: first[name] if name in self.estimated else value for name, value in on.items()}
        return replace(self, **{name: jax.device_put(np.asarray(value, dtype)) for name, value in values.items()})

    def robust(self, error: Float[Array, "..."]) -> Float[Array, "..."]:
        """r with r^2 = rho(error): the error itself, or with huber d: r^2 = 2 d^2 (sqrt(1 + (error/d)^2) - 1)."""
        if self.huber is None:
            return error
        root = jnp.sqrt(1 + (error / self.huber) ** 2)
        return error * jnp.sqrt(2 / (1 + root))  # the same number, without cancellation at zero
