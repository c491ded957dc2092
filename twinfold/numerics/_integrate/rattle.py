"""RATTLE: the symplectic method for mechanisms, for long runs without friction, whose energy must not drift.

    v_half = v + h/2 (a(q) - M^-1 J(q)' mu),    q1 = q + h v_half,    Phi(t + h, q1) = 0
    v1 = v_half + h/2 (a(q1) - M^-1 J(q1)' nu),    J(q1) v1 + Phi_t = 0

Order 2; positions and velocities obey their constraints to rounding after every step, and the energy error stays
bounded (it is that of a nearby mechanism) rather than growing with time. The accelerations a are those of the field,
reactions included: these lie in the range of M^-1 J', so that mu and nu take them back, and the method is the same as
with forces alone. Andersen 1983; Leimkuhler and Skeel 1994.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import RESULTS, Frozen, named_arguments
from twinfold.numerics._integrate.base import AbstractIntegrator, IntegratorResult, check_substeps, repeat_steps
from twinfold.numerics._linalg.dense import (
    RowSpace,
    apply_transposed,
    cholesky,
    factorise,
    product,
)
from twinfold.numerics._linalg.inertia import Inertia, inertia, mass_of
from twinfold.numerics._mechanism import AbstractMechanism, position_value, split_state
from twinfold.numerics._root import AbstractEquations, find_root
from twinfold.typing import Flag, Parameters, Scalar, Signal, State


class Rattle(AbstractIntegrator):
    """A step for the field of `mechanism`, x = (q, v), or for any field with the same constraint and masses.

    Forces may depend on velocities (friction, learned or not): the method keeps its order, and is no longer symplectic.

    **Arguments:** `mechanism`, of which it keeps the position constraint and the masses (forces come from the field of
    the twin); `substeps` between two samples; `max_steps` of Newton's method for the positions, which reports
    `RESULTS.solver` where it does not arrive.

    **Example:**

    ```python
    pendulum = tw.Multibody([1.0, 1.0], lambda q: q @ q - 1, potential=lambda q: 9.81 * q[1])
    twin = tw.Twin(pendulum, integrator=tw.Rattle(pendulum))
    twin.simulate([1.0, 0.0, 0.0, 0.0], jnp.linspace(0, 1, 101)).xs[-1]
    ```
    """

    position: Callable
    mass: Callable | Frozen
    substeps: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    def __init__(self, mechanism: AbstractMechanism, substeps: int = 1, *, max_steps: int = 20):
        check_substeps(substeps)
        if max_steps < 1:
            raise ValueError(f"Rattle(max_steps={max_steps}): at least one step is needed.")
        if mechanism.position is None or mechanism.velocity is not None:
            raise ValueError(
                "Rattle(mechanism): the method is for constraints on positions alone; the mechanism has `velocity` "
                "constraints. Take RK4() and project onto constraint_of(mechanism)."
            )
        if not isinstance(mechanism.mass, Frozen) and "q" in named_arguments(mechanism.mass, ("q", "p"), "mass"):
            raise ValueError(
                "Rattle(mechanism): its mass matrix varies with q. Choose coordinates with constant masses (Cartesian "
                "ones), or take RK4() and project onto constraint_of(mechanism, energy=True)."
            )
        self.position, self.mass = mechanism.position, mechanism.mass
        self.substeps, self.max_steps = substeps, max_steps

    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        h = jnp.asarray(dt / self.substeps, x.dtype)
        root = inertia(mass_of(self.mass, split_state(x)[0], p))

        def one(t: Scalar, carry: tuple[State, RESULTS]) -> tuple[State, RESULTS]:
            x, before = carry
            x1, result = self._advance(field, jnp.asarray(t, x.dtype), h, x, w, p, root)
            moved = h != 0  # padding, and the first step of a rollout, stay where they are
            result = RESULTS.where(moved & (before == RESULTS.successful), result, before)
            return jnp.where(moved, x1, x), result

        return IntegratorResult(*repeat_steps(one, (x, RESULTS.successful), t, dt, self.substeps))

    def _advance(
        self,
        field: Callable,
        t: Float[Array, ""],
        h: Float[Array, ""],
        x: State,
        w: Signal,
        p: Parameters,
        root: Inertia,
    ) -> tuple[State, RESULTS]:
        q, v = split_state(x)
        t1 = t + h

        def acceleration(t: Scalar, q: Array, v: Array) -> Array:
            return split_state(field(t, jnp.concatenate([q, v]), w(t), p))[1]

        # For forces of q alone the guess v + h/2 a is of no account; with friction it keeps the order.
        a = acceleration(t, q, v + 0.5 * h * acceleration(t, q, v))
        v_half = v + 0.5 * h * a
        here, there = _Position(self.position, t, p), _Position(self.position, t1, p)
        space = here.space(q, root)
        shift, reached = self._reach(there, q + h * v_half, space, root)
        q1, v_half = q + h * v_half + shift, v_half + shift / jnp.where(h == 0, 1, h)
        v_free = v_half + 0.5 * h * acceleration(t1, q1, v_half)
        after = there.space(q1, root)
        correction = root.half_transposed(after.min_norm(there.drift(q1, v_free)))
        v1 = v_free - jnp.where(reached, correction, 0)
        singular = space.singular | after.singular
        result = RESULTS.where(singular, RESULTS.singular, RESULTS.solver)
        solved = reached & ~singular
        return jnp.concatenate([q1, v1]), RESULTS.where(solved, RESULTS.successful, result)

    def _reach(
        self, phi: "_Position", start: Float[Array, " k"], space: RowSpace, root: Inertia
    ) -> tuple[Float[Array, " k"], Flag]:
        """The shift of `start` along M^-1 J(q)' onto Phi = 0, zero where none is found."""
        equations = _PositionEquations(phi, start, space, root)
        found = find_root(equations, jnp.zeros_like(space.factor[0]), max_steps=self.max_steps)
        # Beyond a quarter turn of the constraints' normals the root lies on another branch.
        slope = jax.lax.stop_gradient(equations.jacobian(found.z))
        solved = found.solved & cholesky(0.5 * (slope + slope.T))[1] & ~space.singular
        return jnp.where(solved, equations.shift(found.z), 0), solved


