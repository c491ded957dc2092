"""What the twin itself does where an export is checked: single steps from many states, and a free run.

States and inputs are drawn from the range of the training data and brought onto the manifold; those that cannot be are
left out. Differences are relative to the largest value of each state and output among all of them.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from twinfold.export.step import Step


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


def single_steps(step: Step, count: int, seed: int = 0) -> Steps:
    """Steps of the twin from `count` states of the range; call it in the precision of `step`."""
    rng = np.random.default_rng(seed)
    x_low, x_high, w_low, w_high = step.spec.ranges()
    d, p = len(step.spec.inputs), jnp.asarray(step.defaults)
    t = step.spec.t0 + step.spec.dt * rng.integers(0, 1000, count)
    x = rng.uniform(x_low, x_high, (count, len(x_low)))
    w0, w1 = (rng.uniform(w_low, w_high, (count, d)) for _ in range(2))
    t, x, w0, w1 = (value.astype(step.dtype) for value in (t, x, w0, w1))
    state, _, status = jax.jit(jax.vmap(step.init, (0, 0, 0, None)))(t, x, w0, p)
    good = (np.asarray(status) == 0) & np.isfinite(state).all(axis=1)
    if not good.any():
        raise ValueError(
            "export: none of the states between x_low and x_high could be brought onto the manifold, so that there is "
            "nothing to compare with. Give the range in which the twin works."
        )
    t, w0, w1, state = t[good], w0[good], w1[good], np.asarray(state)[good]
    after, y, status = jax.jit(jax.vmap(step.step, (0, 0, 0, None, 0)))(t, w0, w1, p, state)
    return Steps(t, w0, w1, state, np.asarray(after), np.asarray(y), np.asarray(status), int((~good).sum()))


def free_run(step: Step, count: int) -> Run:
    """`count` steps of the twin from its start, with inputs that go up and down through their range."""
    _, _, w_low, w_high = step.spec.ranges()
    middle, half = (w_high + w_low) / 2, (w_high - w_low) / 2
    k, p = np.arange(count + 1), jnp.asarray(step.defaults)
    t = (step.spec.t0 + step.spec.dt * k).astype(step.dtype)
    waves = np.sin(2 * np.pi * k[:, None] / (97 + 10 * np.arange(len(middle))))
    w = (middle + half * waves).astype(step.dtype)

    @jax.jit
    def run(t: jax.Array, w: jax.Array) -> tuple:
        first = step.init(t[0], jnp.asarray(step.spec.x0, step.dtype), w[0], p)

        def body(state: jax.Array, sample: tuple) -> tuple:
            out = step.step(*sample, p, state)
            return out[0], out

        return first, jax.lax.scan(body, first[0], (t[:-1], w[:-1], w[1:]))[1]

    (first, first_y, _), (states, y, status) = run(jnp.asarray(t), jnp.asarray(w))
    return Run(t, w, *(np.asarray(value) for value in (first, first_y, states, y, status)))


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
