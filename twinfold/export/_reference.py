"""The twin as the reference of an export: single steps from many states and a simulation, compared with an export.

States and inputs are sampled from the range of the training data and moved onto the manifold; those for which this
fails are skipped. Differences are relative to the largest magnitude of each state and output.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from twinfold.export._spec import ExportSpec
from twinfold.export._step import AbstractStep, build_step, precision
from twinfold.model import Twin


@dataclass(frozen=True)
class SingleSteps:
    """Steps of the twin: from `state` at `t` with inputs `w0` and `w1` to `after`, with outputs and status."""

    t: Float[np.ndarray, " count"]
    w0: Float[np.ndarray, "count d"]
    w1: Float[np.ndarray, "count d"]
    state: Float[np.ndarray, "count s"]
    after: Float[np.ndarray, "count s"]
    y: Float[np.ndarray, "count k"]
    status: Int[np.ndarray, " count"]
    skipped: int  # samples that could not be moved onto the manifold


@dataclass(frozen=True)
class Simulation:
    """A simulation by the twin: times and inputs, then states and outputs after each step."""

    t: Float[np.ndarray, " T"]
    w: Float[np.ndarray, "T d"]
    states: Float[np.ndarray, "T-1 s"]
    y: Float[np.ndarray, "T-1 k"]
    status: Int[np.ndarray, " T-1"]

    @property
    def length(self) -> int:
        """The number of steps before the first failure."""
        return int(np.argmax(np.append(self.status, 1) != 0))


@dataclass(frozen=True)
class StepComparison:
    """One step of an export against the twin: the largest relative difference, and how often the status differs."""

    samples: int
    difference: float
    status_differs: int

    def passed(self, tolerance: float) -> bool:
        """Whether the export agrees with the twin."""
        return self.difference <= tolerance and self.status_differs == 0

    def messages(self, label: str, tolerance: float) -> list[str]:
        """The outcome as sentences."""
        outcome = "passed" if self.passed(tolerance) else "FAILED"
        found = [
            f"{label}: one step from {self.samples} states differs from the twin by at most {self.difference:.1e} "
            f"(relative; tolerance {tolerance:.0e}): {outcome}."
        ]
        if self.status_differs:
            found.append(f"{label}: {self.status_differs} of these steps end with another status than the twin's.")
        return found


@dataclass(frozen=True)
class Reference:
    """A step, and what the twin computes from many states and in a simulation."""

    step: AbstractStep
    steps: SingleSteps
    simulation: Simulation

    def each_step(self, call: Callable[..., Any], samples: int | None = None) -> tuple[np.ndarray, ...]:
        """States, outputs and status of the first steps, by `call(t, w0, w1, p, state) -> state, y, status`."""
        known, p = self.steps, self.step.defaults
        count = min(len(known.t), len(known.t) if samples is None else samples)
        rows = [call(known.t[k], known.w0[k], known.w1[k], p, known.state[k]) for k in range(count)]
        return tuple(np.array([np.asarray(row[k]) for row in rows]) for k in range(3))

    def compare_steps(self, states: np.ndarray, y: np.ndarray, status: np.ndarray) -> StepComparison:
        """Compare the results of the first steps, or of all, with those of the twin."""
        known, count = self.steps, len(states)
        off = self.difference(states, y, known.after[:count], known.y[:count])
        return StepComparison(count, off, int((status.reshape(-1) != known.status[:count]).sum()))

    def compare_simulation(self, states: np.ndarray, y: np.ndarray) -> float:
        """The largest relative difference in a simulation, up to the step at which the twin failed."""
        run, count = self.simulation, self.simulation.length
        return self.difference(states[:count], y[:count], run.states[:count], run.y[:count])

    def difference(self, states: np.ndarray, y: np.ndarray, twin_states: np.ndarray, twin_y: np.ndarray) -> float:
        """The largest difference of a state or output, relative to its largest magnitude; infinite if one is NaN."""
        n = len(self.step.spec.states)
        ours, theirs = (np.concatenate([a[:, :n], b], axis=1) for a, b in ((states, y), (twin_states, twin_y)))
        if ours.size == 0:
            return 0.0
        scale = np.nanmax(np.abs(theirs), axis=0, initial=0)
        with np.errstate(invalid="ignore"):
            off = np.where((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), 0, np.abs(ours - theirs))
            relative = off / np.where(scale > 0, scale, 1)
        return float(np.where(np.isnan(relative), np.inf, relative).max())


def build_reference(twin: Twin, spec: ExportSpec, *, samples: int, horizon: int, dtype: Any = np.float64) -> Reference:
    """The step of a twin, evaluated from `samples` states and in a simulation of `horizon` steps."""
    with precision(dtype):
        step = build_step(twin, spec, dtype=dtype)
        t, x, w0, w1 = (value.astype(step.dtype) for value in _samples(spec, samples))
        run_t, run_w = (value.astype(step.dtype) for value in excitation(spec, horizon))
        x0 = np.asarray(spec.x0, step.dtype)
        initial, _, status = _init_each(step, np.append(t, run_t[0]), np.vstack([x, x0]), np.vstack([w0, run_w[:1]]))
        good = (status[:-1] == 0) & np.isfinite(initial[:-1]).all(axis=1)
        if not good.any():
            raise ValueError(
                "export: none of the states sampled between x_low and x_high could be moved onto the manifold, so "
                "nothing can be compared. Give ExportSpec(x_low=..., x_high=...) the range in which the twin works."
            )
        # The simulation follows the single steps in one scan, so the step is compiled only once.
        t, w0, w1, state = t[good], w0[good], w1[good], initial[:-1][good]
        outcomes = _step_each(
            step,
            np.append(t, run_t[:-1]),
            np.vstack([w0, run_w[:-1]]),
            np.vstack([w1, run_w[1:]]),
            np.vstack([state, np.repeat(initial[-1:], horizon, axis=0)]),
            np.arange(len(t) + horizon) > len(t),
        )
        single, simulated = zip(*(np.split(value, [len(t)]) for value in outcomes), strict=True)
    steps = SingleSteps(t, w0, w1, state, *single, skipped=int((~good).sum()))
    return Reference(step, steps, Simulation(run_t, run_w, *simulated))


def _samples(spec: ExportSpec, count: int) -> tuple[np.ndarray, ...]:
    """Times, states, and inputs at both ends of a step, from the range of the training data."""
    rng = np.random.default_rng(0)
    x_low, x_high, w_low, w_high = spec.ranges()
    t = spec.t0 + spec.dt * rng.integers(0, 1000, count)
    x = rng.uniform(x_low, x_high, (count, len(x_low)))
    w0, w1 = (rng.uniform(w_low, w_high, (count, len(w_low))) for _ in range(2))
    return t, x, w0, w1


def excitation(spec: ExportSpec, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and inputs of a simulation: sine waves through the range of the inputs."""
    _, _, w_low, w_high = spec.ranges()
    k = np.arange(count + 1)
    waves = np.sin(2 * np.pi * k[:, None] / (97 + 10 * np.arange(len(w_low))))
    return spec.t0 + spec.dt * k, (w_high + w_low) / 2 + (w_high - w_low) / 2 * waves


def _init_each(step: AbstractStep, t: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """`init` for each sample in turn."""
    each = jax.jit(lambda *samples: jax.lax.map(lambda s: step.init(s[0], s[1], s[2], step.defaults), samples))
    return tuple(np.asarray(value) for value in each(t, x, w))


def _step_each(step: AbstractStep, *samples: np.ndarray) -> tuple[np.ndarray, ...]:
    """A step from each given state or, if the last of `samples` is true, from the result of the step before it."""

    def body(last: Any, sample: tuple) -> tuple:
        t, w0, w1, given, continues = sample
        out = step.step(t, w0, w1, step.defaults, jnp.where(continues, last, given))
        return out[0], out

    each = jax.jit(lambda *samples: jax.lax.scan(body, samples[3][0], samples)[1])
    return tuple(np.asarray(value) for value in each(*samples))
