"""The twin's step as plain functions of flat arrays: what every export starts from.

    init(t, x0, w, p) -> state, y, status            step(t, w0, w1, p, state) -> state, y, status
                                                     output(t, w, p, state) -> y

`state` holds x, the level of the constraint (that of x0, for a conserved quantity), the implicit algebraic variables
where the next solution starts, and the violation of the last step. `p` are the twin's parameters one after the other.
The steps are those of a rollout: the first has length zero and brings x0 onto the manifold, and a state that is not
finite is not taken over. Learned weights are constants.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from twinfold._core import RESULTS
from twinfold.export._spec import ExportSpec
from twinfold.io import unknown_name
from twinfold.model import Twin
from twinfold.model._twin import check_model
from twinfold.numerics._advance import CellState, advance, initial_cell_state

Vector: TypeAlias = Float[Array | np.ndarray, " _"]
Status: TypeAlias = Int[Array, ""]


@dataclass(frozen=True)
class Step:
    """The functions of an exported twin, their sizes, and its parameters by name with their values."""

    spec: ExportSpec
    dtype: np.dtype
    constraints: int
    algebraic: int
    parameters: tuple[str, ...]
    defaults: np.ndarray
    init: Callable[..., tuple[Vector, Vector, Status]]
    step: Callable[..., tuple[Vector, Vector, Status]]
    output: Callable[..., Vector]

    @property
    def state_size(self) -> int:
        return len(self.spec.states) + 2 * self.constraints + self.algebraic

    @property
    def functions(self) -> dict[str, tuple[Callable, dict[str, tuple[int, ...]], list[str]]]:
        """`init`, `step` and `output`, each with the names and shapes of its arguments and the names of its results."""
        w, p, state = (len(self.spec.inputs),), (len(self.parameters),), (self.state_size,)
        return {
            "init": (self.init, {"t": (), "x0": (len(self.spec.states),), "w": w, "p": p}, ["state", "y", "status"]),
            "step": (self.step, {"t": (), "w0": w, "w1": w, "p": p, "state": state}, ["state_next", "y", "status"]),
            "output": (self.output, {"t": (), "w": w, "p": p, "state": state}, ["y"]),
        }

    def description(self) -> dict[str, Any]:
        """Everything that a user of the exported functions has to know, for a JSON file beside them."""
        n, m = len(self.spec.states), self.constraints
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
            "state": {"x": [0, n], "level": [n, n + m], "violation": [self.state_size - m, self.state_size]},
            "state_size": self.state_size,
            "status": list(MESSAGES),
            "functions": {name: {k: list(v) for k, v in about[1].items()} for name, about in self.functions.items()},
        }


def precision(dtype: Any) -> contextlib.AbstractContextManager:
    """JAX in the precision of `dtype`, whatever it is set to."""
    return jax.enable_x64(np.dtype(dtype) == np.float64)


# What a status means: the messages of `RESULTS` in the order of their numbers; the first, of success, is empty.
MESSAGES: tuple[str, ...] = tuple(RESULTS._index_to_message)


def step_of(twin: Twin, spec: ExportSpec, *, dtype: Any = np.float64) -> Step:
    """The step of a twin; a `ValueError` that names what does not fit. Call it with float64 switched on for float64."""
    if twin.trajectory is not None:
        raise ValueError(
            "export: this twin's state is a function of time (`trajectory=`), not a sequence of steps: there is none "
            "to export. Call the function itself, or fit a twin that is integrated."
        )
    dtype = np.dtype(dtype)
    twin = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, twin)
    values = dict(twin.parameters())
    for name, value in spec.parameters.items():
        if name not in values:
            raise ValueError(f"ExportSpec(parameters=...): there is no parameter {unknown_name(name, values)}")
        values[name] = jnp.asarray(value)
    leaves, names, rebuild = _flattened(values, dtype)
    x0, w0 = jnp.asarray(spec.x0, dtype), jnp.asarray(spec.first_input, dtype)
    has_inputs = len(spec.inputs) > 0
    constraints = check_model(twin, jnp.asarray(spec.t0, dtype), x0, w0 if has_inputs else None, values)
    outputs = jax.eval_shape(twin.outputs, jnp.asarray(spec.t0, dtype), x0, w0 if has_inputs else None, values)
    if outputs.shape[0] != len(spec.outputs):
        raise ValueError(f"ExportSpec(outputs=...): {len(spec.outputs)} names for {outputs.shape[0]} outputs.")
    cell, n, m = twin.cell, len(spec.states), constraints
    first = eqx.filter_eval_shape(initial_cell_state, cell, spec.t0, x0, w0 if has_inputs else None, values)
    k = 0 if first.z is None else first.z.shape[0]
    dt = float(spec.dt)

    def packed(x: Vector, level: Vector, z: Any, violation: Vector) -> Vector:
        return jnp.concatenate([x, level, *([] if z is None else [z]), violation])

    def unpacked(state: Any) -> tuple[CellState, Any]:
        z = state[n + m : n + m + k] if k else None
        return CellState(state[:n], z, jnp.array(True)), state[n : n + m]

    def advanced(t: Any, length: float, state: CellState, w: Any, w1: Any, p: Any, level: Any) -> tuple:
        # A state that is not finite is not taken over: the next step starts from the last finite one.
        state, report = advance(cell, t, length, state, w, w1, p, level)
        status = jax.tree.leaves(report.result)[0]
        y = twin.outputs(t + length, state.x, w1, p, state.z)
        return packed(state.x, level, state.z, report.violation), y, status

    def given(w: Vector) -> Any:
        return w if has_inputs else None

    def init(t: Any, x0: Any, w: Vector, p: Vector) -> tuple[Vector, Vector, Status]:
        values, w = rebuild(p), given(w)
        level = cell.constraint.level(t, x0, values)
        return advanced(t, 0.0, initial_cell_state(cell, t, x0, w, values), w, w, values, level)

    def step(t: Any, w0: Vector, w1: Vector, p: Vector, state: Vector) -> tuple[Vector, Vector, Status]:
        before, level = unpacked(state)
        return advanced(t, dt, before, given(w0), given(w1), rebuild(p), level)

    def output(t: Any, w: Vector, p: Vector, state: Vector) -> Vector:
        now, _ = unpacked(state)
        return twin.outputs(t, now.x, given(w), rebuild(p), now.z)

    return Step(spec, dtype, m, k, names, leaves, init, step, output)


def _flattened(values: dict[str, Any], dtype: np.dtype) -> tuple[np.ndarray, tuple[str, ...], Callable[[Vector], Any]]:
    """All numbers among the parameters in one vector, their names, and the way back; what is not real is constant."""
    found, tree = jax.tree_util.tree_flatten_with_path(values)
    names: list[str] = []
    numbers: list[np.ndarray] = []
    for path, leaf in found:
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact):
            continue
        base = ".".join(str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part)))) for part in path)
        shape = np.shape(leaf)
        names += [base + (f"[{','.join(map(str, index))}]" if shape else "") for index in np.ndindex(*shape)]
        numbers.append(np.asarray(leaf, dtype).reshape(-1))

    def rebuild(p: Vector) -> Any:
        p, leaves, start = jnp.asarray(p), [], 0
        for _, leaf in found:
            if jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.inexact):
                size = int(np.size(leaf))
                leaves.append(p[start : start + size].reshape(np.shape(leaf)))
                start += size
            else:
                leaves.append(leaf)
        return jax.tree.unflatten(tree, leaves)

    return np.concatenate([*numbers, np.zeros(0, dtype)]), tuple(names), rebuild
