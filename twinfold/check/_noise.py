"""Noise and outliers of a measured signal, without a model of the signal.

Divided differences of order q cancel every polynomial of degree below q, at any sampling times:

    d_k = sum_j c_j y_{k+j},    c_j ~ 1 / prod_{i != j} (t_j - t_i),    |c| = 1    =>    sd(d) = sd(noise)

The contribution of a smooth signal falls with the order, that of white noise does not: the smallest of several orders
is the estimate. The median makes it insensitive to outliers and steps.
"""

import numpy as np

ORDERS = (2, 3, 4, 5, 6)
MIN_SAMPLES = 12
MIN_OUTLIER = 8.0  # standard deviations of the noise
MIN_OUTLIER_RANGE = 0.01  # of the signal's range
MAX_STEP = 4.0  # times the median step: interpolation across a longer one is unreliable


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


def estimate_noise(ts: np.ndarray, y: np.ndarray) -> float:
    """Return the standard deviation of the noise in y; NaN if there are too few samples."""
    known = np.isfinite(y)
    if known.sum() < MIN_SAMPLES:
        return float("nan")
    orders = [divided_differences(ts[known], y[known], order) for order in ORDERS]
    return float(min(1.4826 * np.median(np.abs(d - np.median(d))) for d in orders))


def find_outliers(ts: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the indices of samples far from the cubic through their four neighbours."""
    places = np.flatnonzero(np.isfinite(y))
    found: list[int] = []
    if len(places) < MIN_SAMPLES:
        return np.array(found, int)
    values, times = y[places].copy(), ts[places]
    low, high = np.quantile(values, [0.05, 0.95])
    rounding = 1e-9 * np.abs(values).max()
    threshold = max(MIN_OUTLIER * estimate_noise(times, values), MIN_OUTLIER_RANGE * (high - low), rounding)
    steps = np.diff(times)
    reliable = np.lib.stride_tricks.sliding_window_view(steps, 4).max(axis=1) <= MAX_STEP * np.median(steps)
    # One at a time, the largest first: an outlier spoils the interpolation at its neighbours.
    for _ in range(len(places) // 4):
        off = np.where(reliable, values[2:-2] - _interpolate(times, values), 0.0)
        # Beside a step the cubic is wrong as well, but there the sample is close to one of its neighbours.
        apart = np.sign(off)[:, None] * (values[2:-2, None] - np.stack([values[1:-3], values[3:-1]], axis=1))
        size = np.where(apart.min(axis=1) > 0.5 * np.abs(off), np.abs(off), 0.0)
        worst = int(np.argmax(size))
        if not size[worst] > threshold:
            break
        found.append(int(places[worst + 2]))
        values[worst + 2] -= off[worst]
    return np.array(sorted(found), int)


def _interpolate(ts: np.ndarray, y: np.ndarray) -> np.ndarray:
    """At each inner sample, the cubic (Lagrange) through the two samples before and the two after it."""
    at, inner = ts[2:-2], np.zeros(len(ts) - 4)
    neighbours = (slice(None, -4), slice(1, -3), slice(3, -1), slice(4, None))
    for own in neighbours:
        others = [(at - ts[other]) / (ts[own] - ts[other]) for other in neighbours if other is not own]
        inner += y[own] * np.prod(others, axis=0)
    return inner
