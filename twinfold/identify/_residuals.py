"""Correlations of a residual with itself and with the inputs, and what chance alone would show.

    r_e(k) = sum_t e(t) e(t - k) / sum_t e(t)^2,          |r_e(k)| < z / sqrt(N) if e is white
    r_eu(k) = sum_t e(t) u(t - k) / sqrt(sum e^2 sum u^2),  |r_eu(k)| < z sqrt(P / N), P = sum_k r_e(k) r_u(k)

A model that explains its data leaves white noise. Correlation of e with itself: dynamics are missing, or the noise is
not white. Correlation with an earlier input (k >= 0): the output still follows the input in a way that the model does
not. With a later one (k < 0): the input depends on the output, as in a closed loop.

Before it is correlated with an input, the residual is filtered as that input is to become white.

Reference: L. Ljung, System Identification, 2nd edition, section 16.6.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

CONFIDENCE = 0.99
MAX_LAG = 25


@dataclass(frozen=True, eq=False)
class Correlation:
    """Correlations at some lags, in samples. `band`: 99 % of those of chance at one lag are within it.

    `limit` is the same for all lags together: a correlation beyond it is significant.

    **Example:**

    ```python
    wave = np.sin(np.arange(100) / 5)
    tw.identify.correlate_residual(wave, max_lag=2).auto.significant  # [1, 2]
    ```
    """

    lags: np.ndarray
    values: np.ndarray
    band: float
    limit: float

    @property
    def significant(self) -> np.ndarray:
        """The lags, other than those of a later input, at which the correlation is beyond the limit."""
        return self.lags[(self.lags >= 0) & (np.abs(self.values) > self.limit)]


@dataclass(frozen=True, eq=False)
class ResidualCorrelations:
    """The correlations of one residual; returned by `correlate_residual`.

    `auto` with itself, at the lags from 1 on; `inputs` with each input, at negative lags with later values.

    **Example:**

    ```python
    rng = np.random.default_rng(0)
    u, e = rng.normal(size=(500, 1)), rng.normal(size=500)
    left_over = tw.identify.correlate_residual(e + 0.5 * np.roll(u[:, 0], 3), u)
    left_over.is_white  # True: u is white itself
    left_over.follows  # (0,): the first input
    left_over.inputs[0].significant  # [3]
    ```
    """

    auto: Correlation
    inputs: tuple[Correlation, ...]

    @property
    def is_white(self) -> bool:
        """Whether no correlation of the residual with itself is significant."""
        return not self.auto.significant.size

    @property
    def follows(self) -> tuple[int, ...]:
        """The inputs with which the residual is significantly correlated."""
        return tuple(index for index, each in enumerate(self.inputs) if each.significant.size)


def correlate_residual(
    residual: np.ndarray, inputs: np.ndarray | None = None, *, max_lag: int = MAX_LAG
) -> ResidualCorrelations:
    """Correlate the residual of one run with itself and with the inputs.

    **Arguments:** `residual` [T], measured minus predicted, at equal steps, NaN where missing; `inputs` [T, d];
    `max_lag` in samples (at most a quarter of the run).

    **Returns:** `ResidualCorrelations`. An input that does not vary has none with the residual: zeros.

    **Raises:** `ValueError` if fewer than 8 values are given or all are zero, or the lengths differ.

    **Example:**

    ```python
    rng = np.random.default_rng(0)
    white = rng.normal(size=500)
    tw.identify.correlate_residual(white).is_white  # True
    tw.identify.correlate_residual(np.convolve(white, [1, 0.5])).is_white  # False
    ```
    """
    e = np.asarray(residual, np.float64)
    u = np.zeros((len(e), 0)) if inputs is None else np.asarray(inputs, np.float64)
    known = np.isfinite(e)
    count = int(known.sum())
    if e.ndim != 1 or u.shape[:1] != e.shape or u.ndim != 2:
        raise ValueError(f"residual {e.shape} and inputs {u.shape}: give [T] and [T, d].")
    if count < 8 or not np.any(e[known]):
        raise ValueError(f"residual: {count} values, of which at least 8 and not only zeros are needed.")
    # Relative to the largest: the square of one after a divergence may not be a number.
    e = np.where(known, e, 0.0) / np.abs(e[known]).max()
    lags = np.arange(max(1, min(max_lag, len(e) // 4)) + 1)
    auto = _correlations(e, e)
    both = np.r_[-lags[:0:-1], lags]
    found = [_with_input(np.where(known, e, np.nan), column, both) for column in u.T]
    spread = 1 / np.sqrt(count)
    return ResidualCorrelations(_bounded(lags[1:], auto[len(e) - 1 + lags[1:]], spread, len(lags) - 1), tuple(found))


def _with_input(e: np.ndarray, u: np.ndarray, lags: np.ndarray) -> Correlation:
    tested = int((lags >= 0).sum())
    if np.ptp(u) == 0:
        return _bounded(lags, np.zeros(len(lags)), 1 / np.sqrt(np.isfinite(e).sum()), tested)
    e, u = _prewhitened(e, u - u.mean())
    known = np.isfinite(e)
    e = np.where(known, e, 0.0)
    # The sum over all lags is that of a product of periodograms, and so never negative.
    power = max(float(_correlations(e, e) @ _correlations(u, u)), 1.0)
    return _bounded(lags, _correlations(e, u)[len(e) - 1 + lags], np.sqrt(power / known.sum()), tested)


def _prewhitened(e: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both after the filter that leaves of u what its last two samples do not predict (Box and Jenkins, section 12.1).

    The response of e to u is the same before and after it, but slow signals look correlated by chance, quick ones do
    not. As they are if too little would be left: of an input that is predicted exactly, or with many missing values.
    """
    past = np.stack([u[1:-1], u[:-2]], axis=1)
    weights = np.linalg.lstsq(past, u[2:], rcond=None)[0]
    new_u, new_e = u[2:] - past @ weights, e[2:] - weights[0] * e[1:-1] - weights[1] * e[:-2]
    known = np.isfinite(new_e)
    if new_u @ new_u < 1e-9 * (u @ u) or 4 * known.sum() < len(e) or not np.any(new_e[known]):
        return e, u
    return new_e, new_u


def _correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum_t a(t) b(t - k) at all lags k, from -(T - 1) to T - 1, relative to the sizes of both."""
    size = 2 ** int(np.ceil(np.log2(2 * len(a))))
    product = np.fft.irfft(np.fft.rfft(a, size) * np.conj(np.fft.rfft(b, size)), size)
    return np.roll(product, len(a) - 1)[: 2 * len(a) - 1] / np.sqrt((a @ a) * (b @ b))


def _bounded(lags: np.ndarray, values: np.ndarray, spread: float, tested: int) -> Correlation:
    one, all_lags = (float(ndtri(1 - chance / 2)) for chance in (1 - CONFIDENCE, (1 - CONFIDENCE) / tested))
    return Correlation(lags, values, one * spread, all_lags * spread)
