"""A twin under a step of a load: its current given, or solved for in every stage so that a voltage or power is held."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import call_by_name
from twinfold.model import Implicit, Twin
from twinfold.numerics import Event
from twinfold.numerics._algebraic import AbstractImplicit
from twinfold.typing import ConstraintVector, Parameters, Scalar, State

NEVER = 1e30  # a limit that no voltage or current reaches


def limited(twin: Twin, voltage: int) -> Twin:
    """The twin with a given current, and an event at the limit of a step: the voltage p["load"]["limit"]."""

    event = Event(_Limit(voltage, "A"), stop=True, name="limit")
    cell = dataclasses.replace(twin.cell, events=(event,), input_interpolation="hold")
    return eqx.tree_at(lambda twin: twin.cell, twin, cell)


def controlled(twin: Twin, voltage: int, current: int, kind: str, direct: bool) -> Twin:
    """The twin whose current is such that the voltage, or the power, is p["load"]["target"].

    The current is an algebraic variable, the first of z; those of the twin follow if they are implicit. It is the last
    of the outputs too. The event is at the limit: the voltage, or the magnitude of the current where a voltage is held.

    `direct`: the voltage depends on the present current. If it is a function of states alone, V(t, x) = target does not
    determine the current (an index of 2), but its derivative does: dV/dt = (target - V) / settle.
    """
    part = _Controlled(twin, voltage, current, kind, direct)

    return Twin(
        part.field,
        observe=part.observe,
        algebraic=Implicit(part.equations, part.guess),
        integrator=twin.integrator,
        constraint=twin.constraint,
        projection=twin.projection,
        events=[Event(_Limit(voltage, kind), stop=True, name="limit")],
    )


class _Limit(eqx.Module):
    """The condition that ends a step. A module rather than a closure: equal ones share a compiled program."""

    voltage: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)

    def __call__(self, y: Float[Array, " k"], p: Parameters) -> Float[Array, ""]:
        value = jnp.abs(y[-1]) if self.kind == "V" else y[self.voltage]
        return p["load"]["side"] * (value - p["load"]["limit"])


class _Controlled(eqx.Module):
    twin: Twin
    voltage: int = eqx.field(static=True)
    current: int = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    direct: bool = eqx.field(static=True)

    def _inputs(self, z: Float[Array, " q"], w: Float[Array, " d"]) -> Float[Array, " d"]:
        return w.at[self.current].set(z[0])

    def _own(self, t: Scalar, x: State, z: Float[Array, " q"], w: Any, p: Parameters) -> Any:
        """The algebraic variables of the twin."""
        algebraic = self.twin.algebraic
        if isinstance(algebraic, AbstractImplicit):
            return algebraic.given(t, x, z[1:], w, p)
        return self.twin.cell.algebraic_variables(t, x, w, p)

    def _outputs(self, t: Scalar, x: State, z: Float[Array, " q"], w: Any, p: Parameters) -> Float[Array, " k"]:
        if self.twin.observe is None:
            return x
        own = self._own(t, x, z, w, p)
        return jnp.atleast_1d(call_by_name(self.twin.observe, "observe", t=t, x=x, z=own, w=w, p=p))

    def field(
        self, t: Scalar, x: State, z: Float[Array, " q"], w: Any, p: Parameters, level: ConstraintVector
    ) -> State:
        w = self._inputs(z, w)
        own = self._own(t, x, z, w, p)
        return call_by_name(self.twin.field, "field", t=t, x=x, z=own, w=w, p=p, level=level)

    def observe(self, t: Scalar, x: State, z: Float[Array, " q"], w: Any, p: Parameters) -> Float[Array, " k"]:
        return jnp.append(self._outputs(t, x, z, self._inputs(z, w), p), z[0])

    def equations(self, t: Scalar, x: State, z: Float[Array, " q"], w: Any, p: Parameters) -> Float[Array, " q"]:
        algebraic, solved = self.twin.algebraic, self._inputs(z, w)
        if self.kind == "V" and not self.direct:
            off = self._approach(t, x, z, w, p)
        else:
            held = self._outputs(t, x, z, solved, p)[self.voltage]
            off = (held * z[0] if self.kind == "W" else held) - p["load"]["target"]
        off = jnp.reshape(off, (1,))
        if not isinstance(algebraic, Implicit):
            return off
        return jnp.concatenate([off, algebraic.residual(t, x, z[1:], solved, p)])

    def _approach(self, t: Scalar, x: State, z: Float[Array, " q"], w: Any, p: Parameters) -> Float[Array, ""]:
        """dV/dt - (target - V) / settle, V a function of t and x."""
        inputs = self._inputs(z, w)
        own = z[1:] if isinstance(self.twin.algebraic, AbstractImplicit) else None

        def voltage(t: Scalar, x: State) -> Float[Array, ""]:
            return self.twin.outputs(t, x, inputs, p, own)[self.voltage]

        rate = self.field(t, x, z, w, p, self.twin.constraint.level(t, x, p))
        value, slope = jax.jvp(voltage, (t, x), (jnp.ones_like(t), rate))
        return slope + (value - p["load"]["target"]) / p["load"]["settle"]

    def guess(self, t: Scalar, x: State, w: Any, p: Parameters) -> Float[Array, " q"]:
        first = jnp.reshape(p["load"]["guess"], (1,)).astype(x.dtype)
        algebraic = self.twin.algebraic
        if not isinstance(algebraic, AbstractImplicit):
            return first
        return jnp.concatenate([first, algebraic.initial_guess(t, x, self._inputs(first, w), p)])
