"""A twin beside a running plant: one sample in, one prediction out, in constant time and memory.

The same cell as `Twin.simulate`, one step at a time: the numbers agree to rounding. Nothing that a plant may send is
raised in the middle of its work: a clock that goes back, an input that is missing, a model that diverges are said in
the prediction (`ok`, `message`), and the next sample is waited for. The state is plain JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from twinfold._types import Level, Parameters, State
from twinfold.constraint.base import violation_scale
from twinfold.field.unknown import Unknown
from twinfold.result import RESULTS
from twinfold.rollout import cell_step, solved_at
from twinfold.times import check_times

if TYPE_CHECKING:
    from twinfold.twin import Simulation, Twin

FORMAT = 1  # of a saved state


@dataclass(frozen=True, eq=False)
class Stepped:
    """What the twin says at one sample: outputs `y` [k], state `x` [n], `residual` [k], measured minus predicted.

    `violation` [m] is relative. `ok` is False where there is no prediction (all is NaN then), or none that obeys the
    constraint; `message` says why, or what was made up for. The residual is NaN where nothing was measured.
    """

    t: float
    y: np.ndarray
    x: np.ndarray
    residual: np.ndarray
    violation: np.ndarray
    ok: bool
    message: str


class Place(eqx.Module):
    """Where a run is: the last sample's time and input, its state, and what its constraint is held at."""

    t: Float[Array | np.ndarray, ""]
    x: Float[Array | np.ndarray, " n"]
    z: Float[Array | np.ndarray, " k"] | None
    w: Float[Array | np.ndarray, " d"] | None
    level: Float[Array | np.ndarray, " m"]
    scale: Float[Array | np.ndarray, " m"]
    alive: Bool[Array | np.ndarray, ""]


