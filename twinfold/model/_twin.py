"""The twin: physics, learned parts, parameters and observation in one object that can be fitted and simulated."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from twinfold._core import call_by_name, named_arguments
from twinfold.model._checks import check_model, checked_arguments, float_dtype, raise_or_warn
from twinfold.model._learned.base import Context, Statistics, initialise
from twinfold.model._simulation import Simulation, simulate_unchecked
from twinfold.model._stepper import Stepper
from twinfold.model._unknown import Unknown, as_parameters, is_unknown, parameter_values
from twinfold.numerics import (
    RK4,
    AbstractConstraint,
    AbstractIntegrator,
    AbstractProjection,
    Cell,
    Event,
    Hold,
    NoProjection,
    Unconstrained,
)
from twinfold.numerics._event import MAX_EVENTS, check_events
from twinfold.numerics._stability import stability_problem
from twinfold.typing import Parameters, Scalar, State


class Twin(eqx.Module):
    """A grey-box model of a physical system (the paper's seven steps).

    A function takes the arguments that it names, in any order, and leaves out the rest.

    **Arguments:**

    - `field`: dx/dt, a function or module of t, x, z, w, p (`GreyBox`, `BlackBox`, or your own), and of `level`, the
      level of the run's constraint.
    - `params`: p by name; `Unknown` where a value is to be estimated, a number or array where it is known.
    - `observe`: y, a function of t, x, z, w, p; the state itself when left out.
    - `trajectory`: the state at time t as a function of t, x (the initial state), w, p, in place of an integration (a
      PINN); `Loss(collocation=...)` penalises where it does not obey the field.
    - `algebraic`: z, a function of t, x, w, p, or `Implicit(h, guess)`, which solves 0 = h(t, x, z, w, p); evaluated in
      every stage of the integrator.
    - `initial`: the state at a run's first sample, a function of t, y, w, p there, or an `Unknown` to be estimated;
      when left out, the x0 of the data, or else the first observation.
    - `warmup`: the state at the start of a run is estimated, together with all else in a fit, and from the first
      `warmup` samples for a new run; `initial`, or what takes its place, is then the first guess. For noisy or hidden
      states. The level of a `Conserved` quantity follows from the estimated state.
    - `integrator`, `constraint`, `projection`: the recurrent cell.
    - `input_interpolation`: `"hold"` or `"linear"`, how the inputs vary between their samples.
    - `events`: conditions that stop a run, reset its state or switch its mode (`Event`); at most `max_events` of them
      between two samples.

    **Example:**

    ```python
    def physics(x, w, p):
        return jnp.stack([x[1], w[0] - p["stiffness"] * x[0]])

    twin = tw.Twin(
        field=tw.GreyBox(physics, residual=tw.MLP(states=[1], adds_to=[1], width=8, depth=1)),
        params={"stiffness": tw.Unknown(2.0, positive=True)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
    )
    ```
    """

    cell: Cell
    params: dict[str, Any]
    observe: Callable | None
    trajectory: Callable | None
    initial: Callable | Unknown | None
    warmup: int | None
    runs: tuple[str, ...] | None  # names of the runs that have parameters of their own
    groups: tuple[str, ...] | None  # the group of each
    origins: tuple[str, ...] | None  # fingerprints of their first samples: names alone do not tell runs apart

    def __init__(
        self,
        field: Callable,
        *,
        params: Mapping[str, Any] | None = None,
        observe: Callable | None = None,
        trajectory: Callable | None = None,
        algebraic: Callable | None = None,
        initial: Callable | Unknown | None = None,
        warmup: int | None = None,
        integrator: AbstractIntegrator | None = None,
        constraint: AbstractConstraint | None = None,
        projection: AbstractProjection | None = None,
        input_interpolation: Literal["hold", "linear"] = "hold",
        events: Sequence[Event] = (),
        max_events: int = MAX_EVENTS,
    ):
        if input_interpolation not in ("hold", "linear"):
            raise ValueError(f'Twin(input_interpolation={input_interpolation!r}): give "hold" or "linear".')
        if warmup is not None and warmup < 1:
            raise ValueError(f"Twin(warmup={warmup}): give the number of samples, at least one.")
        if constraint is None and projection is not None and not isinstance(projection, NoProjection):
            raise ValueError("Twin(projection=...): there is nothing to project onto; give a constraint too.")
        for role, fn, names in (
            ("field", field, ("t", "x", "z", "w", "p", "level")),
            ("observe", observe, ("t", "x", "z", "w", "p")),
            ("trajectory", trajectory, ("t", "x", "w", "p")),
            ("algebraic", algebraic, ("t", "x", "w", "p")),
            ("initial", None if isinstance(initial, Unknown) else initial, ("t", "y", "w", "p")),
        ):
            if fn is not None:
                named_arguments(fn, names, role)
        integrator = RK4() if integrator is None else integrator
        self.cell = Cell(
            field,
            algebraic,
            integrator if trajectory is None else Hold(),  # a state that is a function of time is not integrated
            Unconstrained() if constraint is None else constraint,
            NoProjection() if projection is None else projection,
            input_interpolation,
            tuple(events),
            max_events,
        )
        self.params = as_parameters({} if params is None else params)
        check_events(self.cell.events, parameter_values(self.params), max_events)
        if events and isinstance(self.cell.integrator, Hold):
            raise ValueError("Twin(events=...): this state is a function of time, and is not integrated.")
        self.observe = observe
        self.trajectory = trajectory
        self.initial = initial
        self.warmup = warmup
        self.runs = None
        self.groups = None
        self.origins = None

    @property
    def field(self) -> Callable:
        """dx/dt."""
        return self.cell.field

    @property
    def algebraic(self) -> Callable | None:
        """z, or the equations that define it."""
        return self.cell.algebraic

    @property
    def integrator(self) -> AbstractIntegrator:
        """The numerical integrator."""
        return self.cell.integrator

    @property
    def constraint(self) -> AbstractConstraint:
        """The invariants."""
        return self.cell.constraint

    @property
    def projection(self) -> AbstractProjection:
        """How the invariants are enforced."""
        return self.cell.projection

    @property
    def events(self) -> tuple[Event, ...]:
        """What stops a run, resets its state or switches its mode."""
        return self.cell.events

    @property
    def observed_cell(self) -> Cell:
        """The cell, together with `observe` where an event is a function of the outputs."""
        if self.observe is None or not any(event.asks_for("y") for event in self.events):
            return self.cell
        return eqx.tree_at(lambda cell: cell.observe, self.cell, self.observe, is_leaf=lambda node: node is None)

    def initialise(
        self,
        key: PRNGKeyArray,
        *,
        states: int,
        inputs: int = 0,
        dtype: Any = None,
        statistics: Statistics | None = None,
    ) -> "Twin":
        """A copy whose learned parts have newly drawn weights."""
        dtype = jnp.zeros(()).dtype if dtype is None else jnp.dtype(dtype)
        return initialise(self, key, Context(states, inputs, dtype, statistics))

    def parameters(self, run: int | str | Array | None = None) -> dict[str, Any]:
        """p as plain arrays; for one run (its index or name) where some parameters have a value per run."""
        return parameter_values(self.params, self._run_index(run))

    def _run_index(self, run: int | str | Array | None) -> Any:
        known = self.runs or ()
        if isinstance(run, int) and not 0 <= run < max(len(known), 1):
            raise ValueError(f"run={run}: the twin was fitted on {len(known)} runs (0 to {len(known) - 1}).")
        if not isinstance(run, str):
            return run
        found = self.run_indices((run,), (run,))
        if found is None:
            raise ValueError(f"run={run!r}: the twin was fitted on {', '.join(known) or 'no named runs'}.")
        return found[0]

    def for_runs(
        self, names: tuple[str, ...], groups: tuple[str, ...] | None = None, origins: tuple[str, ...] | None = None
    ) -> "Twin":
        """A copy in which each `Unknown` with `per_run` or `per_group` has a value for each of these.

        A run has one of these initial states if its name and, where they are given, its `origins` are the same.
        """
        groups = names if groups is None else groups
        twin = jax.tree.map(
            lambda node: node.for_runs(groups) if is_unknown(node) and node.own else node,
            self,
            is_leaf=is_unknown,
        )
        return _with_runs(twin, names, groups, origins)

    def with_starts(self, states: Float[Array, "R n"], size: Float[Array, " n"]) -> "Twin":
        """A copy in which the initial state of each run is to be estimated, from these; `size` of a change."""
        return eqx.tree_at(
            lambda twin: twin.initial, self, Unknown.at_runs(states, size), is_leaf=lambda node: node is self.initial
        )

    def centred(self) -> "Twin":
        """A copy for new runs or groups: parameters with a value for each start from the median of these."""
        twin = jax.tree.map(lambda node: node.centred() if is_unknown(node) else node, self, is_leaf=is_unknown)
        return _with_runs(twin, None, None, None)

    def unknowns(self) -> list[Unknown]:
        """Every parameter that is to be estimated."""
        return [node for node in jax.tree.leaves(self, is_leaf=is_unknown) if isinstance(node, Unknown)]

    @property
    def has_own_parameters(self) -> bool:
        """Whether any parameter has a value for each run or group."""
        return any(unknown.own for unknown in self.unknowns())

    def run_indices(self, names: Sequence[str], groups: Sequence[str]) -> list[int] | None:
        """For each run the index under which `parameters` finds its values; None where one has none.

        A run that was not fitted has the parameters of its group, unless some belong to single runs.
        """
        known, owned = list(self.runs or ()), list(self.groups or ())
        alone = any(unknown.per_run for unknown in self.unknowns())
        found = [
            known.index(name) if name in known else owned.index(group) if group in owned and not alone else None
            for name, group in zip(names, groups, strict=True)
        ]
        return None if None in found else [place for place in found if place is not None]

    def state(self, t: Scalar, x: State, w: Any, p: Parameters) -> State:
        """The state at t, where the cell has x: x itself, or `trajectory` from the initial state x."""
        if self.trajectory is None:
            return x
        return call_by_name(self.trajectory, "trajectory", t=t, x=x, w=w, p=p)

    def outputs(self, t: Scalar, x: State, w: Any, p: Parameters, z: Any = None) -> Float[Array, " k"]:
        """y(t, x, z, w, p), where the cell has x; `z` is the guess for implicit algebraic variables."""
        return self.observed(t, x, w, p, z)[0]

    def observed(self, t: Scalar, x: State, w: Any, p: Parameters, z: Any = None) -> tuple[Float[Array, " k"], Any]:
        """The outputs and the algebraic variables, where the cell has x; `z` is the guess for implicit ones."""
        x = self.state(t, x, w, p)
        z = self.cell.algebraic_variables(t, x, w, p, z)
        if self.observe is None:
            return x, z
        return jnp.atleast_1d(call_by_name(self.observe, "observe", t=t, x=x, z=z, w=w, p=p)), z

    def initial_state(
        self,
        t: Scalar,
        y: Float[Array, " k"],
        w: Any,
        p: Parameters,
        *,
        x0: State | None = None,
        run: Any = None,
    ) -> State:
        """The state at a run's first sample: estimated, computed, given, or observed, in this order."""
        if isinstance(self.initial, Unknown):
            return self.initial.value(run)
        if self.initial is not None:
            return jnp.asarray(call_by_name(self.initial, "initial", t=t, y=y, w=w, p=p))
        if x0 is not None:
            return x0
        if self.observe is not None:
            raise ValueError(
                "initial: the state is not what is observed, and the data have no x0. Give the twin "
                "initial=function of the first observation, or initial=Unknown(guess, per_run=True)."
            )
        return y

    def simulate(
        self,
        x0: ArrayLike | Sequence,
        ts: ArrayLike | Sequence,
        w: ArrayLike | Sequence | None = None,
        *,
        run: int | str | None = None,
        p: Mapping[str, Any] | None = None,
        level: ArrayLike | Sequence | None = None,
        inconsistent_x0: Literal["project", "refuse"] = "project",
        throw: bool = True,
    ) -> Simulation:
        """Predict one trajectory (the paper's step 7).

        **Arguments:** `x0` at `ts[0]`; `ts`, increasing; `w`, one row of inputs for each time; `run`, whose own
        parameters to use; `p`, values that replace the twin's; `level` of the constraint (that of x0 when left
        out); `inconsistent_x0`: whether an x0 off the manifold is projected, with a warning that says how far it was,
        or refused; `throw=False` returns a failed simulation as it is, and takes an explicit step however long it is.
        """
        first, times, inputs, wanted = checked_arguments(x0, ts, w, level, inconsistent_x0)
        values = self._values(run, p)
        # The simulation follows the dtype of its initial state.
        values = jax.tree.map(lambda leaf: leaf.astype(first.dtype) if eqx.is_inexact_array(leaf) else leaf, values)
        w0 = None if inputs is None else inputs[0]
        count = check_model(self, times[0], first, w0, values)
        if wanted is not None and (wanted.shape != (count,) or not bool(jnp.all(jnp.isfinite(wanted)))):
            raise ValueError(f"level={np.asarray(wanted)}: give {count} finite values, one for each constraint.")
        if throw:
            start_level = self.constraint.level(times[0], first, values) if wanted is None else wanted
            longest = float(jnp.max(jnp.diff(times)))
            wrong = stability_problem(self.cell, times[0], first, w0, values, start_level, longest)
            if wrong is not None:
                raise ValueError(wrong)
        simulation = simulate_unchecked(self, first, times, inputs, values, wanted, inconsistent_x0)
        raise_or_warn(self, simulation, inconsistent_x0, throw)
        return simulation

    def stepper(
        self,
        x0: ArrayLike | Sequence | None = None,
        *,
        run: int | str | None = None,
        p: Mapping[str, Any] | None = None,
        level: ArrayLike | Sequence | None = None,
    ) -> Stepper:
        """The twin one sample at a time, for use beside a running plant: `stepper.step(t, w, y)`.

        It compares the measurements and is not corrected by them. `twinfold.estimate.Follower` is; given inputs alone,
        it has the same predictions, with a band.

        **Arguments:** as for `simulate`; `x0` may be left out where the first measurement gives it.
        """
        first = None if x0 is None else jnp.asarray(x0)
        dtype = None if first is None else float_dtype(first)
        stepper = Stepper(self, self._values(run, p), run=self._run_index(run), dtype=dtype)
        stepper.reset(first, level=level)
        return stepper

    def _values(self, run: int | str | None, p: Mapping[str, Any] | None) -> dict[str, Any]:
        """The parameters of a run, with those in `p` replaced."""
        values = self.parameters(run)
        for name in p or {}:
            if name not in values:
                raise ValueError(f"p: there is no parameter '{name}'; the twin has {', '.join(values) or 'none'}.")
        return values | {name: jnp.asarray(value) for name, value in (p or {}).items()}


def _with_runs(twin: Twin, *identity: tuple[str, ...] | None) -> Twin:
    """A copy with these names, groups and origins of runs."""
    return eqx.tree_at(
        lambda twin: (twin.runs, twin.groups, twin.origins), twin, identity, is_leaf=lambda node: node is None
    )
