"""Dynamic time warping: how far apart two trajectories are when time may be stretched.

    DTW = min over monotone alignments of  sum_(i, j) ||predicted_i - y_j||_2

The local cost is the Euclidean distance of the outputs, summed along the alignment (neither squared nor divided by its
length), so the number grows with the horizon. Of a long run only the first 1000 samples are compared.
"""

import numpy as np

LONGEST = 1000  # samples; the cost is quadratic in their number


def dtw(predicted: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """DTW of each run, over the samples at which every output was measured.

    **Arguments:** `predicted` [..., R, T, k], `y` and `mask` [R, T, k].

    **Returns:** [..., R]; infinite where a prediction is not finite, NaN where no sample is complete.
    """
    kernel = _kernel()
    lead = predicted.shape[:-3]
    flat = np.asarray(predicted, np.float64).reshape(-1, *predicted.shape[-3:])
    complete = [np.flatnonzero(rows.all(-1))[:LONGEST] for rows in mask]
    out = np.full((len(flat), len(y)), np.nan)
    for run, rows in enumerate(complete):
        if rows.size == 0:
            continue
        measured = np.ascontiguousarray(y[run, rows], np.float64)
        for index, one in enumerate(flat[:, run]):
            guess = np.ascontiguousarray(one[rows])
            finite = np.isfinite(guess).all()
            out[index, run] = kernel(guess, measured, inner_dist="euclidean") if finite else np.inf
    return out.reshape(*lead, len(y))


def _kernel():
    try:
        from dtaidistance import dtw_ndim
    except ImportError as error:
        raise ImportError(
            "DTW needs the package dtaidistance: pip install 'twinfold[dtw]'. Or evaluate with dtw=False."
        ) from error
    return dtw_ndim.distance_fast
