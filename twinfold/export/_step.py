"""The step of a twin as functions of flat arrays, from which every exporter starts.

    init(t, x0, w, p) -> state, y, status
    step(t, w0, w1, p, state) -> state, y, status
    output(t, w, p, state) -> y

`state` holds x, the levels of the constraints (for a conserved quantity, those of x0), the implicit algebraic variables
as the guess of the next solve, what events depend on, and the violation after the last step. `p` is the vector of all
parameters. Learned weights are constants. The steps are those of a rollout: the first has length zero and moves x0
onto the manifold, and a step that ends in a non-finite state keeps the last finite one.
"""

import abc
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from twinfold._core import RESULTS, outcome_messages
from twinfold.export._event_state import PackedEvents
from twinfold.export._spec import ExportSpec
from twinfold.io import unknown_name
from twinfold.io._names import check_name
from twinfold.model import Twin
from twinfold.model._checks import check_model
from twinfold.numerics._advance import advance, initial_cell_state
from twinfold.numerics._event import in_mode
from twinfold.numerics._move import CellState

Vector: TypeAlias = Float[Array | np.ndarray, " _"]
Status: TypeAlias = Int[Array, ""]

# The message of each status: those of `RESULTS` in order; the first, of success, is empty.
MESSAGES = outcome_messages()


