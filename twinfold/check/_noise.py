"""How large the noise of a measured signal is, and which samples stick out of it, without a model of the signal.

Divided differences of order q cancel every polynomial of degree below q, at any sampling times:

    d_k = sum_j c_j y_{k+j},    c_j ~ 1 / prod_{i != j} (t_j - t_i),    |c| = 1    =>    sd(d) = sd(noise)

What is left of a smooth signal falls with the order, what is left of white noise does not: the smallest of a few orders
is the estimate. The median makes it blind to spikes and jumps.
"""

import numpy as np

ORDERS = (2, 3, 4, 5, 6)
FEWEST = 12  # samples
SPIKE = 8.0  # standard deviations of the noise beyond which a sample is an outlier
VISIBLE = 0.01  # of the signal's range: a smaller spike is not worth a word
MOST_STRETCHED = 4.0  # times the median step: interpolation across a longer one says nothing


def differences(ts: np.ndarray, y: np.ndarray, order: int) -> np.ndarray:
    """d [N - order], see above; `ts` and `y` [N], without missing values."""
    times = np.lib.stride_tricks.sliding_window_view(ts, order + 1)
    apart = times[:, :, None] - times[:, None, :]
    # In units of the window's own length, so that a product of six steps of a microsecond does not underflow.
    apart = apart / (times[:, -1] - times[:, 0])[:, None, None]
    apart[:, np.arange(order + 1), np.arange(order + 1)] = 1.0
    weights = 1 / np.prod(apart, axis=2)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    return np.sum(weights * np.lib.stride_tricks.sliding_window_view(y, order + 1), axis=1)


def noise_of(ts: np.ndarray, y: np.ndarray) -> float:
    """The standard deviation of the noise in y; NaN where there are too few samples to say."""
    known = np.isfinite(y)
    if known.sum() < FEWEST:
        return float("nan")
    return float(min(_spread(differences(ts[known], y[known], order)) for order in ORDERS))


def spikes(ts: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The indices of samples far from the cubic through their four neighbours, to which the signal comes back."""
    places = np.flatnonzero(np.isfinite(y))
    found: list[int] = []
    if len(places) < FEWEST:
        return np.array(found, int)
    values, times = y[places].copy(), ts[places]
    low, high = np.quantile(values, [0.05, 0.95])
    rounding = 1e-9 * np.abs(values).max()
    least = max(SPIKE * noise_of(times, values), VISIBLE * (high - low), rounding)
    regular = _regular(times)
    # One at a time, the largest first: a spike spoils the interpolation at its neighbours.
    for _ in range(len(places) // 4):
        off = np.where(regular, values[2:-2] - _interpolated(times, values), 0.0)
        # Beside a jump the cubic is off as well, but the sample is near one of its neighbours.
        out = np.sign(off)[:, None] * (values[2:-2, None] - np.stack([values[1:-3], values[3:-1]], axis=1))
        size = np.where(out.min(axis=1) > 0.5 * np.abs(off), np.abs(off), 0.0)
        worst = int(np.argmax(size))
        if not size[worst] > least:
            break
        found.append(int(places[worst + 2]))
        values[worst + 2] -= off[worst]
    return np.array(sorted(found), int)


def _interpolated(ts: np.ndarray, y: np.ndarray) -> np.ndarray:
    """At each inner sample the cubic through the two samples before and the two after it."""
    at, (a, b, c, d) = ts[2:-2], (ts[:-4], ts[1:-3], ts[3:-1], ts[4:])
    out = np.zeros(len(at))
    for own, value, others in (
        (a, y[:-4], (b, c, d)),
        (b, y[1:-3], (a, c, d)),
        (c, y[3:-1], (a, b, d)),
        (d, y[4:], (a, b, c)),
    ):
        out += value * np.prod([(at - other) / (own - other) for other in others], axis=0)
    return out


def _regular(ts: np.ndarray) -> np.ndarray:
    """For each inner sample whether no step around it is far longer than usual."""
    steps = np.diff(ts)
    longest = np.lib.stride_tricks.sliding_window_view(steps, 4).max(axis=1)
    return longest <= MOST_STRETCHED * np.median(steps)


def _spread(values: np.ndarray) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
