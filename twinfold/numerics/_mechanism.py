"""What an integrator needs to know of a mechanism: its state x = (q, v), its masses and its position constraint."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import Frozen, call_by_name
from twinfold.typing import Parameters, Scalar, State


class AbstractMechanism(eqx.Module):
    """M(q) v' + J' lambda = F with 0 = Phi(t, q, p) and 0 = Psi(t, q, v, p)."""

    mass: eqx.AbstractVar[Callable | Frozen]
    position: eqx.AbstractVar[Callable | None]
    velocity: eqx.AbstractVar[Callable | None]


def split_state(x: State) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Positions and velocities of a state (q, v)."""
    if x.shape[0] % 2:
        raise ValueError(f"x has {x.shape[0]} states; a mechanism has as many velocities as positions, x = (q, v).")
    return x[: x.shape[0] // 2], x[x.shape[0] // 2 :]


def position_value(position: Callable, t: Scalar, q: Float[Array, " k"], p: Parameters) -> Float[Array, " m"]:
    """Phi as a vector; a scalar is one constraint."""
    return jnp.atleast_1d(jnp.asarray(call_by_name(position, "position", t=t, q=q, p=p)))
