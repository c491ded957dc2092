"""Constrained mechanics in redundant coordinates: pendulums, linkages, wheels that roll; x = (q, v).

    q' = v,    M(q) v' + J' lambda = F,    0 = Phi(t, q, p),    0 = Psi(t, q, v, p),    J = [dPhi/dq; dPsi/dv]

A differential-algebraic system of index 3 (Phi) or 2 (Psi). Here its index is reduced: accelerations and multipliers
come from one KKT solve of the constraints at acceleration level, [M J'; J 0] [a; lambda] = [F; gamma]. An integrator
alone then drifts off Phi = 0, linearly in the error of the velocities: give the twin `constraint_of(mechanism)` to
project onto, which has the hidden velocity level too, or the integrator `Rattle(mechanism)`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from twinfold._core import Frozen, call_by_name, named_arguments
from twinfold.model._learned.base import learned_parts
from twinfold.numerics._linalg.dense import apply_transposed, factorise
from twinfold.numerics._linalg.inertia import Inertia, inertia, known_mass, mass_of, times_mass
from twinfold.numerics._mechanism import AbstractMechanism, position_value, split_state
from twinfold.typing import Parameters, Scalar, State


def kinematics(x: State) -> State:
    """The part of the flow that is known for any forces: q' = v (v' is set to zero)."""
    _, v = split_state(x)
    return jnp.concatenate([v, jnp.zeros_like(v)])


class PositionLevel(eqx.Module):
    """Phi(t, q, p) as a function of the state."""

    position: Callable

    def __call__(self, t: Scalar, x: State, p: Parameters) -> Float[Array, " m"]:
        return position_value(self.position, t, split_state(x)[0], p)


class VelocityLevel(eqx.Module):
    """Psi(t, q, v, p) as a function of the state."""

    velocity: Callable

    def __call__(self, t: Scalar, x: State, p: Parameters) -> Float[Array, " m"]:
        q, v = split_state(x)
        return jnp.atleast_1d(jnp.asarray(call_by_name(self.velocity, "velocity", t=t, q=q, v=v, p=p)))


class TotalEnergy(eqx.Module):
    """v' M(q) v / 2 + V(q), which a mechanism keeps where no other force does work and no constraint moves."""

    mass: Callable | Frozen
    potential: Callable | None

    def __call__(self, x: State, p: Parameters) -> Float[Array, ""]:
        q, v = split_state(x)
        kinetic = 0.5 * jnp.sum(v * times_mass(mass_of(self.mass, q, p), v))
        return kinetic + potential_energy(self.potential, q, p)


def potential_energy(potential: Callable | None, q: Float[Array, " k"], p: Parameters) -> Float[Array, ""]:
    """V(q), zero where there is none."""
    if potential is None:
        return jnp.zeros((), q.dtype)
    return jnp.asarray(call_by_name(potential, "potential", q=q, p=p))


