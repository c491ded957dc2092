"""Single samples that do not belong to a measured signal.

An outlier is far from the cubic through its neighbours, compared with the noise and with other samples around it, and
it stands alone: both steps, to it and away from it, are much larger than the steps beside them, and no input explains
them. The peak of an oscillation, a cusp, a step of the input or the knee of a discharge fails one of these tests: the
signal goes on there as it came.
"""

import numpy as np

from twinfold.data._noise import INPUT_LAGS, MIN_SAMPLES, estimate_noise, quantum_of

MIN_OUTLIER = 8.0  # standard deviations of the noise
MIN_OUTLIER_RANGE = 0.01  # of the signal's range
MIN_QUANTA = 5.0  # smallest steps of the signal, for one that is rounded
USUAL_STEPS = 0.98  # share of the steps that belong to the signal for sure: an outlier is larger than all of them
MIN_STICKY = 0.3  # share of the steps without a change
MIN_LOCAL = 8.0  # times the median distance of the samples around it
LOCAL = 20  # samples on either side
MIN_JUMP = 2.5  # times the largest of the steps beside it
BESIDE = 3  # steps on either side
ALONE = 0.5  # of its distance from the cubic
MAX_STEP = 4.0  # times the median step: interpolation across a longer one is unreliable
MIN_UNEXPLAINED = 3.0  # times what the inputs cause elsewhere: their effect may depend on the state


def find_outliers(ts: np.ndarray, y: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
    """Return the indices of outliers in y.

    **Arguments:** times `ts` and values `y` [N], NaN where missing; the inputs `w` [N, m] that may have caused changes.
    """
    places = np.flatnonzero(np.isfinite(y))
    found: list[int] = []
    if len(places) < MIN_SAMPLES:
        return np.array(found, int)
    values, times = y[places].copy(), ts[places]
    steps = np.diff(times)
    reliable = np.lib.stride_tricks.sliding_window_view(steps, 4).max(axis=1) <= MAX_STEP * np.median(steps)
    off = values[2:-2] - _interpolate(times, values)
    threshold = np.maximum(_smallest_outlier(ts, y, w), MIN_LOCAL * _local_median(np.abs(off)))
    caused = np.zeros_like(off) if w is None else _caused_by_inputs(times, off, w[places])
    reliable &= ~_flickers(values)
    # One at a time, the largest first: an outlier spoils the interpolation at its neighbours.
    for _ in range(len(places) // 4):
        off = values[2:-2] - _interpolate(times, values)
        unexplained = np.abs(off) > MIN_UNEXPLAINED * caused
        size = np.where(reliable & unexplained & _stands_alone(times, values, off), np.abs(off) / threshold, 0.0)
        worst = int(np.argmax(size))
        if not size[worst] > 1:
            break
        found.append(int(places[worst + 2]))
        values[worst + 2] -= off[worst]
    return np.array(sorted(found), int)


def _smallest_outlier(ts: np.ndarray, y: np.ndarray, w: np.ndarray | None) -> float:
    """How far from its neighbours a sample has to be: more than noise, rounding and a small part of the range."""
    values = y[np.isfinite(y)]
    low, high = np.quantile(values, [0.05, 0.95])
    spread = max(high - low, 0.1 * np.ptp(values))
    steps = np.abs(np.diff(values))
    # A signal that often does not change at all is rounded to steps as large as its changes.
    sticky = np.mean(steps == 0) > MIN_STICKY
    quantum = np.median(steps[steps > 0]) if sticky and steps.any() else quantum_of(values)
    rounding = max(1e-9 * np.abs(values).max(), MIN_QUANTA * quantum)
    usual = np.quantile(steps, USUAL_STEPS)
    return float(max(MIN_OUTLIER * estimate_noise(ts, y, w), MIN_OUTLIER_RANGE * spread, rounding, usual))


def _flickers(values: np.ndarray) -> np.ndarray:
    """For each inner sample, whether it has a common value, few values away from those beside it: rounding."""
    _, level, counts = np.unique(values, return_inverse=True, return_counts=True)
    away = np.abs(np.diff(level))
    return (counts[level] > 1)[2:-2] & (np.minimum(away[1:-2], away[2:-1]) < MIN_QUANTA)


def _local_median(values: np.ndarray) -> np.ndarray:
    """The median of the `LOCAL` values on either side of each."""
    reach = min(LOCAL, (len(values) - 1) // 2)
    padded = np.pad(values, reach, mode="reflect")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1), axis=1)


def _stands_alone(ts: np.ndarray, y: np.ndarray, off: np.ndarray) -> np.ndarray:
    """For each inner sample, whether it sticks out on the side of `off`, on the way there and on the way back.

    Either way it is compared with the same on that side alone: how far a sample is from the one before it, or from the
    straight line through the two before it. A cusp is on both of its lines; an oscillation is as far everywhere.
    """
    alone = np.zeros(len(off), bool)
    for points in (1, 2):
        on, before = (part[2:-2] for part in _extrapolation_errors(ts, y, points))
        back, after = (part[::-1][2:-2] for part in _extrapolation_errors(-ts[::-1], y[::-1], points))
        there, away = np.sign(off) * on, np.sign(off) * back
        far = np.minimum(there, away) > ALONE * np.abs(off)
        alone |= far & (there > MIN_JUMP * before) & (away > MIN_JUMP * after)
    return alone


def _extrapolation_errors(ts: np.ndarray, y: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The error of each sample extrapolated from the one or two before it, and the largest of the three before.

    Zero for the first samples, which have no such errors before them.
    """
    dt = np.diff(ts, prepend=2 * ts[0] - ts[1])
    error = np.diff(y, prepend=y[0])
    if points == 2:
        error[2:] -= (error[1:-1] / dt[1:-1]) * dt[2:]
        error[:2] = 0.0
    # Where the sampling is irregular, at the same speed.
    sizes = (np.abs(error), np.abs(error) / dt)
    shifted = [np.concatenate([np.zeros(lag), size[:-lag]]) for size in sizes for lag in range(1, BESIDE + 1)]
    largest = np.maximum(np.max(shifted[:BESIDE], axis=0), np.max(shifted[BESIDE:], axis=0) * dt)
    return error, largest


def _caused_by_inputs(ts: np.ndarray, off: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The size of `off` that the same distances of the inputs, at this sample and the two before, would explain."""
    distances = np.stack([column[2:-2] - _interpolate(ts, column) for column in w.T], axis=1)
    lagged = [np.concatenate([np.zeros((lag, w.shape[1])), distances[: len(off) - lag]]) for lag in INPUT_LAGS]
    matrix = np.concatenate(lagged, axis=1)
    if len(off) < 5 * matrix.shape[1]:
        return np.zeros_like(off)
    return np.abs(matrix) @ np.abs(np.linalg.lstsq(matrix, off, rcond=None)[0])


def _interpolate(ts: np.ndarray, y: np.ndarray) -> np.ndarray:
    """At each inner sample, the cubic (Lagrange) through the two samples before and the two after it."""
    at, inner = ts[2:-2], np.zeros(len(ts) - 4)
    neighbours = (slice(None, -4), slice(1, -3), slice(3, -1), slice(4, None))
    for own in neighbours:
        others = [(at - ts[other]) / (ts[own] - ts[other]) for other in neighbours if other is not own]
        inner += y[own] * np.prod(others, axis=0)
    return inner
