"""Errors of a prediction, for each run.

Every function takes `predicted` [..., R, T, k], `y` [R, T, k] and `mask` [R, T, k], True where an output was measured
(False in the padding), and returns [..., R] unless stated otherwise. A prediction that is not finite has an infinite
error.
"""

import numpy as np

MAX_DTW_SAMPLES = 1000
"""The number of samples of a run that `dtw` compares: its cost is quadratic in them."""


def mae(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean absolute error over all measured values of a run."""
    return np.abs(_error(predicted, y, mask)).sum((-2, -1)) / mask.sum((-2, -1))


def mse(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean squared error over all measured values of a run."""
    return _square(_error(predicted, y, mask)).sum((-2, -1)) / mask.sum((-2, -1))


def rmse(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Root mean squared error over all measured values of a run.

    **Arguments:** `predicted` [..., R, T, k]; `y` and `mask` [R, T, k], `mask` True where an output was measured.

    **Returns:** [..., R]; infinite where a prediction is not finite.

    **Example:**

    ```python
    y = np.zeros((1, 4, 1))
    tw.metrics.rmse(y + 2.0, y, np.ones_like(y, bool))  # [2.]
    ```
    """
    return np.sqrt(mse(predicted, y, mask))


def nrmse(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Normalised root mean squared error: ||y - predicted|| / ||y - mean(y)||, the mean over the outputs of a run.

    1 is the error of the best constant. In system identification, 1 - NRMSE in percent is called the fit; see
    `fit_percent`.

    **Arguments:** `predicted` [..., R, T, k]; `y` and `mask` [R, T, k], `mask` True where an output was measured.

    **Returns:** [..., R]; infinite where a prediction is not finite. An output that does not vary in a run has no NRMSE
    and is left out; NaN if none varies.

    **Example:**

    ```python
    y = np.array([0.0, 2.0, 0.0, 2.0])[None, :, None]
    tw.metrics.nrmse(y + 0.5, y, np.ones_like(y, bool))  # [0.5]
    ```
    """
    measured = np.where(mask, y, 0.0).astype(np.float64)
    mean = measured.sum(-2, keepdims=True) / np.maximum(mask.sum(-2, keepdims=True), 1)
    variation = np.sqrt(_square(np.where(mask, measured - mean, 0.0)).sum(-2))
    # Rounding of the mean alone is no variation.
    varies = variation > 1e-12 * np.sqrt(_square(measured).sum(-2))
    error = np.sqrt(_square(_error(predicted, y, mask)).sum(-2))
    ratio = np.where(varies, error / np.where(varies, variation, 1.0), 0.0)
    count = varies.sum(-1)
    return np.where(count > 0, ratio.sum(-1) / np.maximum(count, 1), np.nan)


def fit_percent(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The normalised fit of system identification in percent: 100 (1 - ||y - predicted|| / ||y - mean(y)||).

    100 is exact, 0 is as good as the best constant, and a negative fit is worse than that.

    **Arguments and returns:** as those of `nrmse`; minus infinity where a prediction is not finite.

    **Example:**

    ```python
    y = np.array([0.0, 2.0, 0.0, 2.0])[None, :, None]
    tw.metrics.fit_percent(y + 0.5, y, np.ones_like(y, bool))  # [50.]
    ```
    """
    with np.errstate(over="ignore"):
        return 100 * (1 - nrmse(predicted, y, mask))


def relative_error(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """||predicted - y|| at each sample, divided by the root mean square of ||y|| over the run.

    Both norms are means over the outputs measured at the sample, so that a missing output does not reduce the error.

    **Arguments:** `predicted` [..., R, T, k]; `y` and `mask` [R, T, k], `mask` True where an output was measured.

    **Returns:** [..., R, T]; NaN at a sample without measured outputs, infinite where a prediction is not finite.

    **Example:**

    ```python
    y = np.full((1, 3, 2), 4.0)
    tw.metrics.relative_error(y + 1.0, y, np.ones_like(y, bool))  # [[0.25, 0.25, 0.25]]
    ```
    """
    measured = mask.sum(-1)
    size = np.sqrt((np.where(mask, y, 0.0).astype(np.float64) ** 2).sum((-2, -1)) / mask.sum((-2, -1)))
    error = np.sqrt(_square(_error(predicted, y, mask)).sum(-1) / np.maximum(measured, 1))
    error = error / np.maximum(size, np.finfo(np.float64).tiny)[..., None]
    return np.where(measured > 0, error, np.nan)


def valid_time(
    relative: np.ndarray, ts: np.ndarray, length: np.ndarray, failed: np.ndarray, threshold: float = 0.3
) -> np.ndarray:
    """Valid prediction time: from the start of a run to the first sample beyond the threshold or with a failed step.

    **Arguments:** `relative` [..., R, T], see `relative_error`; `ts` [R, T]; `length` [R], samples without padding;
    `failed` [..., R, T], whether a step failed; `threshold` of the relative error.

    **Returns:** the time, [..., R]; the duration of the run if its prediction stays valid.
    """
    is_sample = np.arange(ts.shape[-1]) < length[:, None]
    invalid = is_sample & ((relative > threshold) | failed)
    last = np.take_along_axis(ts, length[:, None] - 1, axis=-1)[:, 0]
    first = np.take_along_axis(np.broadcast_to(ts, invalid.shape), invalid.argmax(-1)[..., None], axis=-1)[..., 0]
    return np.where(invalid.any(-1), first, last) - ts[:, 0]


def dtw(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Dynamic time warping: the distance of two trajectories when time may be stretched.

        DTW = min over monotone alignments of  sum_(i, j) ||predicted_i - y_j||_2

    The local cost is the Euclidean distance of the outputs, summed along the alignment (neither squared nor divided by
    its length), so that DTW grows with the horizon. Only samples at which every output was measured are compared, at
    most the first `MAX_DTW_SAMPLES` of a run.

    **Arguments:** `predicted` [..., R, T, k]; `y` and `mask` [R, T, k], `mask` True where an output was measured.

    **Returns:** [..., R]; infinite where a prediction is not finite, NaN for a run without a complete sample.

    **Raises:** `ImportError` if the package dtaidistance is missing (`pip install 'twinfold[dtw]'`).

    **Example:**

    ```python
    y = np.sin(np.linspace(0.0, 6.0, 50))[None, :, None]
    delayed = np.roll(y, 3, axis=1)
    mask = np.ones_like(y, bool)
    tw.metrics.dtw(delayed, y, mask) < np.abs(delayed - y).sum()  # [True]
    ```
    """
    distance = _dtw_distance()
    flat = np.asarray(predicted, np.float64).reshape(-1, *predicted.shape[-3:])
    out = np.full((len(flat), len(y)), np.nan)
    for run in range(len(y)):
        rows = np.flatnonzero(mask[run].all(-1))[:MAX_DTW_SAMPLES]
        if rows.size == 0:
            continue
        measured = np.ascontiguousarray(y[run, rows], np.float64)
        for index, trajectory in enumerate(flat[:, run]):
            candidate = np.ascontiguousarray(trajectory[rows])
            finite = np.isfinite(candidate).all()
            out[index, run] = distance(candidate, measured, inner_dist="euclidean") if finite else np.inf
    return out.reshape(*predicted.shape[:-3], len(y))


def _dtw_distance():
    try:
        from dtaidistance import dtw_ndim
    except ImportError as error:
        raise ImportError(
            "DTW needs the package dtaidistance: pip install 'twinfold[dtw]'. Or evaluate with dtw=False."
        ) from error
    return dtw_ndim.distance_fast


def _error(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """predicted - y in float64: 0 for a missing value, infinite where the prediction is not finite."""
    error = np.asarray(predicted, np.float64) - np.asarray(y, np.float64)
    return np.where(mask, np.where(np.isfinite(error), error, np.inf), 0.0)


def _square(error: np.ndarray) -> np.ndarray:
    # A diverged prediction can be finite and still overflow when squared.
    with np.errstate(over="ignore"):
        return error**2


def coverage(lower: np.ndarray, upper: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The share of the measured values of a run that lie inside a band.

    Of a 90 % band about 0.9: less says that the band is too narrow, more that it is too wide.

    **Arguments:** the ends `lower` and `upper` of the band, `y` and `mask` [R, T, k], `mask` True where an output was
    measured.

    **Returns:** [R]. A band that is not finite contains nothing.

    **Example:**

    ```python
    y = np.array([0.0, 1.0, 2.0, 9.0])[None, :, None]
    tw.metrics.coverage(y * 0 - 1, y * 0 + 5, y, np.ones_like(y, bool))  # [0.75]
    ```
    """
    inside = mask & (lower <= y) & (y <= upper)
    return inside.sum((-2, -1)) / mask.sum((-2, -1))
