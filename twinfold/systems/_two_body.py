"""The two-body system: a planet orbits a fixed sun whose gravity is unknown."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.model import Conserved
from twinfold.systems._system import System
from twinfold.typing import ConstraintVector, Scalar, State


def two_body(energy: bool = False, *, gm: float = 1.0) -> System:
    """A planet around a fixed sun: known kinematics, unknown force, conserved angular momentum L.

        q' = p,    p' = -GM q / |q|^3,    L = q1 p2 - q2 p1,    E = |p|^2 / 2 - GM / |q|
        f_phys = (p, 0),    f_unk = (0, -GM q / |q|^3)

    Initial states: at the pericentre (1 - e, 0, 0, sqrt(GM (1 + e) / (1 - e))) of an orbit with semi-major
    axis 1 and eccentricity e ~ U[0.5, 0.7].

    **Arguments:** `energy`, whether the constraint contains the energy E too; `gm`, the product GM.

    **Returns:** a `System`.

    **Example:**

    ```python
    system = tw.systems.two_body()
    truth = tw.Twin(system.truth, integrator=tw.RK4(system.substeps), constraint=system.constraint)
    ts = np.arange(0.0, 2.0, system.dt)
    orbits = [truth.simulate(x0, ts).ys for x0 in system.draw(jax.random.key(0), 2)]
    data = tw.Dataset.from_arrays(ts, orbits, output_names=system.state_names)
    ```
    """

    def truth(t: Scalar, x: State) -> State:
        q, p = x[:2], x[2:]
        square = jnp.sum(q**2)
        return jnp.concatenate([p, -gm * q / (square * jnp.sqrt(square))])

    def physics(t: Scalar, x: State) -> State:
        p = x[2:]
        return jnp.concatenate([p, jnp.zeros_like(p)])

    def invariants(x: State) -> ConstraintVector:
        q, p = x[:2], x[2:]
        momentum = q[0] * p[1] - q[1] * p[0]
        if not energy:
            return momentum[None]
        return jnp.stack([momentum, 0.5 * jnp.sum(p**2) - gm / jnp.sqrt(jnp.sum(q**2))])

    def draw(key: PRNGKeyArray, count: int) -> Float[Array, "count 4"]:
        e = jax.random.uniform(key, (count,), minval=0.5, maxval=0.7)
        zero = jnp.zeros_like(e)
        return jnp.stack([1 - e, zero, zero, jnp.sqrt(gm * (1 + e) / (1 - e))], axis=1)

    return System(
        name="two_body",
        title="Two-body",
        state_names=("q1", "q2", "p1", "p2"),
        truth=truth,
        physics=physics,
        residual_states=(0, 1, 2, 3),
        residual_adds_to=(2, 3),
        residual_time=False,
        constraint=Conserved(invariants),
        draw=draw,
        dt=0.1,
        horizon=2 * math.pi,
        long_horizon=100.0,
        substeps=4,
        train=30,
        valid=10,
        test=100,
        long_test=100,
        notes="Settings: White et al. Training covers one period.",
    )