class Stepper:
    """The running state of one twin; made by `Twin.stepper`.

    **Arguments:** `twin`; `p`, the values of its parameters; `run`, the index of the run whose initial state it is,
    where that is estimated; `dtype` of the state.
    """

    def __init__(self, twin: "Twin", p: Parameters, *, run: Any = None, dtype: Any = None):
        self.twin = twin
        self.run = run
        self.dtype = np.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
        self.p = jax.tree.map(lambda leaf: leaf.astype(self.dtype) if eqx.is_inexact_array(leaf) else leaf, dict(p))
        self._place: Place | None = None
        self._x0: np.ndarray | None = None
        self._level: np.ndarray | None = None

    def reset(self, x0: ArrayLike | Sequence | None = None, *, level: ArrayLike | Sequence | None = None) -> None:
        """Start over: the next sample is the first one of a run.

        **Arguments:** `x0`, the state there; when left out, it is taken from that sample's measurement, as the twin's
        `initial` says; `level` of the constraint (that of x0 when left out).
        """
        self._x0 = None if x0 is None else np.atleast_1d(np.asarray(x0, self.dtype))
        self._level = None if level is None else np.atleast_1d(np.asarray(level, self.dtype))
        for name, value in (("x0", self._x0), ("level", self._level)):
            if value is not None and (value.ndim != 1 or not np.isfinite(value).all()):
                raise ValueError(f"{name}={value}: give a vector of finite numbers.")
        if x0 is None and self.twin.initial is None and self.twin.observe is not None:
            raise ValueError("x0: the state is not what is observed; give it, or give the twin an `initial`.")
        self._place = None

    def step(self, t: float, w: ArrayLike | Sequence | None = None, y: ArrayLike | Sequence | None = None) -> Stepped:
        """The prediction at the next sample.

        **Arguments:** its time `t`, at any distance from the last; its inputs `w`, NaN where one is missing (its last
        value is then held); what was measured, `y`, NaN where missing, or nothing: it is compared, never corrected by.

        **Raises:** `ValueError` only where w or y has the wrong number of values: a mistake in the wiring.
        """
        t, inputs, note = float(t), None, ""
        last = self._place
        measured = None if y is None else np.atleast_1d(np.asarray(y, np.float64))
        if w is not None:
            inputs = np.atleast_1d(np.asarray(w, self.dtype))
            missing = ~np.isfinite(inputs)
            if missing.any() and last is not None and last.w is not None and last.w.shape == inputs.shape:
                inputs = np.where(missing, last.w, inputs)
                note = f"Input {', '.join(map(str, np.flatnonzero(missing)))} is missing: its last value was held."
        if not np.isfinite(t):
            return self._nothing(t, measured, f"The time {t} is not a number: the sample was left out.")
        if inputs is not None and not np.isfinite(inputs).all():
            return self._nothing(t, measured, "An input of the first sample is missing: the twin has not started.")
        if last is None:
            begun = self._begin(t, inputs, measured)
            if isinstance(begun, str):
                return self._nothing(t, measured, begun)
            last = begun
        elif t <= float(last.t):
            return self._nothing(t, measured, f"The time {t:.6g} is not after {float(last.t):.6g}: left out.")
        self._check_inputs(last, inputs)
        place, y_now, x_now, violation, result = jax.device_get(
            _advance(self.twin, self.p, last, np.asarray(t, self.dtype), inputs)
        )
        self._place = place
        message = RESULTS[result] if int(result._value) else note
        if not place.alive:
            return self._nothing(t, measured, f"{message} Call `reset` to go on.")
        ok = not int(result._value) and bool(np.isfinite(y_now).all())
        if not ok and not message:
            message = "The output is not finite."
        return Stepped(t, y_now, x_now, _difference(measured, y_now), violation, ok, message)

    def ahead(self, ts: ArrayLike | Sequence, w: ArrayLike | Sequence | None = None) -> "Simulation":
        """What comes at later times, from where the twin is now; nothing is changed.

        **Arguments:** `ts`, after the last sample; the inputs `w` at these times. For each number of times it compiles
        once.
        """
        from twinfold.twin import simulate_batchable

        place = self._place
        if place is None or not place.alive:
            raise ValueError("ahead: there is no state to go on from; give a sample to `step` first.")
        times = np.concatenate([[place.t], np.atleast_1d(np.asarray(ts, self.dtype))])
        check_times(times, "ts (with the time of the last sample before it)")
        inputs = None if place.w is None else np.concatenate([place.w[None], np.asarray(w, self.dtype)])
        if inputs is not None and (len(inputs) != len(times) or not np.isfinite(inputs).all()):
            raise ValueError(f"w: give finite inputs for each of the {len(times) - 1} times.")
        arrays = (jnp.asarray(place.x), jnp.asarray(times), None if inputs is None else jnp.asarray(inputs))
        out = simulate_batchable(self.twin, *arrays, self.p, jnp.asarray(place.level))
        cut = jax.tree.map(lambda leaf: leaf[1:] if leaf.shape[:1] == times.shape else leaf, out)
        return eqx.tree_at(lambda s: (s.trajectory.start, s.trajectory.scale), cut, (out.trajectory.start, place.scale))

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON; `restore` takes it up exactly."""
        place = self._place
        kept = None if place is None else {name: _plain(value) for name, value in vars(place).items()}
        waiting = {"x0": _plain(self._x0), "level": _plain(self._level)}
        return {"format": FORMAT, "dtype": self.dtype.name, "place": kept} | waiting

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state` was taken, of a stepper of the same twin and parameters."""
        if state.get("format") != FORMAT or state.get("dtype") != self.dtype.name:
            raise ValueError(
                f"A stepper's state has format {FORMAT} and dtype {self.dtype.name}; this one has "
                f"{state.get('format')!r} and {state.get('dtype')!r}."
            )
        self._x0, self._level = (self._array(state[name]) for name in ("x0", "level"))
        kept = state["place"]
        if kept is None:
            self._place = None
            return
        arrays = {name: self._array(value) for name, value in kept.items() if name != "alive"}
        self._place = Place(**arrays, alive=np.asarray(kept["alive"], bool))

    def _array(self, value: Any) -> Any:
        return None if value is None else np.asarray(np.asarray(value, np.float64), self.dtype)

    def _begin(self, t: float, w: np.ndarray | None, y: np.ndarray | None) -> Place | str:
        """The place before the first sample, or why there is none."""
        now, inputs = jnp.asarray(t, self.dtype), None if w is None else jnp.asarray(w)
        if self._x0 is not None:
            x = jnp.asarray(self._x0)
        elif y is None and not isinstance(self.twin.initial, Unknown):
            return "There is neither x0 nor a measurement to start from: the twin has not started."
        else:
            seen = jnp.asarray([] if y is None else y, self.dtype)
            x = jnp.asarray(self.twin.initial_state(now, seen, inputs, self.p, run=self.run), self.dtype)
        if not bool(jnp.all(jnp.isfinite(x))):
            return "The first sample is not measured in full: the twin has not started."
        level = None if self._level is None else jnp.asarray(self._level)
        level, scale, z = _start(self.twin, self.p, now, x, inputs, level)
        return Place(now, x, z, inputs, level, scale, jnp.array(True))

    def _check_inputs(self, place: Place, w: np.ndarray | None) -> None:
        before, now = (None if each is None else each.shape for each in (place.w, w))
        if before != now:
            raise ValueError(f"w has shape {now}; the samples before it had {before}.")

    def _nothing(self, t: float, y: np.ndarray | None, message: str) -> Stepped:
        place = self._place
        n, m = (0, 0) if place is None else (place.x.shape[0], place.level.shape[0])
        k = 0 if y is None else y.shape[0]
        empty = (np.full(size, np.nan) for size in (k, n, k, m))
        return Stepped(t, *empty, ok=False, message=message)


