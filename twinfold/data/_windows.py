"""Cutting runs into windows, and putting windows side by side in the padded arrays of a `Batch`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from twinfold.data._batch import Batch
from twinfold.data._run import Run


class Window(NamedTuple):
    """The samples `start` to `stop` (not included) of a run."""

    run: int
    start: int
    stop: int


def whole(runs: Sequence[Run]) -> list[Window]:
    """One window for each run."""
    return [Window(index, 0, len(run.ts)) for index, run in enumerate(runs)]


def cut(runs: Sequence[Run], length: int, stride: int | None) -> list[Window]:
    """Windows of `length` samples, `stride` apart, that cover every run to its last sample.

    What a run has left at its end is a shorter window of at least two samples. A window without any measured
    output is left out, unless it begins its run or a later window with measurements continues it.
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
        raise ValueError(f"windows(stride={stride}): give 1 to {length}, the window's length; more leaves samples out.")
    windows = [
        Window(index, start, stop)
        for index, run in enumerate(runs)
        for start, stop in _spans(len(run.ts), length, stride)
    ]
    needed = [w.start == 0 or not np.isnan(runs[w.run].y[w.start : w.stop]).all() for w in windows]
    # A window comes after the one that it continues, so one pass from the end finds every ancestor.
    for index, previous in reversed(list(enumerate(_follows(windows)))):
        if needed[index] and previous >= 0:
            needed[previous] = True
    return [window for window, keep in zip(windows, needed, strict=True) if keep]


def assemble(runs: Sequence[Run], windows: Sequence[Window], width: int, dtype: Any) -> Batch:
    """The windows as one `Batch` of `width` samples, in `dtype` (JAX's own float when None).

    `origin_y` is NaN where a run's first sample of an output was not measured.
    """
    dtype = floating(dtype)
    _check_times_survive(runs, dtype)
    inputs = [run.w for run in runs if run.w is not None]  # of all runs or of none, as for x0
    states = [run.x0 for run in runs if run.x0 is not None]
    # Past its end a window repeats its last sample, so that the time step is zero there.
    samples = [np.minimum(window.start + np.arange(width), window.stop - 1) for window in windows]

    def cut_from(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([arrays[window.run][rows] for window, rows in zip(windows, samples, strict=True)])

    def floats(values: Any) -> Any:
        return jnp.asarray(np.asarray(values).astype(dtype))

    y = cut_from([run.y for run in runs])
    length = np.array([window.stop - window.start for window in windows])
    mask = ~np.isnan(y) & (np.arange(width) < length[:, None])[:, :, None]
    return Batch(
        ts=floats(cut_from([run.ts for run in runs])),
        y=floats(np.where(mask, y, 0.0)),
        mask=jnp.asarray(mask),
        w=floats(cut_from(inputs)) if inputs else None,
        length=jnp.asarray(length, jnp.int32),
        run=jnp.asarray([window.run for window in windows], jnp.int32),
        is_run_start=jnp.asarray([window.start == 0 for window in windows]),
        previous_window=jnp.asarray(_follows(windows), jnp.int32),
        x0=floats([states[window.run] for window in windows]) if states else None,
        origin_t=floats([runs[window.run].ts[0] for window in windows]),
        # Not 0 where it was not measured: nothing must start from a state that nobody saw.
        origin_y=floats([runs[window.run].y[0] for window in windows]),
        origin_w=floats([inputs[window.run][0] for window in windows]) if inputs else None,
    )


def floating(dtype: Any) -> np.dtype:
    """The floating-point dtype that JAX makes of `dtype`: float32 for float64 where x64 is not enabled."""
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"dtype={dtype!r}: give a floating-point dtype.")
    return jnp.zeros((), dtype).dtype


def _spans(samples: int, length: int, stride: int) -> list[tuple[int, int]]:
    starts = list(range(0, samples - length + 1, stride))
    spans = [(start, start + length) for start in starts]
    if not spans:
        return [(0, samples)]
    if spans[-1][1] < samples:
        # One sample left over is no step: the last window then begins one sample earlier.
        spans.append((min(starts[-1] + stride, samples - 2), samples))
    return spans


def _follows(windows: Sequence[Window]) -> list[int]:
    last_samples = {(window.run, window.stop - 1): index for index, window in enumerate(windows)}
    return [last_samples.get((window.run, window.start), -1) for window in windows]


def _check_times_survive(runs: Sequence[Run], dtype: np.dtype) -> None:
    for run in runs:
        steps = np.diff(run.ts.astype(dtype))
        if not (steps > 0).all():
            index = int(np.argmin(steps > 0))
            raise ValueError(
                f"ts of run '{run.name}': samples {index} and {index + 1} ({run.ts[index]}, "
                f"{run.ts[index + 1]}) are the same time in {dtype}. Count the time from the start of the "
                "run, or enable float64 in JAX."
            )
