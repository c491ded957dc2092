"""Runs, or windows cut from them, side by side in padded arrays: what a loss sees."""

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int


class Batch(eqx.Module):
    """B windows of at most T samples.

    A window is padded by repeating its last time and input; `mask` is False there and wherever an output was not
    measured (`y` is 0 there). `origin_*` is the first sample of the run that the window was cut from: its initial
    state and the level of its constraint come from there (`origin_y` is NaN where it was not measured).
    """

    ts: Float[Array, "B T"]
    y: Float[Array, "B T k"]
    mask: Bool[Array, "B T k"]
    w: Float[Array, "B T d"] | None
    length: Int[Array, " B"]  # samples that are not padding
    run: Int[Array, " B"]  # index of the run
    is_run_start: Bool[Array, " B"]  # the window begins its run
    previous_window: Int[Array, " B"]  # the window that it continues (its first sample is that one's last), or -1
    x0: Float[Array, "B n"] | None  # the run's initial state, where it is given
    origin_t: Float[Array, " B"]
    origin_y: Float[Array, "B k"]
    origin_w: Float[Array, "B d"] | None
    shift: Float[Array, "B T m"] | None = None  # what a penalised constraint residual is added to (a multiplier)

    @property
    def size(self) -> int:
        """Number of windows."""
        return self.ts.shape[0]
