"""From the frames of a double pendulum to runs of a twin: windows to train on, and sequences to predict.

Outputs are elbow and tip relative to the pivot, in units of `NOMINAL`; the pivot is where it was on the mean of the
frames that a model may see. Angles of the rods are those from the direction of gravity, +x of the image.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.signal import savgol_filter

import twinfold as tw
from twinfold_studies.real.double_pendulum import state
from twinfold_studies.real.loaders.ibm_double_pendulum import FRAMES_PER_SECOND, held_out, markers
from twinfold_studies.real.table import Records

NOMINAL = 590.0  # units of the camera: about the first rod
PIXEL = 5.0  # units of the camera
RATIO = 0.765  # of the rods, as measured in the training runs
OUTPUTS = ("x1", "y1", "x2", "y2")
SMOOTHED, ORDER = 15, 5  # frames and degree of the polynomials that give the states at the start of windows
GUARD = 40  # frames around official sequences that are not trained on
LINE = 4  # frames through which a line is drawn for the first guess of angles and rates

Frames = Float[np.ndarray, "T 3 2"]


def rod_angles(frames: Frames) -> Float[np.ndarray, "T 2"]:
    """The angles of the rods, continuous."""
    rods = np.diff(frames, axis=1)
    return np.unwrap(np.arctan2(rods[..., 1], rods[..., 0]), axis=0)


def rod_lengths(frames: Frames) -> Float[np.ndarray, "T 2"]:
    """The lengths of the rods in units of the camera."""
    return np.linalg.norm(np.diff(frames, axis=1), axis=-1)


def outputs(frames: Frames, seen: int) -> Float[np.ndarray, "T 4"]:
    """Elbow and tip, relative to the mean of the pivot over the first `seen` frames."""
    return ((frames[:, 1:] - frames[:seen, :1].mean(0)) / NOMINAL).reshape(-1, len(OUTPUTS))


def times(count: int) -> Float[np.ndarray, " T"]:
    return np.arange(count) / FRAMES_PER_SECOND


def pieces(records: Records, runs: tuple[str, ...], count: int, length: int) -> list[tuple[str, int]]:
    """Run and first frame of windows at random, none of them near an official sequence."""
    rng = np.random.default_rng(0)
    found: list[tuple[str, int]] = []
    for run in runs:
        held, frames = held_out(records, run), len(records[run]["t"])
        allowed = np.arange(SMOOTHED, frames - length - SMOOTHED)
        for first, last in held:
            allowed = allowed[(allowed + length + GUARD < first) | (allowed - GUARD > last)]
        found += [(run, int(i)) for i in np.sort(rng.choice(allowed, count // len(runs), replace=False))]
    return found


def training(records: Records, runs: tuple[str, ...], count: int, length: int) -> tw.Dataset:
    """Windows with the state (angles, rates) at their start, from a polynomial through the frames around it."""
    smooth = {}
    for run in runs:
        angles = rod_angles(markers(records[run]))
        rates = savgol_filter(angles, SMOOTHED, ORDER, deriv=1, delta=1 / FRAMES_PER_SECOND, axis=0)
        smooth[run] = np.hstack([savgol_filter(angles, SMOOTHED, ORDER, axis=0), rates])  # pyright: ignore[reportCallIssue, reportArgumentType]
    found = []
    for run, first in pieces(records, runs, count, length):
        y = outputs(markers(records[run])[first : first + length], length)
        found.append(tw.Run(f"{run}@{first}", times(length), y, x0=smooth[run][first], group=run))
    return tw.Dataset(tuple(found), OUTPUTS)


def sequences(frames: dict[str, Frames], seen: int) -> tw.Dataset:
    """Sequences of which a model may use the first `seen` frames; a line through four of them is the first guess."""
    found = []
    for name, each in frames.items():
        rate, angle = np.polyfit(times(LINE), rod_angles(each[:LINE]), 1)
        found.append(tw.Run(name, times(len(each)), outputs(each, seen), x0=np.concatenate([angle, rate])))
    return tw.Dataset(tuple(found), OUTPUTS)


def in_positions(data: tw.Dataset) -> tw.Dataset:
    """The same runs, their states as positions and velocities of elbow and tip."""
    runs = tuple(
        tw.Run(
            run.name,
            run.ts,
            run.y,
            x0=np.asarray(state(*jnp.split(jnp.asarray(run.x0), 2), RATIO)),  # pyright: ignore[reportCallIssue]
            group=run.group,
        )
        for run in data.runs
    )
    return tw.Dataset(runs, data.output_names)


def official(records: Records, part: str) -> dict[str, Frames]:
    """The sequences of a part of the official data."""
    return {name: markers(record) for name, record in records.items() if name.startswith(f"{part}-")}


def free_runs(records: Records, runs: tuple[str, ...], length: int) -> dict[str, Frames]:
    """Consecutive pieces of whole runs."""
    return {
        f"{run}@{first}": markers(records[run])[first : first + length]
        for run in runs
        for first in range(0, len(records[run]["t"]) - length + 1, length)
    }
