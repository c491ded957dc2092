"""How far a prediction is from what was measured, for each run.

Every function takes `predicted` [..., R, T, k], `y` [R, T, k] and `mask` [R, T, k], True where an output was measured
(never in the padding), and returns [..., R]. A prediction that is not finite has an infinite error.
"""

import numpy as np


def deviation(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """predicted - y in float64: 0 where nothing was measured, infinite where the prediction is not finite."""
    error = np.asarray(predicted, np.float64) - np.asarray(y, np.float64)
    return np.where(mask, np.where(np.isfinite(error), error, np.inf), 0.0)


def mae(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean absolute error over all measured values of a run."""
    return np.abs(deviation(predicted, y, mask)).sum((-2, -1)) / mask.sum((-2, -1))


def mse(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean squared error over all measured values of a run."""
    return _square(deviation(predicted, y, mask)).sum((-2, -1)) / mask.sum((-2, -1))


def rmse(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Root of the mean squared error."""
    return np.sqrt(mse(predicted, y, mask))


def relative_error(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """||predicted - y|| / rms size of y at each sample, [..., R, T]; NaN where nothing was measured.

    Both norms are means over the outputs measured there, so that a missing output does not look like a small error.
    """
    measured = mask.sum(-1)
    size = np.sqrt((np.where(mask, y, 0.0).astype(np.float64) ** 2).sum((-2, -1)) / mask.sum((-2, -1)))
    error = np.sqrt(_square(deviation(predicted, y, mask)).sum(-1) / np.maximum(measured, 1))
    error = error / np.maximum(size, np.finfo(np.float64).tiny)[..., None]
    return np.where(measured > 0, error, np.nan)


def valid_time(
    relative: np.ndarray, ts: np.ndarray, length: np.ndarray, failed: np.ndarray, threshold: float = 0.3
) -> np.ndarray:
    """Valid prediction time: from a run's start to the first sample that is too far off, or whose step failed.

    **Arguments:** `relative` [..., R, T], see `relative_error`; `ts` [R, T]; `length` [R], samples that are not
    padding; `failed` [..., R, T], whether a step failed; `threshold`, the relative error that is too much.

    **Returns:** the time, [..., R]; a run's whole duration where its prediction stays valid.
    """
    real = np.arange(ts.shape[-1]) < length[:, None]
    lost = real & ((relative > threshold) | failed)
    last = np.take_along_axis(ts, length[:, None] - 1, axis=-1)[:, 0]
    first_lost = np.take_along_axis(np.broadcast_to(ts, lost.shape), lost.argmax(-1)[..., None], axis=-1)[..., 0]
    return np.where(lost.any(-1), first_lost, last) - ts[:, 0]


def _square(error: np.ndarray) -> np.ndarray:
    # A diverged prediction may be finite and still overflow when squared.
    with np.errstate(over="ignore"):
        return error**2
