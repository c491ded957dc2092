"""Planar robot arm: three joints follow a path of the end effector with minimal joint rates."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.model import Conserved
from twinfold.systems import System
from twinfold.typing import ConstraintVector, Scalar, State


def robot_arm(
    *,
    links: tuple[float, float, float] = (1.0, 1.0, 1.0),
    assumed_links: tuple[float, float, float] | None = None,
) -> System:
    """Entire field known, end effector e(theta) constrained to its path p(t), absolute joint angles.

        theta' = J' (J J')^-1 p'(t),    J = de/dtheta,    e = sum_i l_i (cos theta_i, sin theta_i)
        p(t) = (-sin(2 pi t) / (2 pi), 0),    e(theta) - p(t) = e(theta_0) - p(0)
        f_phys = theta',    f_unk = 0

    `assumed_links` are the lengths in the known part; if they are wrong, the residual is
    f_unk = theta'(links) - theta'(assumed_links). The constraint has the true lengths.

    Initial states: (theta_0, -theta_0, theta_0) with theta_0 ~ U[pi/4, 3 pi/8].
    """

    def joint_rates(lengths: tuple[float, float, float]):
        """The field of an arm with these lengths."""

        def field(t: Scalar, x: State) -> State:
            # In scalars, which is 8 times faster: XLA does not fuse a reduction over the joints.
            sines = [length * jnp.sin(angle) for length, angle in zip(lengths, x, strict=True)]
            cosines = [length * jnp.cos(angle) for length, angle in zip(lengths, x, strict=True)]
            # J has rows -sines and cosines; p' = (p1', 0) requires the first column of (J J')^-1 only.
            a = sum(s * s for s in sines)
            b = -sum(s * c for s, c in zip(sines, cosines, strict=True))
            d = sum(c * c for c in cosines)
            speed = -jnp.cos(2 * jnp.pi * t) / (a * d - b * b)
            return jnp.stack([speed * (-d * s - b * c) for s, c in zip(sines, cosines, strict=True)])

        return field

    def offset(t: Scalar, x: State) -> ConstraintVector:
        path = -jnp.sin(2 * jnp.pi * t) / (2 * jnp.pi)
        across = sum(length * jnp.cos(angle) for length, angle in zip(links, x, strict=True))
        up = sum(length * jnp.sin(angle) for length, angle in zip(links, x, strict=True))
        return jnp.stack([across - path, up])

    def draw(key: PRNGKeyArray, count: int) -> Float[Array, "count 3"]:
        theta = jax.random.uniform(key, (count,), minval=jnp.pi / 4, maxval=3 * jnp.pi / 8)
        return jnp.stack([theta, -theta, theta], axis=1)

    truth = joint_rates(links)
    return System(
        name="robot_arm",
        title="Robot arm",
        state_names=("theta1", "theta2", "theta3"),
        truth=truth,
        physics=truth if assumed_links is None else joint_rates(assumed_links),
        residual_states=(0, 1, 2),
        residual_adds_to=(0, 1, 2),
        residual_time=True,
        constraint=Conserved(offset),
        draw=draw,
        dt=0.1,
        horizon=5.0,
        long_horizon=500.0,
        substeps=1,
        train=30,
        valid=10,
        test=100,
        long_test=10,
        notes="Parameters, initial states and long horizon: White et al.; horizon and step of training are our "
        "choice. The physics is exact (f_unk = 0): a grey box has nothing to learn, unless assumed_links is "
        "given. From these initial states theta1 = theta3 at all times, so that the constraint alone determines "
        "the trajectory.",
    )
