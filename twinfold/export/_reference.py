"""What the twin itself does where an export is checked: single steps from many states, and a free run.

States and inputs are drawn from the range of the training data and brought onto the manifold; those that cannot be are
left out. Differences are relative to the largest value of each state and output among all of them.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from twinfold.export._spec import ExportSpec
from twinfold.export._step import Step, precision, step_of
from twinfold.model import Twin


@dataclass(frozen=True)
class Steps:
    """Steps of the twin: from `state` at `t` with inputs `w0` and `w1` to `after`, with outputs and status."""

    t: Float[np.ndarray, " count"]
    w0: Float[np.ndarray, "count d"]
    w1: Float[np.ndarray, "count d"]
    state: Float[np.ndarray, "count s"]
    after: Float[np.ndarray, "count s"]
    y: Float[np.ndarray, "count k"]
    status: Int[np.ndarray, " count"]
    left_out: int  # draws that could not be brought onto the manifold


@dataclass(frozen=True)
class Run:
    """A free run of the twin: inputs and times, the first state, then the states and outputs after each step."""

    t: Float[np.ndarray, " T"]
    w: Float[np.ndarray, "T d"]
    first: Float[np.ndarray, " s"]
    first_y: Float[np.ndarray, " k"]
    states: Float[np.ndarray, "T-1 s"]
    y: Float[np.ndarray, "T-1 k"]
    status: Int[np.ndarray, " T-1"]

    @property
    def length(self) -> int:
        """Steps before the first that failed."""
        bad = np.flatnonzero(self.status)
        return int(bad[0]) if bad.size else len(self.status)


@dataclass(frozen=True)
class Reference:
    """A step with what the twin does from many states and over a free run."""

    step: Step
    steps: Steps
    run: Run


def reference_of(twin: Twin, spec: ExportSpec, *, states: int, horizon: int, dtype: Any = np.float64) -> Reference:
    """The step of a twin and its own results, from `states` states and over `horizon` steps."""
    with precision(dtype):
        step = step_of(twin, spec, dtype=dtype)
        t, x, w, w_next = _drawn(step, states)
        run_t, run_w = _course(step, horizon)
        starts = (np.append(t, run_t[0]), np.vstack([x, np.asarray(spec.x0)[None]]), np.vstack([w, run_w[:1]]))
        first, first_y, status = _initialised(step, *(value.astype(step.dtype) for value in starts))
        good = (status[:-1] == 0) & np.isfinite(first[:-1]).all(axis=1)
        if not good.any():
            raise ValueError(
                "export: none of the states between x_low and x_high could be brought onto the manifold, so that there "
                "is nothing to compare with. Give the range in which the twin works."
            )
        # The free run follows the single steps in the same loop: the twin's step is compiled once.
        t, w, w_next, state = t[good], w[good], w_next[good], first[:-1][good]
        held = np.repeat(first[-1:], horizon, axis=0)
        previous_window = np.arange(len(t) + horizon) > len(t)
        given = (np.append(t, run_t[:-1]), np.vstack([w, run_w[:-1]]), np.vstack([w_next, run_w[1:]]))
        samples = (*(value.astype(step.dtype) for value in given), np.vstack([state, held]), previous_window)
        single, free = zip(*(np.split(value, [len(t)]) for value in _advanced(step, *samples)), strict=True)
    steps = Steps(t, w, w_next, state, *single, left_out=int((~good).sum()))
    return Reference(step, steps, Run(run_t, run_w, first[-1], first_y[-1], *free))


def _drawn(step: Step, count: int) -> tuple[np.ndarray, ...]:
    """Times, states, and inputs at both ends of a step, from the range of the training data."""
    rng = np.random.default_rng(0)
    x_low, x_high, w_low, w_high = step.spec.ranges()
    t = step.spec.t0 + step.spec.dt * rng.integers(0, 1000, count)
    x = rng.uniform(x_low, x_high, (count, len(x_low)))
    w0, w1 = (rng.uniform(w_low, w_high, (count, len(w_low))) for _ in range(2))
    return tuple(value.astype(step.dtype) for value in (t, x, w0, w1))


def _course(step: Step, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Times of a free run, and inputs that go up and down through their range."""
    _, _, w_low, w_high = step.spec.ranges()
    k = np.arange(count + 1)
    waves = np.sin(2 * np.pi * k[:, None] / (97 + 10 * np.arange(len(w_low))))
    w = (w_high + w_low) / 2 + (w_high - w_low) / 2 * waves
    return (step.spec.t0 + step.spec.dt * k).astype(step.dtype), w.astype(step.dtype)


def _initialised(step: Step, t: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """`init` of each sample, one after the other."""
    found = jax.jit(lambda *samples: jax.lax.map(lambda sample: step.init(*sample, step.defaults), samples))(t, x, w)
    return tuple(np.asarray(value) for value in found)


def _advanced(step: Step, *samples: np.ndarray) -> tuple[np.ndarray, ...]:
    """A step from each state given, or from where the last step has led, one after the other."""

    def body(last: Any, sample: tuple) -> tuple:
        t, w0, w1, given, previous_window = sample
        out = step.step(t, w0, w1, step.defaults, jnp.where(previous_window, last, given))
        return out[0], out

    found = jax.jit(lambda *samples: jax.lax.scan(body, samples[3][0], samples)[1])(*samples)
    return tuple(np.asarray(value) for value in found)


def difference(step: Step, states: np.ndarray, y: np.ndarray, twin_states: np.ndarray, twin_y: np.ndarray) -> float:
    """The largest difference in a state or output, over the largest value that it has; infinite where one is lost."""
    n = len(step.spec.states)
    ours, theirs = (np.concatenate([a[:, :n], b], axis=1) for a, b in ((states, y), (twin_states, twin_y)))
    if ours.size == 0:
        return 0.0
    scale = np.nanmax(np.abs(theirs), axis=0, initial=0)
    with np.errstate(invalid="ignore"):
        off = np.where((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), 0, np.abs(ours - theirs))
        relative = off / np.where(scale > 0, scale, 1)
    return float(np.where(np.isnan(relative), np.inf, relative).max())
