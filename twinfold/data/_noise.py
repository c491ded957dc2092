"""The noise of measured signals, without a model of the signal.

Each sample is compared with a weighted sum of its neighbours that a smooth or oscillating signal satisfies:

    d_k = y_k - sum_j c_j y_{k+j} - (terms of the inputs),    sd(d) / sqrt(1 + |c|^2) >= sd(noise)

Divided differences of order q have weights that cancel every polynomial of degree below q, at any sampling times.
Where samples are regular, the weights are also fitted to the data: then they cancel oscillations of any frequency,
with a few samples a period, and what a jump of an input causes. Each estimate is too large by what it leaves of the
signal: the smallest one is returned. Medians make all of them insensitive to outliers and steps.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from twinfold.data._run import Run

ORDERS = (2, 3, 4, 5, 6)
MIN_SAMPLES = 12
MIN_DIFFERENCES = MIN_SAMPLES - max(ORDERS)
NEIGHBOURS = (2, 4, 8)  # samples on either side
BLOCK = 80  # samples with weights of their own, so that they follow a changing frequency
INPUT_LAGS = (0, 1, 2)
ROWS_PER_WEIGHT = 6  # fewer than these, and the weights would follow the noise
MAX_IRREGULARITY = 0.01  # of the step
CLEARLY = 0.8  # of an estimate, for another one to replace it
ON_GRID = 0.02  # of the step of a grid


def robust_deviation(values: np.ndarray) -> float:
    """Return the standard deviation of values that are normal but for a minority of outliers."""
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


def quantum_of(values: np.ndarray) -> float:
    """Return the step of the grid that all values are on, to which a sensor rounds; zero if there is none."""
    gaps = np.diff(np.unique(values))
    gaps = gaps[gaps > 1e-9 * np.ptp(values)]
    if not gaps.size:
        return 0.0
    multiples = gaps / gaps.min()
    return float(gaps.min()) if np.abs(multiples - np.round(multiples)).max() < ON_GRID else 0.0


def divided_differences(ts: np.ndarray, y: np.ndarray, order: int) -> np.ndarray:
    """Return d [N - order], see above; `ts` and `y` [N], without missing values."""
    times = np.lib.stride_tricks.sliding_window_view(ts, order + 1)
    apart = times[:, :, None] - times[:, None, :]
    # In units of the window's length, so that a product of six microsecond steps does not underflow.
    apart = apart / (times[:, -1] - times[:, 0])[:, None, None]
    apart[:, np.arange(order + 1), np.arange(order + 1)] = 1.0
    weights = 1 / np.prod(apart, axis=2)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return np.sum(weights * np.lib.stride_tricks.sliding_window_view(y, order + 1), axis=1)


def estimate_noise(ts: np.ndarray, y: np.ndarray, w: np.ndarray | None = None) -> float:
    """Return the standard deviation of the noise in y; NaN if there are too few samples.

    **Arguments:** times `ts` and values `y` [N], NaN where missing; the inputs `w` [N, m] that may have caused changes.
    """
    noise = _off_polynomials([(ts, y)])
    steps = np.diff(ts)
    if np.isfinite(noise) and np.ptp(np.quantile(steps, [0.05, 0.95])) <= MAX_IRREGULARITY * np.median(steps):
        fitted = min(_unpredicted(y, w, reach, length) for reach in NEIGHBOURS for length in (BLOCK, len(y)))
        # The smallest of many estimates is too small by chance, so a slightly smaller one says nothing.
        noise = fitted if fitted < CLEARLY * noise else noise
    return max(noise, _rounding(y))  # a noise of NaN remains NaN


def output_noise(
    runs: Sequence[Run], samples: int, *, spread: Float[np.ndarray, " k"], unknown: float
) -> Float[np.ndarray, " k"]:
    """The standard deviation of the noise of each output, as a fraction of its spread.

    **Arguments:** `runs`, of which the first `samples` are used together: too few of each to fit weights to; `spread`
    of each output; `unknown`, the fraction for an output with too few values.
    """
    found = []
    for output, unit in enumerate(np.asarray(spread, float)):
        records = [(run.ts[:samples], run.y[:samples, output]) for run in runs]
        noise = max(_off_polynomials(records), _rounding(np.concatenate([y for _, y in records])))
        found.append(noise / unit if np.isfinite(noise) else unknown)
    return np.array(found)


def _off_polynomials(records: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """The smallest estimate by divided differences of all records (ts, y) together; NaN if samples are too few."""
    known = [(ts[np.isfinite(y)], y[np.isfinite(y)]) for ts, y in records]
    if sum(len(y) for _, y in known) < MIN_SAMPLES:
        return float("nan")
    parts = [[divided_differences(*record, order) for record in known if len(record[0]) > order] for order in ORDERS]
    found = [np.concatenate(part) for part in parts if part]
    return min((robust_deviation(d) for d in found if len(d) >= MIN_DIFFERENCES), default=float("nan"))


def _rounding(y: np.ndarray) -> float:
    """The noise that rounding adds, which a signal at rest does not show; zero if there are few distinct values."""
    values = np.unique(y[np.isfinite(y)])
    return float(quantum_of(values) / np.sqrt(12)) if len(values) > MIN_SAMPLES else 0.0


def _unpredicted(y: np.ndarray, w: np.ndarray | None, reach: int, length: int) -> float:
    """The noise if `reach` neighbours on either side predict a sample, with weights for each `length` samples."""
    if len(y) <= 2 * reach:
        return np.inf
    windows = np.lib.stride_tricks.sliding_window_view(y, 2 * reach + 1)
    target, neighbours = windows[:, reach], np.delete(windows, reach, axis=1)
    columns = [neighbours, np.ones((len(target), 1))]
    if w is not None:
        padded = np.concatenate([np.repeat(w[:1], max(INPUT_LAGS), axis=0), w])
        columns += [padded[reach + max(INPUT_LAGS) - lag :][: len(target)] for lag in INPUT_LAGS]
    matrix = np.concatenate(columns, axis=1)
    complete = np.isfinite(windows).all(axis=1)
    matrix, target = matrix[complete], target[complete]
    count = max(len(target) // length, 1)
    return float(np.median([_weighted_deviation(*part, 2 * reach) for part in _blocks(matrix, target, count)]))


def _blocks(matrix: np.ndarray, target: np.ndarray, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(np.array_split(matrix, count), np.array_split(target, count), strict=True))


def _weighted_deviation(matrix: np.ndarray, target: np.ndarray, neighbours: int) -> float:
    """sd(d) / sqrt(1 + |c|^2), with weights from all rows but outliers."""
    rows, size = matrix.shape
    if rows < ROWS_PER_WEIGHT * size:
        return np.inf
    weights = np.linalg.lstsq(matrix, target, rcond=1e-10)[0]
    off = target - matrix @ weights
    use = np.abs(off) <= 5 * robust_deviation(off)
    if use.sum() >= ROWS_PER_WEIGHT * size:
        weights = np.linalg.lstsq(matrix[use], target[use], rcond=1e-10)[0]
    gain = 1 + np.sum(weights[:neighbours] ** 2)
    return robust_deviation(target - matrix @ weights) * float(np.sqrt(rows / (rows - size) / gain))
