"""Hidden constraints: the time derivatives of g(t, x, p) = level, for systems of an index above 2.

    0 = g,    0 = dg/dt = g_t + g_x f(t, x, p),    ...

by `jvp` along the flow f. A pendulum of fixed length cannot move along its rod: projected onto the length alone, its
velocity drifts; both levels together are the manifold on which its motions lie.

Only the known part of the flow may enter. For a mechanism that is the kinematics q' = v: Phi(q) = 0 gives
Phi_q v = 0 for any forces, so that both levels hold exactly with a learned friction law, before, during and after its
training. One more derivative would contain accelerations, and with them what is learned: it is not a
constraint on the state, it determines the multipliers (`Multibody`).
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import call_by_name
from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.model._learned.base import learned_parts
from twinfold.model._mechanics.multibody import Multibody, PositionLevel, VelocityLevel, kinematics
from twinfold.numerics import AbstractConstraint
from twinfold.typing import ConstraintVector, Parameters, Scalar, State


def along(g: Callable, rate: Callable) -> Callable:
    """dg/dt of g(t, x), where x' = rate(t, x): the explicit time derivative and that along the flow in one jvp."""

    def derivative(t: Scalar, x: State) -> ConstraintVector:
        t = jnp.asarray(t, x.dtype)
        return jax.jvp(g, (t, x), (jnp.ones_like(t), rate(t, x)))[1]

    return derivative


class WithHiddenConstraints(AbstractConstraint):
    """A constraint and its first `times` derivatives along a known flow; see `with_hidden_constraints`.

    **Example:**

    ```python
    rod = tw.Constraint(lambda x: x[:2] @ x[:2] - 1)
    tw.model.WithHiddenConstraints(rod, lambda x: jnp.concatenate([x[2:], jnp.zeros(2)]))
    ```
    """

    constraint: AbstractConstraint
    flow: Callable
    times: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.times < 1:
            raise ValueError(
                f"WithHiddenConstraints(times={self.times}): differentiate at least once, or use the constraint."
            )
        for name in ("constraint", "flow"):
            if learned_parts(getattr(self, name)):
                raise ValueError(
                    f"WithHiddenConstraints({name}=...): it holds a learned part, and the hidden constraint would move "
                    "while that is trained. Give only the known part of the flow (`kinematics` for mechanisms, q' = v)."
                )

    def residual(self, t: Scalar, x: State, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        size = level.shape[0] // (self.times + 1)

        def rate(t: Scalar, x: State) -> State:
            return call_by_name(self.flow, "flow", t=t, x=x, p=p)

        def g(t: Scalar, x: State) -> ConstraintVector:
            return self.constraint.residual(t, x, p, level[:size])

        values = [g(t, x)]
        for order in range(1, self.times + 1):
            g = along(g, rate)
            values.append(g(t, x) - level[order * size : (order + 1) * size])
        return jnp.concatenate(values)

    def level(self, t: Scalar, x0: State, p: Parameters) -> ConstraintVector:
        # A level is constant along a run: its rate, and that of its rate, is zero.
        given = self.constraint.level(t, x0, p)
        return jnp.concatenate([given, jnp.zeros(self.times * given.shape[0], x0.dtype)])


def with_hidden_constraints(
    constraint: AbstractConstraint,
    flow: Callable,
    x: State,
    *,
    known: Sequence[int] | None = None,
    times: int = 1,
    t: float = 0.0,
    p: Parameters | None = None,
) -> WithHiddenConstraints:
    """The constraint with its hidden ones, refused where these would need a rate that is not known.

    **Arguments:** `constraint`; `flow`, dx/dt of what it names of t, x, p, without learned parts; `x` (at `t`, with
    `p`), a state at which to look; `known`, the states whose rate the flow has right (all when left out): for a
    mechanism the positions; `times` to differentiate.

    **Raises:** `ValueError` where a derivative would contain the rate of any other state.

    **Example:**

    ```python
    rod = tw.Constraint(lambda x: x[:2] @ x[:2] - 1)
    kinematics = lambda x: jnp.concatenate([x[2:], jnp.zeros(2)])
    both = tw.with_hidden_constraints(rod, kinematics, jnp.array([1.0, 0, 0, 0]), known=[0, 1])
    both.level(0.0, jnp.array([1.0, 0, 0, 0]), {})  # position and velocity level: [0., 0.]
    ```
    """
    x, p = jnp.asarray(x), {} if p is None else p
    states = range(x.shape[0])
    trusted = set(states) if known is None else set(known)
    missing = sorted(trusted - set(states))
    if missing:
        raise ValueError(f"known={sorted(trusted)}: there is no state {missing[0]}; x has {x.shape[0]}.")
    unknown = [state for state in states if state not in trusted]
    found = WithHiddenConstraints(constraint, flow, times)
    # All levels but the last are differentiated: none may depend on a state whose rate is not known.
    differentiated = constraint if times == 1 else WithHiddenConstraints(constraint, flow, times - 1)
    level = differentiated.level(t, x, p)
    for place in nearby(x):
        slopes = np.asarray(jax.jacfwd(lambda x: differentiated.residual(t, x, p, level))(place))
        used = [state for state in unknown if np.nan_to_num(slopes[:, state]).any()]
        if used:
            raise ValueError(
                f"with_hidden_constraints: the constraint depends on state {used[0]}, whose rate is not known "
                f"(known={sorted(trusted)}): its derivative would contain what is to be learned. Differentiate fewer "
                "`times`, or project onto the constraint alone."
            )
    return found


def nearby(x: State, count: int = 4) -> list[State]:
    """`x` and a few states around it, so that a derivative which happens to vanish at x is not taken for none."""
    size = np.abs(np.asarray(x)) + np.sqrt(np.mean(np.asarray(x) ** 2)) + 1e-3
    steps = np.random.default_rng(0).normal(size=(count, x.shape[0]))
    return [x, *(x + jnp.asarray(0.1 * size * step, x.dtype) for step in steps)]


def constraint_of(mechanism: Multibody, *, hidden: bool = True, energy: bool = False) -> AbstractConstraint:
    """All that the states of a mechanism have to obey: Phi = 0, its hidden dPhi/dt = 0, Psi = 0, and its energy.

    **Arguments:** `hidden=False` leaves the velocity level out; `energy=True` keeps the energy of the start, for a
    mechanism without friction, inputs and moving constraints.

    **Example:**

    ```python
    pendulum = tw.Multibody([1.0, 1.0], lambda q: q @ q - 1, potential=lambda q: 9.81 * q[1])
    tw.Twin(pendulum, constraint=tw.constraint_of(pendulum, energy=True), projection=tw.Newton())
    ```
    """
    parts: list[AbstractConstraint] = []
    if mechanism.position is not None:
        given = Constraint(PositionLevel(mechanism.position))
        parts.append(WithHiddenConstraints(given, kinematics) if hidden else given)
    if mechanism.velocity is not None:
        parts.append(Constraint(VelocityLevel(mechanism.velocity)))
    if energy:
        if mechanism.force is not None:
            raise ValueError(
                "constraint_of(energy=True): the mechanism has a `force` beside its potential, which may do work. "
                "Leave energy out, or put what is conservative of the force into the `potential`."
            )
        parts.append(Conserved(mechanism.energy))
    return parts[0] if len(parts) == 1 else Stack(parts)
