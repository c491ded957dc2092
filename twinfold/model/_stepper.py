"""A twin beside a running plant: one sample in, one prediction out, in constant time and memory.

The same step as in `Twin.simulate`, one sample at a time: the numbers agree to rounding. No sample raises an exception:
a clock that goes back, a missing input or a model that diverges is reported in the prediction (`ok`, `message`), and
the stepper waits for the next sample. Its state is plain JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from twinfold._core import RESULTS, check_times, outcome_codes
from twinfold.model._simulation import Simulation, simulate_unchecked
from twinfold.model._unknown import Unknown
from twinfold.numerics import violation_scale
from twinfold.numerics._advance import advance, initial_cell_state
from twinfold.numerics._event import EventState, in_mode
from twinfold.numerics._event_log import EventRecord
from twinfold.numerics._move import CellState
from twinfold.typing import ConstraintVector, Parameters, State

if TYPE_CHECKING:
    from twinfold.model._twin import Twin

FORMAT = 1  # of a saved state


@dataclass(frozen=True, eq=False)
class StepperOutput:
    """The prediction at one sample: outputs `y` [k], state `x` [n], `residual` [k], measured minus predicted.

    `violation` [m] is relative. `ok` is False where there is no prediction (all values are NaN then), or one that
    violates the constraint; `message` says why. The residual is NaN where nothing was measured. `events` since the
    last sample: time and name of each; `stopped`, whether one of them, or an earlier one, has ended the run.

    **Example:**

    ```python
    output = tw.Twin(lambda x: -x).stepper([1.0]).step(0.0, y=[1.1])
    output.y, output.residual, output.ok
    ```
    """

    t: float
    y: np.ndarray
    x: np.ndarray
    residual: np.ndarray
    violation: np.ndarray
    ok: bool
    message: str
    events: tuple[tuple[float, str], ...] = ()
    stopped: bool = False


class _Sample(eqx.Module):
    """The last sample: its time and input, the state there, and the level of the run's constraint."""

    t: Float[Array | np.ndarray, ""]
    x: Float[Array | np.ndarray, " n"]
    z: Float[Array | np.ndarray, " k"] | None
    w: Float[Array | np.ndarray, " d"] | None
    level: Float[Array | np.ndarray, " m"]
    scale: Float[Array | np.ndarray, " m"]
    alive: Bool[Array | np.ndarray, ""]
    events: EventState | None = None


