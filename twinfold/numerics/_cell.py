"""The recurrent cell: predict with the integrator, then project onto the manifold."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from twinfold._core import RESULTS, call_by_name, stop_gradient_tree
from twinfold.numerics._algebraic import AbstractImplicit
from twinfold.numerics._constraint import AbstractConstraint, Unconstrained
from twinfold.numerics._event import MAX_EVENTS, Event
from twinfold.numerics._integrate.base import AbstractIntegrator, IntegratorResult
from twinfold.numerics._integrate.explicit import RK4
from twinfold.numerics._integrate.hold import Hold
from twinfold.numerics._project.base import AbstractProjection, NoProjection, ProjectionResult
from twinfold.typing import ConstraintVector, Flag, Parameters, Scalar, Signal, State


class Cell(eqx.Module):
    """h_{k+1} = Project(Phi_dt(h_k; f)): HRPINN without a projection, PHRPINN with one (the paper's Algorithm 2).

    **Arguments:** `field` (t, x, z, w, p, level) -> dx; `algebraic` (t, x, w, p) -> z, evaluated in every stage, or
    `Implicit`, solved there; `integrator`; `constraint` and `projection`; `input_interpolation`: `"hold"` or
    `"linear"`, how the input varies between samples; `events`, and how many of them there may be between two samples;
    `observe`, for events that are functions of the outputs.

    **Example:**

    ```python
    cell = tw.Cell(lambda t, x: jnp.stack([x[1], -x[0]]), integrator=tw.RK4())
    tw.rollout(cell, jnp.array([1.0, 0.0]), jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    field: Callable
    algebraic: Callable | None = None
    integrator: AbstractIntegrator = eqx.field(default_factory=RK4)
    constraint: AbstractConstraint = eqx.field(default_factory=Unconstrained)
    projection: AbstractProjection = eqx.field(default_factory=NoProjection)
    input_interpolation: str = eqx.field(static=True, default="hold")
    events: tuple[Event, ...] = ()
    max_events: int = eqx.field(static=True, default=MAX_EVENTS)
    observe: Callable | None = None  # only for events that ask for y

    def _input_signal(self, t: Scalar, dt: Scalar, w0: Any, w1: Any) -> Signal:
        """The input within a step, from its samples at both ends."""
        if w0 is None:
            return lambda _: None
        if self.input_interpolation == "hold":
            return lambda _: w0
        length = jnp.where(dt == 0, 1, dt)  # padding repeats the last time
        return lambda at: w0 + (at - t) / length * (w1 - w0)

    def algebraic_variables(self, t: Scalar, x: State, w: Any, p: Parameters, z: Any = None) -> Any:
        """z(t, x, w, p), or None without algebraic variables; `z` is the guess for implicit ones."""
        if self.algebraic is None:
            return None
        if isinstance(self.algebraic, AbstractImplicit):
            return self.algebraic(t, x, w, p, z)
        return call_by_name(self.algebraic, "algebraic", t=t, x=x, w=w, p=p)

    def rate(self, t: Scalar, x: State, w: Any, p: Parameters, level: ConstraintVector) -> State:
        """dx/dt. A field that names `level` receives that of the run (a stabilised field needs it)."""
        return self._rate(t, x, self.algebraic_variables(t, x, w, p), w, p, level)

    def _rate(self, t: Scalar, x: State, z: Any, w: Any, p: Parameters, level: ConstraintVector) -> State:
        return call_by_name(self.field, "field", t=t, x=x, z=z, w=w, p=p, level=level)

    def initial_guess(self, t: Scalar, x: State, w: Any, p: Parameters) -> Any:
        """The guess for implicit z at the first sample; None where there is nothing to solve."""
        if not isinstance(self.algebraic, AbstractImplicit) or isinstance(self.integrator, Hold):
            return None
        return self.algebraic.initial_guess(t, x, w, p)

    def next_guess(self, t: Scalar, x: State, w: Any, p: Parameters, z: Any) -> tuple[Any, Flag]:
        """The implicit z at a sample, as a guess without derivatives for the next, and whether it was found."""
        if z is None or not isinstance(self.algebraic, AbstractImplicit):
            return None, jnp.array(True)
        algebraic, t, x, w, p = stop_gradient_tree((self.algebraic, t, x, w, p))
        found = algebraic.solve(t, x, w, p, z)
        return jnp.where(found.solved, found.z, z), found.solved

    def step(
        self,
        t: Scalar,
        dt: Scalar,
        x: State,
        w0: Any,
        w1: Any,
        p: Parameters,
        level: ConstraintVector,
        z: Any = None,
        known: ProjectionResult | None = None,
    ) -> tuple[ProjectionResult, RESULTS]:
        """The state at t + dt as it was projected, and how integrator and projection ended.

        **Arguments:** the inputs `w0` at t and `w1` at t + dt; `z`, the guess for implicit algebraic variables in each
        stage; `known`, the projection of a step that has been computed before and is only differentiated now.
        """
        predicted = self._predict(t, dt, x, self._input_signal(t, dt, w0, w1), p, level, z)
        out = self.projection.project(self.constraint, t + dt, predicted.x, p, level, anchor=x, known=known)
        solved = predicted.result == RESULTS.successful
        return out, RESULTS.where(solved, out.result, predicted.result)

    def _predict(
        self, t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters, level: ConstraintVector, z: Any
    ) -> IntegratorResult:
        algebraic = self.algebraic
        if not isinstance(algebraic, AbstractImplicit):
            return self.integrator.step(lambda t, x, w, p: self.rate(t, x, w, p, level), t, dt, x, w, p)

        def rate(t: Scalar, marked: State, w: Any, p: Parameters) -> State:
            x, mark = marked[:-1], marked[-1]
            found = algebraic.solve(t, x, w, p, z)
            # A stage whose state is not finite has failed before.
            missed = (~found.solved & jnp.all(jnp.isfinite(x))) | (jnp.abs(mark) > 0)
            dx = self._rate(t, x, algebraic.given(t, x, found.z, w, p), w, p, level)
            return jnp.append(dx, missed.astype(dx.dtype))

        # One more state marks the step: it stays at zero unless the equations were not solved in one of the stages.
        out = self.integrator.step(rate, t, dt, jnp.append(x, jnp.zeros_like(x[0])), w, p)
        missed = jnp.abs(out.x[-1]) > 0
        return IntegratorResult(out.x[:-1], RESULTS.where(missed, RESULTS.algebraic, out.result))
