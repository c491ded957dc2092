"""Batches: whole runs, or windows of them, in padded arrays. The loss and the metrics are computed from a `Batch`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from twinfold.data._run import Run


class Batch(eqx.Module):
    """B windows of at most T samples, as `Dataset.batch` and `Dataset.windows` return them.

    A window is padded by repeating its last time and input. `mask` is False for padding and for missing outputs
    (`y` is 0 there). `origin_*` is the first sample of the run that contains the window; it determines the initial
    state and the level of the constraint (`origin_y` is NaN where it is missing).

    **Example:**

    ```python
    data = tw.Dataset.from_arrays(np.arange(5.0), [[0.0, 1.0, np.nan, 3.0, 4.0]])
    batch = data.windows(3)
    batch.size  # 2
    batch.mask[..., 0]  # [[True, True, False], [False, True, True]]
    ```
    """

    ts: Float[Array, "B T"]
    y: Float[Array, "B T k"]
    mask: Bool[Array, "B T k"]
    w: Float[Array, "B T d"] | None
    length: Int[Array, " B"]  # samples without padding
    run: Int[Array, " B"]  # index of the run
    is_run_start: Bool[Array, " B"]  # whether the window begins at the first sample of its run
    previous_window: Int[Array, " B"]  # the window whose last sample is the first sample of this one, or -1
    x0: Float[Array, "B n"] | None  # the run's initial state, if given
    origin_t: Float[Array, " B"]
    origin_y: Float[Array, "B k"]
    origin_w: Float[Array, "B d"] | None
    shift: Float[Array, "B T m"] | None = None  # added to the penalised constraint residual (augmented Lagrangian)

    @property
    def size(self) -> int:
        """Number of windows."""
        return self.ts.shape[0]

    def padded(self, samples: int) -> "Batch":
        """The batch with windows of that many samples, which is at least what they have."""
        more = samples - self.ts.shape[1]

        def repeated(leaf: Array) -> Array:
            return jnp.concatenate([leaf, jnp.repeat(leaf[:, -1:], more, axis=1)], axis=1)

        missing = ((0, 0), (0, more), (0, 0))
        return replace(
            self,
            ts=repeated(self.ts),
            w=None if self.w is None else repeated(self.w),
            y=jnp.pad(self.y, missing),
            mask=jnp.pad(self.mask, missing),
        )


class Window(NamedTuple):
    """The samples `start` to `stop` (exclusive) of a run."""

    run: int
    start: int
    stop: int


def run_windows(runs: Sequence[Run]) -> list[Window]:
    """One window for each run."""
    return [Window(index, 0, len(run.ts)) for index, run in enumerate(runs)]


def cut_windows(runs: Sequence[Run], length: int, stride: int | None) -> list[Window]:
    """Windows of `length` samples, `stride` apart, that cover every run up to its last sample.

    The remainder of a run is a shorter window of at least two samples. A window without measurements is omitted unless
    it starts its run or a later window with measurements continues it.
    """
    stride = length - 1 if stride is None else stride
    longest = max(runs, key=lambda run: len(run.ts))
    if length < 2:
        raise ValueError(f"windows(length={length}): a window has at least two samples.")
    if length > len(longest.ts):
        raise ValueError(
            f"windows(length={length}): the window is longer than every run; the longest, '{longest.name}', "
            f"has {len(longest.ts)} samples. Give a length of {len(longest.ts)} or less."
        )
    if not 1 <= stride <= length:
        raise ValueError(f"windows(stride={stride}): give 1 to {length}, the window's length; more skips samples.")
    windows = [
        Window(index, start, stop)
        for index, run in enumerate(runs)
        for start, stop in _spans(len(run.ts), length, stride)
    ]
    needed = [w.start == 0 or not np.isnan(runs[w.run].y[w.start : w.stop]).all() for w in windows]
    # A window comes after the one that it continues, so one pass from the end reaches every ancestor.
    for index, previous in reversed(list(enumerate(_previous(windows)))):
        if needed[index] and previous >= 0:
            needed[previous] = True
    return [window for window, keep in zip(windows, needed, strict=True) if keep]


def assemble(runs: Sequence[Run], windows: Sequence[Window], dtype: Any) -> Batch:
    """The windows as one `Batch`, padded to the longest, in `dtype` (None: JAX's default float)."""
    dtype = floating(dtype)
    run, start, stop = np.array(windows).T
    lengths = np.array([len(each.ts) for each in runs])
    begins = np.cumsum(lengths) - lengths  # of the runs, in arrays of all samples
    ts = np.concatenate([each.ts for each in runs])
    _check_distinct_times(runs, ts, begins, dtype)
    sample = np.arange((stop - start).max())
    # Padding repeats the last sample, so that its time step is zero.
    samples = begins[run, None] + np.minimum(start[:, None] + sample, stop[:, None] - 1)

    def floats(values: np.ndarray) -> Any:
        return jax.device_put(values.astype(dtype))

    all_y = np.concatenate([each.y for each in runs])
    # All runs have inputs, or none; likewise x0.
    w = None if runs[0].w is None else np.concatenate([each.w for each in runs if each.w is not None])
    x0 = None if runs[0].x0 is None else np.stack([each.x0 for each in runs if each.x0 is not None])
    y = all_y[samples]
    mask = ~np.isnan(y) & (sample < (stop - start)[:, None])[:, :, None]
    return Batch(
        ts=floats(ts[samples]),
        y=floats(np.where(mask, y, 0.0)),
        mask=jax.device_put(mask),
        w=None if w is None else floats(w[samples]),
        length=jax.device_put((stop - start).astype(np.int32)),
        run=jax.device_put(run.astype(np.int32)),
        is_run_start=jax.device_put(start == 0),
        previous_window=jax.device_put(np.array(_previous(windows), np.int32)),
        x0=None if x0 is None else floats(x0[run]),
        origin_t=floats(ts[begins[run]]),
        # NaN, not 0, for a missing value: it must never become an initial state.
        origin_y=floats(all_y[begins[run]]),
        origin_w=None if w is None else floats(w[begins[run]]),
    )


def output_spread(batch: Batch) -> Float[Array, " k"]:
    """The standard deviation of the measured values of each output; 1 where it is zero."""
    count = jnp.maximum(jnp.sum(batch.mask, (0, 1)), 1).astype(batch.y.dtype)
    mean = jnp.sum(batch.y, (0, 1)) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(batch.mask, (batch.y - mean[None, None]) ** 2, 0), (0, 1)) / count)
    return jnp.where(spread > 0, spread, 1)


