"""The recurrent cell: predict with the integrator, then project onto the manifold."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from twinfold._types import Level, Parameters, Scalar, Signal, State
from twinfold.constraint.base import AbstractConstraint, Unconstrained
from twinfold.field.arguments import call_by_name
from twinfold.integrate.base import AbstractIntegrator
from twinfold.integrate.explicit import RK4
from twinfold.project.base import AbstractProjection, Correction, NoProjection
from twinfold.result import RESULTS


def signal(t: Scalar, dt: Scalar, w0: Any, w1: Any, between: str) -> Signal:
    """The input within a step, from its samples at the step's two ends."""
    if w0 is None:
        return lambda _: None
    if between == "hold":
        return lambda _: w0
    length = jnp.where(dt == 0, 1, dt)  # padding repeats the last time
    return lambda at: w0 + (at - t) / length * (w1 - w0)


class Cell(eqx.Module):
    """h_{k+1} = Project(Phi_dt(h_k; f)): HRPINN without a projection, PHRPINN with one (the paper's Algorithm 2).

    **Arguments:** `field` (t, x, z, w, p, level) -> dx; `algebraic` (t, x, w, p) -> z, evaluated in every stage;
    `integrator`; `constraint` and `projection`; `between`: how the input varies between samples.
    """

    field: Callable
    algebraic: Callable | None = None
    integrator: AbstractIntegrator = eqx.field(default_factory=RK4)
    constraint: AbstractConstraint = eqx.field(default_factory=Unconstrained)
    projection: AbstractProjection = eqx.field(default_factory=NoProjection)
    between: str = eqx.field(static=True, default="hold")

    def algebraic_variables(self, t: Scalar, x: State, w: Any, p: Parameters) -> Any:
        """z(t, x, w, p), or None where the model has no algebraic variables."""
        if self.algebraic is None:
            return None
        return call_by_name(self.algebraic, "algebraic", t=t, x=x, w=w, p=p)

    def rate(self, t: Scalar, x: State, w: Any, p: Parameters, level: Level) -> State:
        """dx/dt. A field that names `level` is told that of the run (stabilisation by the field itself needs it)."""
        z = self.algebraic_variables(t, x, w, p)
        return call_by_name(self.field, "field", t=t, x=x, z=z, w=w, p=p, level=level)

    def step(self, t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters, level: Level) -> Correction:
        """The state at t + dt."""

        def rate(t: Scalar, x: State, w: Any, p: Parameters) -> State:
            return self.rate(t, x, w, p, level)

        predicted = self.integrator.step(rate, t, dt, x, w, p)
        out = self.projection.project(self.constraint, t + dt, predicted.x, p, level, anchor=x)
        solved = predicted.result == RESULTS.successful
        return eqx.tree_at(lambda out: out.result, out, RESULTS.where(solved, out.result, predicted.result))
