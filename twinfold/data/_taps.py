"""Taps: delayed copies of inputs, so that a twin, or a part of it that is learned, sees what an input was before.

A tap is an input like any other, behind those that were measured. Delays are times, not numbers of samples, so that
they mean the same at any sampling. Before the start of a run an input is taken to be as at its first sample.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from twinfold.data._run import Run
from twinfold.io import unknown_name

Taps = Mapping[str, Sequence[float]]
Interpolation = Literal["hold", "linear"]


def check_taps(taps: Taps, inputs: Sequence[str], outputs: Sequence[str] = ()) -> None:
    """Raise a `ValueError` unless every tap is a positive delay of an input."""
    for name, delays in taps.items():
        if name in outputs and name not in inputs:
            raise ValueError(
                f"taps: '{name}' is an output. A prediction that is given measured outputs is none: make what it "
                "stands for a state, or name an input."
            )
        if name not in inputs:
            raise ValueError(f"taps: there is no input {unknown_name(name, inputs)}")
        for delay in delays:
            if not (np.isfinite(delay) and delay > 0):
                raise ValueError(f"taps: {name} has the delay {delay}; give positive times, in the unit of the data.")


def tap_names(taps: Taps) -> tuple[str, ...]:
    """The name of each tap, in order: `u(t-0.5)`."""
    return tuple(f"{name}(t-{delay:g})" for name, delays in taps.items() for delay in delays)


def is_tap_of(tap: str, name: str) -> bool:
    """Whether an input is a delayed copy of another one, by its name."""
    return tap.startswith(f"{name}(t-")


def tapped(run: Run, inputs: Sequence[str], taps: Taps, interpolation: Interpolation) -> Run:
    """The run with its taps behind its inputs, whose names are `inputs`."""
    if not taps or run.w is None:
        return run
    delay = _held if interpolation == "hold" else _interpolated
    columns = [delay(run.ts, run.w[:, inputs.index(name)], each) for name, delays in taps.items() for each in delays]
    return dataclasses.replace(run, w=np.column_stack([run.w, *columns]))


def _interpolated(ts: np.ndarray, values: np.ndarray, delay: float) -> np.ndarray:
    """The input at t - delay, on the line between its samples."""
    return np.interp(ts - delay, ts, values)


def _held(ts: np.ndarray, values: np.ndarray, delay: float) -> np.ndarray:
    """The mean of the delayed input over each step, throughout which the twin holds it.

    Where the delay is a number of steps, this is the value so many samples before. Elsewhere the input changes within
    a step: a value picked at one of its ends would be early or late by up to a step, and times that differ from a
    regular grid by rounding alone would pick another sample.
    """
    steps = np.diff(ts)
    integral = np.concatenate([[0.0], np.cumsum(values[:-1] * steps)])  # of the held input, from the start
    late = ts - delay
    before = np.minimum(late - ts[0], 0.0) * values[0]
    means = np.diff(np.interp(late, ts, integral) + before) / steps
    last = values[max(int(np.searchsorted(ts, late[-1] + 1e-6 * steps[-1], "right")) - 1, 0)]
    return np.append(means, last)