class Stepper:
    """The running state of one twin; made by `Twin.stepper`.

    **Arguments:** `twin`; `p`, the values of its parameters; `run`, the index of the run whose estimated initial state
    to start from; `dtype` of the state.

    **Example:**

    ```python
    stepper = tw.Twin(lambda x, w: w - x).stepper([0.0])
    for t in (0.0, 0.1, 0.2):
        output = stepper.step(t, w=[1.0])
    saved = stepper.state()  # plain JSON
    stepper.ahead([0.3, 0.4], [[1.0], [1.0]]).ys
    ```
    """

    def __init__(self, twin: "Twin", p: Parameters, *, run: Any = None, dtype: Any = None):
        self.twin = twin
        self.run = run
        self.dtype = np.dtype(jnp.zeros(()).dtype if dtype is None else dtype)
        self.p = jax.tree.map(lambda leaf: leaf.astype(self.dtype) if eqx.is_inexact_array(leaf) else leaf, dict(p))
        self._last: _Sample | None = None
        self._x0: np.ndarray | None = None
        self._level: np.ndarray | None = None

    def reset(self, x0: ArrayLike | Sequence | None = None, *, level: ArrayLike | Sequence | None = None) -> None:
        """Start over: the next sample is the first one of a run.

        **Arguments:** `x0`, the state there; when left out, it is taken from that sample's measurement by the twin's
        `initial`; `level` of the constraint (that of x0 when left out).
        """
        self._x0 = None if x0 is None else np.atleast_1d(np.asarray(x0, self.dtype))
        self._level = None if level is None else np.atleast_1d(np.asarray(level, self.dtype))
        for name, value in (("x0", self._x0), ("level", self._level)):
            if value is not None and (value.ndim != 1 or not np.isfinite(value).all()):
                raise ValueError(f"{name}={value}: give a vector of finite numbers.")
        if x0 is None and self.twin.initial is None and self.twin.observe is not None:
            raise ValueError("x0: the state is not what is observed; give it, or give the twin an `initial`.")
        self._last = None

    def step(
        self, t: float, w: ArrayLike | Sequence | None = None, y: ArrayLike | Sequence | None = None
    ) -> StepperOutput:
        """The prediction at the next sample.

        **Arguments:** its time `t`, at any distance from the last; its inputs `w`, NaN where one is missing (its last
        value is then held); the measurement `y`, NaN where missing, or none: it is compared, and changes nothing.

        **Raises:** `ValueError` only where w or y has the wrong number of values: a mistake in the wiring.
        """
        t, last = float(t), self._last
        measured = None if y is None else np.atleast_1d(np.asarray(y, np.float64))
        inputs, note = hold_missing(w, None if last is None else last.w, self.dtype)
        if not np.isfinite(t):
            return self._no_prediction(t, measured, f"The time {t} is not a number: the sample was left out.")
        if inputs is not None and not np.isfinite(inputs).all():
            return self._no_prediction(
                t, measured, "An input of the first sample is missing: the twin has not started."
            )
        if last is None:
            first = self._first_sample(t, inputs, measured)
            if isinstance(first, str):
                return self._no_prediction(t, measured, first)
            last = first
        elif t <= float(last.t):
            return self._no_prediction(t, measured, f"The time {t:.6g} is not after {float(last.t):.6g}: left out.")
        self._check_inputs(last, inputs)
        now, y_now, violation, result, record = jax.device_get(
            _advance(self.twin, self.p, last, np.asarray(t, self.dtype), inputs)
        )
        self._last = now
        happened = () if record is None else self._events(record)
        stopped = now.events is not None and bool(now.events.stopped)
        failed = int(outcome_codes(result)) != 0
        message = RESULTS[result] if failed else note
        if not now.alive:
            return self._no_prediction(t, measured, f"{message} Call `reset` to continue.")
        ok = not failed and bool(np.isfinite(y_now).all())
        if not ok and not message:
            message = "The output is not finite."
        residual = _difference(measured, y_now)
        return StepperOutput(t, y_now, np.asarray(now.x), residual, violation, ok, message, happened, stopped)

    def ahead(self, ts: ArrayLike | Sequence, w: ArrayLike | Sequence | None = None) -> Simulation:
        """The prediction at later times, from the last sample on; the stepper stays where it is.

        **Arguments:** `ts`, after the last sample; the inputs `w` at these times. Compiles once for each number of
        times.
        """
        last = self._last
        if last is None or not last.alive:
            raise ValueError("ahead: there is no state to continue from; give a sample to `step` first.")
        if last.events is not None and (bool(last.events.stopped) or bool(last.events.jammed)):
            raise ValueError("ahead: an event has ended this run; call `reset` to start another.")
        times = np.concatenate([[last.t], np.atleast_1d(np.asarray(ts, self.dtype))])
        check_times(times, "ts (with the time of the last sample before it)")
        inputs = None if last.w is None else np.concatenate([last.w[None], np.asarray(w, self.dtype)])
        if inputs is not None and (len(inputs) != len(times) or not np.isfinite(inputs).all()):
            raise ValueError(f"w: give finite inputs for each of the {len(times) - 1} times.")
        arrays = (jnp.asarray(last.x), jnp.asarray(times), None if inputs is None else jnp.asarray(inputs))
        events: Any = jax.tree.map(jnp.asarray, last.events)
        out = simulate_unchecked(self.twin, *arrays, self.p, jnp.asarray(last.level), events=events)
        after = jax.tree.map(lambda leaf: leaf[1:] if leaf.shape[:1] == times.shape else leaf, out)
        return eqx.tree_at(
            lambda s: (s.trajectory.initial_violation, s.trajectory.scale),
            after,
            (out.trajectory.initial_violation, last.scale),
        )

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON; `restore` continues from it exactly."""
        last = None
        if self._last is not None:
            values = {name: value for name, value in vars(self._last).items() if name != "events"}
            events = {} if self._last.events is None else {"events": _plain_events(self._last.events)}
            last = {name: plain(value) for name, value in values.items()} | events
        pending = {"x0": plain(self._x0), "level": plain(self._level)}
        return {"format": FORMAT, "dtype": self.dtype.name, "place": last} | pending

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state` of a stepper of the same twin and parameters."""
        if state.get("format") != FORMAT or state.get("dtype") != self.dtype.name:
            raise ValueError(
                f"A stepper's state has format {FORMAT} and dtype {self.dtype.name}; this one has "
                f"{state.get('format')!r} and {state.get('dtype')!r}."
            )
        self._x0, self._level = (self._array(state[name]) for name in ("x0", "level"))
        last = state["place"]
        if last is None:
            self._last = None
            return
        arrays = {name: self._array(value) for name, value in last.items() if name not in ("alive", "events")}
        events = self._restored_events(last.get("events"), arrays["level"])
        self._last = _Sample(**arrays, alive=np.asarray(last["alive"], bool), events=events)

    def _restored_events(self, saved: Mapping[str, Any] | None, level: Any) -> EventState | None:
        if (saved is None) != (not self.twin.events):
            raise ValueError("This state is of a twin with other events than this one.")
        if saved is None:
            return None
        stopped, jammed = (jnp.asarray(saved[name], bool) for name in ("stopped", "jammed"))
        mode = None if saved["mode"] is None else jnp.asarray(saved["mode"], jnp.asarray(self.p["mode"]).dtype)
        return EventState(jnp.asarray(saved["side"], self.dtype), jnp.asarray(level), stopped, jammed, mode)

    def _events(self, record: EventRecord) -> tuple[tuple[float, str], ...]:
        names = [event.name or f"event {k}" for k, event in enumerate(self.twin.events)]
        found = zip(np.asarray(record.times).tolist(), np.asarray(record.index).tolist(), strict=True)
        return tuple((time, names[index]) for time, index in found if index >= 0)

    def _array(self, value: Any) -> Any:
        return None if value is None else np.asarray(np.asarray(value, np.float64), self.dtype)

    def _first_sample(self, t: float, w: np.ndarray | None, y: np.ndarray | None) -> _Sample | str:
        """The state at the first sample, before its projection, or why there is none."""
        now, inputs = jnp.asarray(t, self.dtype), None if w is None else jnp.asarray(w)
        if self._x0 is not None:
            x = jnp.asarray(self._x0)
        elif y is None and not isinstance(self.twin.initial, Unknown):
            return "There is neither x0 nor a measurement to start from: the twin has not started."
        else:
            measured = jnp.asarray([] if y is None else y, self.dtype)
            x = jnp.asarray(self.twin.initial_state(now, measured, inputs, self.p, run=self.run), self.dtype)
        if not bool(jnp.all(jnp.isfinite(x))):
            return "The first sample has missing measurements: the twin has not started."
        level = None if self._level is None else jnp.asarray(self._level)
        level, scale, state = _level_scale_and_state(self.twin, self.p, now, x, inputs, level)
        return _Sample(now, x, state.z, inputs, level, scale, state.alive, state.events)

    def _check_inputs(self, last: _Sample, w: np.ndarray | None) -> None:
        before, now = (None if each is None else each.shape for each in (last.w, w))
        if before != now:
            raise ValueError(f"w has shape {now}; the samples before it had {before}.")

    def _no_prediction(self, t: float, y: np.ndarray | None, message: str) -> StepperOutput:
        last = self._last
        n, m = (0, 0) if last is None else (last.x.shape[0], last.level.shape[0])
        k = 0 if y is None else y.shape[0]
        empty = (np.full(size, np.nan) for size in (k, n, k, m))
        return StepperOutput(t, *empty, ok=False, message=message)


