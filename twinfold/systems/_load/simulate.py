"""A twin under a load: step after step, each ended by its duration or by its limit, located inside the step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float, Int

from twinfold._core import outcome_codes, outcome_messages
from twinfold.model import Simulation, SimulationError, Twin, simulate_unchecked
from twinfold.model._checks import check_model
from twinfold.systems._load.control import NEVER, controlled, limited
from twinfold.systems._load.load import Load
from twinfold.systems._load.steps import LoadStep

CHUNK = 128  # samples that are simulated at once; one compiled program for all
FINEST = 10  # samples of a step with a duration, at least
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class LoadSimulation:
    """A twin under a load: one trajectory, and a table of its steps.

    Times `ts`, states `xs`, outputs `ys`, the `current` in A (positive on discharge) and the number of the `step` at
    each sample. Where a step ends and the next one begins there are two samples of the same time: with the old current
    and with the new one. `table`, one row for each step: its words, when it starts, how long it takes, what ended it
    (`duration`, `limit`, or `reached before` if its limit was passed at its start already: such a step is left out),
    the charge in Ah that was taken from the cell, and voltage and current at its end.

    **Example:**

    ```python
    circuit = tw.Twin(lambda w: -w / 3600, observe=lambda x, w: 3 + x - 0.05 * w)  # 1 Ah, 3 to 4 V, 50 mOhm
    result = tw.systems.simulate_load(circuit, "Discharge at 1 A until 3.2 V; Rest for 1 minute", [1.0])
    result.table[0]["duration"]  # 2700 s
    ```
    """

    ts: Float[np.ndarray, " T"]
    xs: Float[np.ndarray, "T n"]
    ys: Float[np.ndarray, "T k"]
    current: Float[np.ndarray, " T"]
    step: Int[np.ndarray, " T"]
    table: list[dict[str, Any]]


def simulate_load(
    twin: Twin,
    load: Load | str | Sequence[str],
    x0: ArrayLike | Sequence,
    *,
    capacity: float | int | None = None,
    inputs: ArrayLike | Sequence | None = None,
    current: int = 0,
    voltage: int = 0,
    discharge_positive: bool = True,
    period: float | int = 10.0,
    longest: float | int = 24 * 3600.0,
    run: int | str | None = None,
    p: Mapping[str, Any] | None = None,
) -> LoadSimulation:
    """Simulate a twin with a current as input and a voltage as output under a load.

    Steps end at their limits, located inside the integrator's step (`Event`). A voltage or power that is held is an
    algebraic equation for the current, solved in every stage of the integrator. A voltage that depends on states alone,
    and not on the present current, is approached with `period` as its time constant where it is not held already.

    **Arguments:**

    - `twin`, without events of its own; `load`, or its words; `x0`, the state at its start.
    - `capacity` in Ah, for currents in units of C.
    - `inputs`: all inputs, constant, where there are others than the current (a temperature); its place is ignored.
    - `current`, `voltage`: which input and which output they are; `discharge_positive`: the sign of the twin's input.
    - `period` in seconds between samples, unless a step says otherwise; steps with a duration have at least ten.
    - `longest`: a step without a duration that takes longer is an error.
    - `run`, `p`: as for `Twin.simulate`.

    **Raises:** `ValueError` for a load that cannot be simulated, `SimulationError` where a step failed.

    **Example:**

    ```python
    cell = tw.systems.battery()
    full = tw.systems.charged(jnp.array(0.6), cell.parameters())
    load = ["Discharge at 1C for 5 minutes or until 3.2 V", "Rest for 1 minute"]
    result = tw.systems.simulate_load(cell, load, full, capacity=2.0, inputs=[0.0, 25.0])
    [row["ended by"] for row in result.table]
    ```
    """
    load = load if isinstance(load, Load) else Load.parse(load)
    if twin.events:
        raise ValueError("simulate_load: the twin has events of its own; give one without (a load has its own).")
    if not load.steps:
        raise ValueError("load: it has no steps.")
    simulator = _Simulator(twin, twin._values(run, p), inputs, capacity, current, voltage, discharge_positive, period)
    return simulator.run(load, x0, longest)


@dataclass
class _Piece:
    """The samples of one step, its current positive on discharge."""

    ts: np.ndarray
    xs: np.ndarray
    ys: np.ndarray
    current: np.ndarray
    ended: str
    given: bool  # the current, or solved for


class _Simulator:
    def __init__(
        self,
        twin: Twin,
        p: Mapping[str, Any],
        inputs: Any,
        capacity: float | int | None,
        current: int,
        voltage: int,
        positive: bool,
        period: float | int,
    ):
        self.twin, self.p, self.capacity, self.period = twin, dict(p), capacity, period
        self.at, self.voltage, self.sign = current, voltage, 1.0 if positive else -1.0
        self.inputs = np.zeros(current + 1) if inputs is None else np.asarray(inputs, float)
        if self.inputs.ndim != 1 or not 0 <= current < len(self.inputs):
            raise ValueError(f"inputs: give all {current + 1} or more inputs; the current is number {current}.")
        self.direct = True
        self._twins: dict[str, Twin] = {}

    def run(self, load: Load, x0: Any, longest: float | int) -> LoadSimulation:
        """All steps, one after the other."""
        x = jnp.asarray(x0, jnp.zeros(()).dtype)
        check_model(self.twin, jnp.zeros((), x.dtype), x, jnp.asarray(self.inputs, x.dtype), self.p)
        self.direct = self._depends_on_current(x)
        t, last, pieces, table = 0.0, 0.0, [], []
        for number, step in enumerate(load.steps):
            piece = self._step(step, t, x, last, longest)
            row = {"step": number, "words": step.text, "start": t, "duration": float(piece.ts[-1] - t)}
            table.append(row | {"ended by": piece.ended} | self._ends(piece))
            if piece.ended == "reached before":
                continue
            pieces.append((number, piece))
            t, x, last = float(piece.ts[-1]), jnp.asarray(piece.xs[-1]), float(piece.current[-1])
        if not pieces:
            raise ValueError("load: the limit of every step is passed already at the start; check x0.")
        ts, xs, ys, current = (
            np.concatenate([getattr(piece, name) for _, piece in pieces]) for name in ("ts", "xs", "ys", "current")
        )
        numbers = np.concatenate([np.full(len(piece.ts), number) for number, piece in pieces])
        return LoadSimulation(ts, xs, ys, current, numbers, table)

    def _depends_on_current(self, x: Any) -> bool:
        """Whether the voltage changes at once with the current, or only through states."""
        t, w = jnp.zeros((), x.dtype), jnp.asarray(self.inputs, x.dtype)
        slope = jax.jacfwd(lambda w: self.twin.outputs(t, x, w, self.p)[self.voltage])(w)
        return bool(slope[self.at] != 0)

    def _ends(self, piece: _Piece) -> dict[str, float]:
        # A current that is solved for varies between samples; one that is given is held.
        mean = piece.current[:-1] if piece.given else (piece.current[1:] + piece.current[:-1]) / 2
        charge = float(np.sum(np.diff(piece.ts) * mean)) / SECONDS_PER_HOUR
        return {"charge": charge, "voltage": float(piece.ys[-1, self.voltage]), "current": float(piece.current[-1])}

    def _step(self, step: LoadStep, t0: float, x: Any, last: float, longest: float | int) -> _Piece:
        """One step, in chunks of equal size so that one compiled program serves all of its kind."""
        kind, side, limit = self._limit(step)
        twin, grid = self._twin(kind), self._grid(step, t0, longest)
        target, guess = self._target(step, kind, t0, x, last)
        parts = []
        for first in range(0, len(grid) - 1, CHUNK):
            ts = grid[first : first + CHUNK + 1]
            ts = np.concatenate([ts, np.full(CHUNK + 1 - len(ts), ts[-1])])  # steps of length zero
            numbers = {"side": side, "limit": limit, "target": target, "guess": guess, "settle": self.period}
            p = self.p | {"load": {name: jnp.asarray(value, x.dtype) for name, value in numbers.items()}}
            w = self._inputs(step, ts - t0)
            xs, ys, zs, ended, end_time = _chunk(step, twin, x, ts, w, p)
            if first == 0 and side * (self._watched(kind, ys[0]) - limit) <= 0:
                return self._piece(kind, [(ts[:1], xs[:1], ys[:1], w[:1])], "reached before")
            stopped = bool(ended[-1])
            end = int(np.argmax(ended if stopped else ts == ts[-1]))
            times, xs, ys, w = ts[: end + 1].copy(), xs[: end + 1], np.array(ys[: end + 1]), w[: end + 1].copy()
            if stopped or times[-1] == grid[-1]:
                # A held input lasts until the step ends, which may be before the sample at which it would have changed.
                times[-1] = float(end_time) if stopped else times[-1]
                w[-1] = w[max(end - 1, 0)]
                z = None if zs is None else jnp.asarray(zs[end])
                now, held = jnp.asarray(times[-1], x.dtype), jnp.asarray(w[-1], x.dtype)
                ys[-1] = _outputs(twin, now, jnp.asarray(xs[-1]), held, p, z)
            parts.append(tuple(column[bool(parts) :] for column in (times, xs, ys, w)))
            if stopped:
                return self._piece(kind, parts, "limit")
            x, guess = jnp.asarray(xs[-1]), guess if kind == "A" else float(ys[-1, -1])
        if step.duration is None:
            raise ValueError(f"load: '{step.text}' did not reach its limit within longest={longest:g} s.")
        return self._piece(kind, parts, "duration")

    def _piece(self, kind: str, parts: list, ended: str) -> _Piece:
        ts, xs, ys, w = (np.concatenate(column) for column in zip(*parts, strict=True))
        if kind == "A":
            return _Piece(ts, xs, ys, self.sign * w[:, self.at], ended, True)
        return _Piece(ts, xs, ys[:, :-1], self.sign * ys[:, -1], ended, False)

    def _limit(self, step: LoadStep) -> tuple[str, float, float]:
        """What is held, and the side from which its limit is approached."""
        kind = "A" if step.held is None or step.held.unit == "C" else step.held.unit
        if step.until is None:
            return kind, 1.0, -NEVER
        if step.until.unit == "V":
            return kind, -1.0 if step.charging else 1.0, step.until.value
        return kind, 1.0, step.until.amperes(self.capacity, step.text)

    def _twin(self, kind: str) -> Twin:
        if kind not in self._twins:
            twin, voltage = self.twin, self.voltage
            solved = kind != "A"
            new = controlled(twin, voltage, self.at, kind, self.direct) if solved else limited(twin, voltage)
            self._twins[kind] = new
        return self._twins[kind]

    def _target(self, step: LoadStep, kind: str, t0: float, x: Any, last: float) -> tuple[float, float]:
        """The voltage or power that is held, and a first guess of the current; both as the twin counts them."""
        if step.held is None or kind == "A":
            return 0.0, 0.0
        if kind == "V":
            return step.held.value, self.sign * (last or 1e-3)
        power = self.sign * step.held.value
        idle = jnp.asarray(np.where(np.arange(len(self.inputs)) == self.at, 0, self.inputs), x.dtype)
        open_circuit = self.twin.outputs(jnp.asarray(t0, x.dtype), x, idle, self.p)[self.voltage]
        return power, power / float(open_circuit)

    def _grid(self, step: LoadStep, t0: float, longest: float | int) -> np.ndarray:
        """The times of the samples, the end of the step among them."""
        if step.times is not None:
            return t0 + step.times
        duration = longest if step.duration is None else step.duration
        period = step.period or self.period
        if step.duration is not None and step.period is None:
            period = min(period, step.duration / FINEST)
        count = max(int(np.ceil(duration / period * (1 - 1e-12))), 1)
        return t0 + np.minimum(np.arange(count + 1) * period, duration)

    def _inputs(self, step: LoadStep, since: np.ndarray) -> np.ndarray:
        """All inputs at times since the start of the step; a current that is solved for is zero here."""
        if step.currents is not None and step.times is not None:
            current = step.currents[np.searchsorted(step.times, since * (1 + 1e-12), side="right") - 1]
        elif step.held is not None and step.held.unit in ("A", "C"):
            current = np.full(len(since), step.held.amperes(self.capacity, step.text))
        else:
            current = np.zeros(len(since))
        w = np.repeat(self.inputs[None], len(since), axis=0)
        w[:, self.at] = self.sign * current
        return w

    def _watched(self, kind: str, y: np.ndarray) -> float:
        return float(abs(y[-1]) if kind == "V" else y[self.voltage])


@eqx.filter_jit
def _outputs(twin: Twin, t: Any, x: Any, w: Any, p: Any, z: Any) -> Any:
    return twin.outputs(t, x, w, p, z)


def _chunk(step: LoadStep, twin: Twin, x: Any, ts: np.ndarray, w: np.ndarray, p: Any) -> tuple:
    """States, outputs, implicit variables and whether the step has ended at these times, and when it did.

    **Raises:** `SimulationError` where a step of the integrator failed.
    """
    out, end_time = _simulate(twin, x, jnp.asarray(ts, x.dtype), jnp.asarray(w, x.dtype), p)
    codes = np.asarray(outcome_codes(out.trajectory.result))
    if (codes != 0).any():
        index = int(np.argmax(codes != 0))
        message = outcome_messages()[int(codes[index])]
        raise SimulationError(f"'{step.text}', at t = {ts[index]:.6g} s: {message}", out)
    return jax.device_get((out.xs, out.ys, out.trajectory.zs, out.trajectory.stopped, end_time))


@eqx.filter_jit
def _simulate(twin: Twin, x: Any, ts: Any, w: Any, p: Any) -> tuple[Simulation, Any]:
    out = simulate_unchecked(twin, x, ts, w, p)
    return out, out.trajectory.end_time
