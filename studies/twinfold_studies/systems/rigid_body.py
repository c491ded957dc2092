"""Rigid body: the angular momentum of a freely rotating body in the body frame, with unknown dynamics."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.model import Conserved
from twinfold.systems import System
from twinfold.typing import Scalar, State


def rigid_body(
    *,
    inertia: tuple[float, float, float] = (1.6, 1.0, 2 / 3),
    assumed_inertia: tuple[float, float, float] | None = None,
) -> System:
    """Nothing known, length of the angular momentum conserved.

        y' = y x (I^-1 y),    C = |y|^2 / 2
        f_phys = 0,    f_unk = y x (I^-1 y)

    With `assumed_inertia` the known part is Euler's equations with these moments of inertia; if they are wrong, the
    residual learns the difference.

    Initial states: (cos phi, 0, sin phi) with phi ~ U[0.5, 1.5].
    """

    def euler_equations(moments: tuple[float, float, float]):
        """The field of a body with these moments of inertia."""

        def field(t: Scalar, x: State) -> State:
            # The cross product y x (I^-1 y) by components: each needs one difference of 1 / I.
            a, b, c = (1 / moment for moment in moments)
            return jnp.stack([(c - b) * x[1] * x[2], (a - c) * x[2] * x[0], (b - a) * x[0] * x[1]])

        return field

    def zero(t: Scalar, x: State) -> State:
        return jnp.zeros_like(x)

    def half_square(x: State) -> Float[Array, ""]:
        return 0.5 * jnp.sum(x**2)

    def draw(key: PRNGKeyArray, count: int) -> Float[Array, "count 3"]:
        phi = jax.random.uniform(key, (count,), minval=0.5, maxval=1.5)
        return jnp.stack([jnp.cos(phi), jnp.zeros_like(phi), jnp.sin(phi)], axis=1)

    return System(
        name="rigid_body",
        title="Rigid body",
        state_names=("y1", "y2", "y3"),
        truth=euler_equations(inertia),
        physics=zero if assumed_inertia is None else euler_equations(assumed_inertia),
        residual_states=(0, 1, 2),
        residual_adds_to=(0, 1, 2),
        residual_time=False,
        constraint=Conserved(half_square),
        draw=draw,
        dt=0.1,
        horizon=15.0,
        long_horizon=1000.0,
        substeps=1,
        train=30,
        valid=10,
        test=100,
        long_test=100,
        notes="Parameters, initial states and long horizon: White et al.; horizon and step of training are our "
        "choice. Nothing is known (f_phys = 0): PHRPINN is PNODE and HRPINN is NODE, unless assumed_inertia "
        "is given.",
    )