def _difference(measured: np.ndarray | None, y: np.ndarray) -> np.ndarray:
    if measured is None:
        return np.full(y.shape, np.nan)
    if measured.shape != y.shape:
        raise ValueError(f"y has {measured.shape[0]} values; the twin observes {y.shape[0]}.")
    return np.where(np.isfinite(measured), measured, np.nan) - y


def hold_missing(w: ArrayLike | Sequence | None, last: Any, dtype: Any) -> tuple[np.ndarray | None, str]:
    """The inputs of a sample, the `last` value where one is missing, and a note of which."""
    if w is None:
        return None, ""
    inputs = np.atleast_1d(np.asarray(w, dtype))
    missing = ~np.isfinite(inputs)
    if not missing.any() or last is None or last.shape != inputs.shape:
        return inputs, ""
    note = f"Input {', '.join(map(str, np.flatnonzero(missing)))} is missing: its last value was held."
    return np.where(missing, last, inputs), note


def plain(value: Any) -> Any:
    """An array, or a flag, as plain JSON."""
    if value is None or np.asarray(value).dtype == bool:
        return None if value is None else bool(value)
    return np.asarray(value, np.float64).tolist()


def _plain_events(events: EventState) -> dict[str, Any]:
    """All but the levels, which the sample has."""
    mode = None if events.mode is None else np.asarray(events.mode).tolist()
    return {name: plain(getattr(events, name)) for name in ("side", "stopped", "jammed")} | {"mode": mode}


@eqx.filter_jit
def _level_scale_and_state(
    twin: "Twin", p: Parameters, t: Any, x: State, w: Any, level: ConstraintVector | None
) -> tuple[ConstraintVector, ConstraintVector, CellState]:
    level = twin.constraint.level(t, x, p) if level is None else level
    scale = violation_scale(twin.constraint, t, x, p, level)
    return level, scale, initial_cell_state(twin.cell, t, x, w, p, level)


@eqx.filter_jit
def _advance(
    twin: "Twin", p: Parameters, last: _Sample, t: Any, w: Any
) -> tuple[_Sample, Array, ConstraintVector, RESULTS, EventRecord | None]:
    """One step, of length zero at the first sample, with the outputs and the relative violation at its end."""
    now: Any = jax.tree.map(jnp.asarray, last)
    before = CellState(now.x, now.z, now.alive, now.events)
    state, report = advance(twin.observed_cell, now.t, t - now.t, before, now.w, w, p, now.level)
    level, mode = (last.level, None) if state.events is None else (state.events.level, state.events.mode)
    sample = _Sample(t, state.x, state.z, w, level, last.scale, state.alive, state.events)
    y = twin.outputs(t, state.x, w, in_mode(p, mode), state.z)
    violation = report.violation / jnp.maximum(last.scale, jnp.finfo(last.scale.dtype).tiny)
    return sample, y, violation, report.result, report.events
