"""Friction and dampers: forces that depend on relative velocities, with a known or learned law."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, Float

from twinfold._core import call_by_name
from twinfold.typing import Parameters


class Friction(eqx.Module):
    """F = -(ds/dv)' law(s): what resists the rates s(q, v) at which joints turn or slides move.

    Its power is -s' law(s) in any coordinates: the law belongs to the joint, not to the coordinates.

    **Arguments:** `rates`, a function of q, v (and p) that returns the vector s; `law`, resistance as a function of one
    rate, the same for every joint: `Network(1, 1)` where it is to be learned, or a function of a vector of one value;
    `odd=True` for a law that does not know forward from backward, (law(s) - law(-s)) / 2.

    **Example:**

    ```python
    friction = tw.Friction(rates=lambda q, v: v, law=tw.Network(1, 1, width=8, depth=1), odd=True)
    pendulum = tw.Multibody([1.0, 1.0], lambda q: q @ q - 1, force=friction)
    ```
    """

    rates: Callable
    law: Callable
    odd: bool = eqx.field(static=True, default=False)

    def resistance(self, s: Float[Array, " j"]) -> Float[Array, " j"]:
        """The law at each rate."""

        def one(rate: Float[Array, ""]) -> Float[Array, ""]:
            forward = self.law(rate[None])[0]
            return 0.5 * (forward - self.law(-rate[None])[0]) if self.odd else forward

        return jax.vmap(one)(s)

    def __call__(self, q: Float[Array, " k"], v: Float[Array, " k"], p: Parameters) -> Float[Array, " k"]:
        s, back = jax.vjp(lambda v: call_by_name(self.rates, "rates", q=q, v=v, p=p), v)
        (force,) = back(self.resistance(s))
        return -force
