"""How much of dx/dt is known: all but a residual (grey box), or nothing (black box)."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from twinfold._core import call_by_name
from twinfold.typing import Parameters, Scalar, State


class GreyBox(eqx.Module):
    """dx/dt = f_phys(t, x, z, w, p) + f_unk(t, x, z, w, p), the paper's Eq. 1.

    **Arguments:** `physics`, the part you trust, and `residual`, the part to be learned: an `MLP`, or any
    function or module that returns a contribution to the whole of dx. Each takes what it names of t, x, z, w, p.

    **Example:**

    ```python
    spring = lambda x: jnp.stack([x[1], -x[0]])
    twin = tw.Twin(tw.GreyBox(spring, residual=tw.MLP(states=[1], adds_to=[1])))  # friction is to be learned
    ```
    """

    physics: Callable
    residual: Callable

    def __call__(self, t: Scalar, x: State, z: Any, w: Any, p: Parameters) -> State:
        known = call_by_name(self.physics, "physics", t=t, x=x, z=z, w=w, p=p)
        return known + call_by_name(self.residual, "residual", t=t, x=x, z=z, w=w, p=p)


class BlackBox(eqx.Module):
    """dx/dt = f_unk(t, x, w): nothing is known, everything is learned (a neural ODE).

    **Example:**

    ```python
    twin = tw.Twin(tw.BlackBox(tw.MLP(width=16, depth=2)))  # a neural ODE
    ```
    """

    network: Callable

    def __call__(self, t: Scalar, x: State, z: Any, w: Any, p: Parameters) -> State:
        return call_by_name(self.network, "network", t=t, x=x, z=z, w=w, p=p)