def floating(dtype: Any) -> np.dtype:
    """The floating-point dtype that JAX uses for `dtype`: float32 for float64 unless x64 is enabled."""
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"dtype={dtype!r}: give a floating-point dtype.")
    return jax.dtypes.canonicalize_dtype(np.float64 if dtype is None else dtype)


def _spans(samples: int, length: int, stride: int) -> list[tuple[int, int]]:
    starts = list(range(0, samples - length + 1, stride))
    spans = [(start, start + length) for start in starts]
    if not spans:
        return [(0, samples)]
    if spans[-1][1] < samples:
        # A single remaining sample is no step: the last window then starts one sample earlier.
        spans.append((min(starts[-1] + stride, samples - 2), samples))
    return spans


def _previous(windows: Sequence[Window]) -> list[int]:
    """The index of the window that each window continues, or -1."""
    last_samples = {(window.run, window.stop - 1): index for index, window in enumerate(windows)}
    return [last_samples.get((window.run, window.start), -1) for window in windows]


def _check_distinct_times(runs: Sequence[Run], ts: np.ndarray, begins: np.ndarray, dtype: np.dtype) -> None:
    """Raise a `ValueError` if two times of a run are the same in `dtype`; `begins` is the first sample of each run."""
    advances = np.diff(ts.astype(dtype)) > 0
    advances[begins[1:] - 1] = True  # from one run to the next
    if not advances.all():
        sample = int(np.argmin(advances))
        run = int(np.searchsorted(begins, sample, "right")) - 1
        index = sample - int(begins[run])
        raise ValueError(
            f"ts of run '{runs[run].name}': samples {index} and {index + 1} ({ts[sample]}, {ts[sample + 1]}) are the "
            f"same time in {dtype}. Measure time from the start of the run, or enable float64 in JAX."
        )