def precision(dtype: Any) -> contextlib.AbstractContextManager:
    """JAX in the precision of `dtype`, whatever its configuration."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)


class Function(NamedTuple):
    """A function to export: the shapes of its arguments by name, and the names of its results."""

    call: Callable[..., Any]
    arguments: dict[str, tuple[int, ...]]
    results: list[str]


class AbstractStep(abc.ABC):
    """The functions of an export, their sizes, and its parameters: names and default values.

    `about`: what a caller should know beside that, in lines of text. x is the beginning of the state, and the
    violation of the constraints is its end.
    """

    spec: ExportSpec
    dtype: np.dtype
    constraints: int
    parameters: tuple[str, ...]
    defaults: np.ndarray
    about: tuple[str, ...]
    events: PackedEvents | None

    @property
    @abc.abstractmethod
    def state_size(self) -> int:
        """The length of the state."""

    @property
    @abc.abstractmethod
    def event_places(self) -> dict[str, list[int]]:
        """Where the numbers of the events are in the state; empty without events."""

    @property
    @abc.abstractmethod
    def functions(self) -> dict[str, Function]:
        """`init`, `step` and `output` by name."""

    @abc.abstractmethod
    def init(self, t: Any, x0: Any, w: Vector, p: Vector) -> tuple[Vector, Vector, Status]:
        """The state at `t`, with outputs and status."""

    @abc.abstractmethod
    def step(self, t: Any, w0: Vector, w1: Vector, p: Vector, state: Vector) -> tuple[Vector, Vector, Status]:
        """The state at `t + dt`, with outputs and status."""

    @abc.abstractmethod
    def output(self, t: Any, w: Vector, p: Vector, state: Vector) -> Vector:
        """The outputs at `t` without a step."""

    def description(self) -> dict[str, Any]:
        """What a caller of the exported functions has to know, for a JSON file beside them."""
        n, m = len(self.spec.states), self.constraints
        places = {"x": [0, n], "level": [n, n + m], "violation": [self.state_size - m, self.state_size]}
        return {
            "name": self.spec.name,
            "dtype": self.dtype.name,
            "dt": self.spec.dt,
            "states": list(self.spec.states),
            "inputs": list(self.spec.inputs),
            "outputs": list(self.spec.outputs),
            "units": dict(self.spec.units),
            "x0": np.asarray(self.spec.x0, float).tolist(),
            "parameters": dict(zip(self.parameters, self.defaults.tolist(), strict=True)),
            "state": places | self.event_places,
            "state_size": self.state_size,
            "status": list(MESSAGES),
            "functions": {
                name: {argument: list(shape) for argument, shape in function.arguments.items()}
                for name, function in self.functions.items()
            },
        }

    def functions_of(self, init: Callable, step: Callable, output: Callable) -> dict[str, Function]:
        """These functions with the shapes of their arguments."""
        x, w, p = (len(self.spec.states),), (len(self.spec.inputs),), (len(self.parameters),)
        state = (self.state_size,)
        return {
            "init": Function(init, {"t": (), "x0": x, "w": w, "p": p}, ["state", "y", "status"]),
            "step": Function(step, {"t": (), "w0": w, "w1": w, "p": p, "state": state}, ["state_next", "y", "status"]),
            "output": Function(output, {"t": (), "w": w, "p": p, "state": state}, ["y"]),
        }


@dataclass(frozen=True, eq=False)
class Step(AbstractStep):
    """The functions of an exported twin."""

    twin: Twin
    spec: ExportSpec
    dtype: np.dtype
    constraints: int
    algebraic: int
    parameters: tuple[str, ...]
    defaults: np.ndarray
    unravel: Callable[[Any], Any]
    events: PackedEvents | None = None
    about: tuple[str, ...] = (
        "state: x, the levels of the constraints, the algebraic variables, and the violation after the last step.",
    )

    @property
    def state_size(self) -> int:
        return self._events_at + (0 if self.events is None else self.events.size) + self.constraints

    @property
    def event_places(self) -> dict[str, list[int]]:
        return {} if self.events is None else self.events.places(self._events_at)

    @property
    def _events_at(self) -> int:
        return len(self.spec.states) + self.constraints + self.algebraic

    @property
    def functions(self) -> dict[str, Function]:
        return self.functions_of(self.init, self.step, self.output)

    def init(self, t: Any, x0: Any, w: Vector, p: Vector) -> tuple[Vector, Vector, Status]:
        """The state at `t`, moved onto the manifold, with outputs and status."""
        values, inputs, cell = self.unravel(p), self._inputs(w), self.twin.cell
        level = cell.constraint.level(t, x0, values)
        state = initial_cell_state(cell, t, x0, inputs, values, level)
        log = None if self.events is None else self.events.nothing(t, x0)
        return self._advance(t, 0.0, state, inputs, inputs, values, level, log)

    def step(self, t: Any, w0: Vector, w1: Vector, p: Vector, state: Vector) -> tuple[Vector, Vector, Status]:
        """The state at `t + dt`, with outputs and status."""
        before, level, log = self._unpack(state)
        inputs = self._inputs(w0), self._inputs(w1)
        return self._advance(t, float(self.spec.dt), before, *inputs, self.unravel(p), level, log)

    def output(self, t: Any, w: Vector, p: Vector, state: Vector) -> Vector:
        """The outputs at `t` without a step."""
        now, *_ = self._unpack(state)
        return self.twin.outputs(t, now.x, self._inputs(w), _parameters(self.unravel(p), now), now.z)

    def _inputs(self, w: Any) -> Any:
        return w if len(self.spec.inputs) else None

    def _unpack(self, state: Any) -> tuple[CellState, Any, Any]:
        """The state of the cell, the levels, and the last event."""
        n, m, k = len(self.spec.states), self.constraints, self.algebraic
        z, level = state[n + m : n + m + k] if k else None, state[n : n + m]
        events, log = None, None
        if self.events is not None:
            events, log = self.events.unpack(state[self._events_at :], level)
        return CellState(state[:n], z, jnp.array(True), events), level, log

    def _advance(self, t: Any, dt: float, state: CellState, w0: Any, w1: Any, p: Any, level: Any, log: Any) -> tuple:
        state, report = advance(self.twin.observed_cell, t, dt, state, w0, w1, p, level)
        y = self.twin.outputs(t + dt, state.x, w1, _parameters(p, state), state.z)
        packed = [state.x, level, *([] if state.z is None else [state.z])]
        if self.events is not None:
            assert state.events is not None
            assert report.events is not None
            packed = [state.x, state.events.level, *packed[2:], self.events.pack(state.events, report.events, log)]
        packed.append(report.violation)
        # From a finite state, an output can still overflow, or contain an input that is not finite.
        sound = jnp.all(jnp.isfinite(y)) | (report.result != RESULTS.successful)
        return jnp.concatenate(packed), y, jax.tree.leaves(RESULTS.where(sound, report.result, RESULTS.nonfinite))[0]


def build_step(twin: Twin, spec: ExportSpec, *, dtype: Any = np.float64) -> Step:
    """The step of a twin; call it with JAX in the precision of `dtype`.

    **Raises:** `ValueError` if twin and spec do not fit together.
    """
    if twin.trajectory is not None:
        raise ValueError(
            "export: the state of this twin is a function of time (`trajectory=`), so there is no step to export. "
            "Call the function itself, or fit a twin that is integrated."
        )
    dtype = np.dtype(dtype)
    twin = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, twin)
    values = dict(twin.parameters())
    for name, value in spec.parameters.items():
        if name not in values:
            raise ValueError(f"ExportSpec(parameters=...): there is no parameter {unknown_name(name, values)}")
        values[name] = jnp.asarray(value)
    t0, x0 = jnp.asarray(spec.t0, dtype), jnp.asarray(spec.x0, dtype)
    w0 = jnp.asarray(spec.initial_inputs, dtype) if len(spec.inputs) else None
    constraints = check_model(twin, t0, x0, w0, values)
    (outputs,) = jax.eval_shape(twin.outputs, t0, x0, w0, values).shape
    if outputs != len(spec.outputs):
        raise ValueError(f"ExportSpec(outputs=...): {len(spec.outputs)} names for {outputs} outputs.")
    level = jnp.zeros(constraints, dtype)
    state = eqx.filter_eval_shape(initial_cell_state, twin.cell, spec.t0, x0, w0, values, level)
    size = 0 if state.z is None else state.z.shape[0]
    events = None if state.events is None else PackedEvents.of(twin.events, state.events)
    return Step(twin, spec, dtype, constraints, size, *ravel_parameters(values, dtype), events)


def _parameters(p: Any, state: CellState) -> Any:
    """p with the present mode."""
    return p if state.events is None else in_mode(p, state.events.mode)


def ravel_parameters(
    values: dict[str, Any], dtype: np.dtype
) -> tuple[tuple[str, ...], np.ndarray, Callable[[Any], Any]]:
    """Names and values of all real parameters, and how to restore the mapping from a vector; others are constant."""
    real, constant = eqx.partition(values, lambda leaf: jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact))
    vector, restore = jax.flatten_util.ravel_pytree(real)
    names: list[str] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(real):
        name, shape = jax.tree_util.keystr(path, simple=True, separator="."), np.shape(leaf)
        check_name(name, "export: parameters of the twin")
        names += [name + (f"[{','.join(map(str, index))}]" if shape else "") for index in np.ndindex(*shape)]
    return tuple(names), np.asarray(vector, dtype), lambda p: eqx.combine(restore(jnp.asarray(p)), constant)