class Multibody(AbstractMechanism):
    """The field of a mechanism, x = (q, v), for `Twin(field=...)`.

    **Arguments:** `mass`: a vector (diagonal), a matrix, or a function of q and p (its inertia forces are derived);
    `position`: Phi of what it names of t, q, p; `velocity`: Psi of t, q, v, p (rolling, a blade), where there is some;
    `potential`: V of q, p, whose force is -dV/dq; `force`: all other forces, a function or module of what it names of
    t, q, v, z, w, p, with learned parts anywhere inside it (`Friction(rates, Network(1, 1))`).

    A learned force changes accelerations and multipliers, and nothing else: positions and velocities obey constraints
    that follow from q' = v alone, so that these stay exact during and after training.

    **Example:**

    ```python
    pendulum = tw.Multibody(
        [1.0, 1.0], lambda q: q @ q - 1, potential=lambda q: 9.81 * q[1], force=lambda v: -0.1 * v
    )
    tw.Twin(pendulum).simulate([1.0, 0, 0, 0], jnp.linspace(0, 1, 51)).xs[-1]
    ```
    """

    mass: Callable | Frozen
    position: Callable | None
    velocity: Callable | None
    potential: Callable | None
    force: Callable | None

    def __init__(
        self,
        mass: ArrayLike | Sequence | Callable,
        position: Callable | None = None,
        *,
        velocity: Callable | None = None,
        potential: Callable | None = None,
        force: Callable | None = None,
    ):
        if position is None and velocity is None:
            raise ValueError("Multibody: give constraints, position=Phi or velocity=Psi; without any, write the field.")
        for role, fn, names in (
            ("position", position, ("t", "q", "p")),
            ("velocity", velocity, ("t", "q", "v", "p")),
            ("potential", potential, ("q", "p")),
            ("force", force, ("t", "q", "v", "z", "w", "p")),
        ):
            if fn is not None:
                named_arguments(fn, names, role)
            if role in ("position", "velocity") and learned_parts(fn):
                raise ValueError(
                    f"Multibody({role}=...): a constraint holds a learned part, and would move while it is trained. "
                    "Make what is unknown of it a parameter p (`Unknown`), and leave the rest to `force`."
                )
        self.mass = known_mass(mass)
        self.position, self.velocity, self.potential, self.force = position, velocity, potential, force

    def __call__(self, t: Scalar, x: State, z: Any, w: Any, p: Parameters) -> State:
        acceleration, _ = self.solve(t, x, z, w, p)
        return jnp.concatenate([split_state(x)[1], acceleration])

    @property
    def energy(self) -> TotalEnergy:
        """Kinetic and potential energy, a function of x and p."""
        return TotalEnergy(self.mass, self.potential)

    def forces(self, t: Scalar, x: State, z: Any, w: Any, p: Parameters) -> Float[Array, " k"]:
        """F: potential, all other forces, and what a mass matrix that varies with q adds."""
        q, v = split_state(x)
        total = jnp.zeros_like(q)
        if self.potential is not None:
            total = total - jax.grad(lambda q: potential_energy(self.potential, q, p))(q)
        if self.force is not None:
            total = total + call_by_name(self.force, "force", t=t, q=q, v=v, z=z, w=w, p=p)
        if not isinstance(self.mass, Frozen) and "q" in named_arguments(self.mass, ("q", "p"), "mass"):
            # Lagrange: d(M v)/dt = dT/dq + F, so M v' = F + dT/dq - (dM/dt) v.
            def momentum(q: Float[Array, " k"]) -> Float[Array, " k"]:
                return times_mass(mass_of(self.mass, q, p), v)

            total = total + jax.grad(lambda q: 0.5 * jnp.sum(v * momentum(q)))(q) - jax.jvp(momentum, (q,), (v,))[1]
        return total

    def rows(self, t: Scalar, x: State, p: Parameters) -> tuple[Float[Array, "m k"], Float[Array, " m"]]:
        """J and gamma of the constraints at acceleration level, J a = gamma: all that v' = 0 leaves in d2Phi/dt2."""
        q, v = split_state(x)
        t = jnp.asarray(t, x.dtype)
        one = jnp.ones_like(t)
        jacobians, right = [], []
        if self.position is not None:
            position = self.position

            def phi(t: Scalar, q: Float[Array, " k"]) -> Float[Array, " m"]:
                return position_value(position, t, q, p)

            def rate(t: Scalar, q: Float[Array, " k"]) -> Float[Array, " m"]:
                return jax.jvp(phi, (t, q), (one, v))[1]

            jacobians.append(jax.jacrev(lambda q: phi(t, q))(q))
            right.append(-jax.jvp(rate, (t, q), (one, v))[1])
        if self.velocity is not None:
            level = VelocityLevel(self.velocity)

            def psi(t: Scalar, q: Float[Array, " k"], v: Float[Array, " k"]) -> Float[Array, " m"]:
                return level(t, jnp.concatenate([q, v]), p)

            jacobians.append(jax.jacrev(lambda v: psi(t, q, v))(v))
            right.append(-jax.jvp(lambda t, q: psi(t, q, v), (t, q), (one, v))[1])
        return jnp.concatenate(jacobians), jnp.concatenate(right)

    def solve(
        self, t: Scalar, x: State, z: Any, w: Any, p: Parameters
    ) -> tuple[Float[Array, " k"], Float[Array, " m"]]:
        """(a, lambda): the acceleration nearest to M^-1 F, in the metric M, that the constraints allow."""
        root = self._inertia(x, p)
        jacobian, right = self.rows(t, x, p)
        # In u = R' a the KKT system is u + (J R^-T)' lambda = R^-1 F: a projection, without forming J M^-1 J'.
        space = factorise(jax.vmap(root.half)(jacobian))
        free = root.half(self.forces(t, x, z, w, p))
        u = space.tangent(free) + space.min_norm(right)
        # Where constraints have become dependent, accelerations are not determined: a flag, rather than a guess.
        u = jnp.where(space.singular, jnp.nan, u)
        return root.half_transposed(u), space.multipliers(free - u)

    def released(self, t: Scalar, x: State, multiplier: Float[Array, " m"], w: Any, p: Parameters) -> State:
        """dx/dt with the constraints replaced by given reactions: M v' = F - J' multiplier."""
        jacobian, _ = self.rows(t, x, p)
        root = self._inertia(x, p)
        force = self.forces(t, x, None, w, p) - apply_transposed(jacobian, multiplier)
        return jnp.concatenate([split_state(x)[1], root.half_transposed(root.half(force))])

    def _inertia(self, x: State, p: Parameters) -> Inertia:
        return inertia(mass_of(self.mass, split_state(x)[0], p))
