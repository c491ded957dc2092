"""Planar robot arm: three joints move so that the hand follows a path, as slowly as they can."""

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
    """The whole field known, the hand e(theta) kept on its path p(t), joint angles absolute.

        theta' = J' (J J')^-1 p'(t),    J = de/dtheta,    e = sum_i l_i (cos theta_i, sin theta_i)
        p(t) = (-sin(2 pi t) / (2 pi), 0),    e(theta) - p(t) = e(theta_0) - p(0)
        f_phys = theta',    f_unk = 0

    `assumed_links` are the lengths that the known part believes in: with one of them wrong there is something
    to learn, f_unk = theta'(links) - theta'(assumed_links). The constraint always has the true ones.

    Initial states: (theta_0, -theta_0, theta_0) with theta_0 ~ U[pi/4, 3 pi/8].
    """

    def following(lengths: tuple[float, float, float]):
        """The field of an arm with these lengths."""

        def field(t: Scalar, x: State) -> State:
            # In scalars, 8 times faster: a sum over the joints is a reduction, which XLA does not fuse.
            sines = [length * jnp.sin(angle) for length, angle in zip(lengths, x, strict=True)]
            cosines = [length * jnp.cos(angle) for length, angle in zip(lengths, x, strict=True)]
            # J has rows -sines and cosines; p' = (p1', 0) needs only the first column of (J J')^-1.
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

    truth = following(links)
    return System(
        name="robot_arm",
        title="Robot arm",
        state_names=("theta1", "theta2", "theta3"),
        truth=truth,
        physics=truth if assumed_links is None else following(assumed_links),
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
        notes="Parameters, initial states and long horizon: White et al.; horizon and step of training are a "
        "choice. The physics is already exact (f_unk = 0): a grey box has nothing to learn, unless "
        "assumed_links is given. From these initial states theta1 = theta3 throughout, and then the "
        "constraint alone fixes the trajectory.",
    )