class _Position(eqx.Module):
    """Phi at a time, with its parameters."""

    position: Callable
    t: Float[Array, ""]
    p: Parameters

    def __call__(self, q: Float[Array, " k"]) -> Float[Array, " m"]:
        return position_value(self.position, self.t, q, self.p)

    def space(self, q: Float[Array, " k"], root: Inertia) -> RowSpace:
        """The row space of J R^-T: normals of the constraints, in units of energy."""
        return factorise(jax.vmap(root.half)(jax.jacrev(self)(q)))

    def drift(self, q: Float[Array, " k"], v: Float[Array, " k"]) -> Float[Array, " m"]:
        """dPhi/dt = J v + Phi_t."""
        at = jnp.asarray(self.t, q.dtype)
        return jax.jvp(lambda t, q: position_value(self.position, t, q, self.p), (at, q), (jnp.ones_like(at), v))[1]


class _PositionEquations(AbstractEquations):
    """F^-1 Phi(start + R^-T Q' y) = 0: equations for y whose Jacobian at y = 0 is near the identity."""

    phi: _Position
    start: Float[Array, " k"]
    space: RowSpace
    root: Inertia

    def shift(self, y: Float[Array, " m"]) -> Float[Array, " k"]:
        return self.root.half_transposed(apply_transposed(self.space.q, y))

    def residual(self, z: Float[Array, " m"]) -> Float[Array, " m"]:
        return self.space.solve(self.phi(self.start + self.shift(z)))

    def jacobian(self, z: Float[Array, " m"]) -> Float[Array, "m m"]:
        rows = jax.vmap(self.root.half)(jax.jacrev(self.phi)(self.start + self.shift(z)))
        slope = product(rows, self.space.q.T)
        return jax.vmap(self.space.solve, 1, 1)(slope)

    def scale(self, z: Float[Array, " m"]) -> Float[Array, " m"]:
        """The length of the position in the metric M, in which y is a length too."""
        size = jnp.linalg.norm(self.root.times_root_transposed(self.start + self.shift(z)))
        return jnp.broadcast_to(size + jnp.finfo(z.dtype).tiny, z.shape)