def _difference(measured: np.ndarray | None, y: np.ndarray) -> np.ndarray:
    if measured is None:
        return np.full(y.shape, np.nan)
    if measured.shape != y.shape:
        raise ValueError(f"y has {measured.shape[0]} values; the twin observes {y.shape[0]}.")
    return np.where(np.isfinite(measured), measured, np.nan) - y


def _plain(value: Any) -> Any:
    if value is None or np.asarray(value).dtype == bool:
        return None if value is None else bool(value)
    return np.asarray(value, np.float64).tolist()


@eqx.filter_jit
def _start(
    twin: "Twin", p: Parameters, t: Any, x: State, w: Any, level: Level | None
) -> tuple[Level, Level, Array | None]:
    level = twin.constraint.level(t, x, p) if level is None else level
    return level, violation_scale(twin.constraint, t, x, p, level), twin.cell.first_guess(t, x, w, p)


@eqx.filter_jit
def _advance(twin: "Twin", p: Parameters, last: Place, t: Any, w: Any) -> tuple[Place, Array, State, Level, RESULTS]:
    """One step of `rollout` (the first has length zero) and what is seen at its end, as in `simulate_batchable`."""
    cell, x, level = twin.cell, jnp.asarray(last.x), jnp.asarray(last.level)
    out = cell_step(cell, last.t, t - last.t, x, last.w, w, p, level, last.z)
    z, result = solved_at(cell, t, out, w, p, last.z)
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves((out.x, z))]
    alive = last.alive & jnp.all(jnp.stack(finite))
    x, z = jax.tree.map(lambda new, old: jnp.where(alive, new, old), (out.x, z), (last.x, last.z))
    place = Place(t, x, z, w, last.level, last.scale, alive)
    at = twin.state(t, x, w, p)
    y = twin.observed(t, at, twin.cell.algebraic_variables(t, at, w, p, z), w, p)
    violation = out.violation / jnp.maximum(last.scale, jnp.finfo(last.scale.dtype).tiny)
    return place, y, x, violation, RESULTS.where(alive, result, RESULTS.nonfinite)
