"""Features of the residual of one cycle: its size, and its shape along the cycle.

    residual(s) = sum_k shape_k P_k(s) + remainder,        s in [-1, 1]: normalised time, charge, or other position

P_k are Legendre polynomials: `shape_0` is the level, `shape_1` the slope, `shape_2` the curvature. The coefficients
minimise Huber's loss, so that outliers do not move them; missing samples are left out.
"""

import numpy as np

HUBER_THRESHOLD = 1.345  # standard deviations beyond which the loss is linear: 95 % efficient on normal noise
MAX_PASSES = 30  # of reweighted least squares


def residual_features(
    residual: np.ndarray,
    position: np.ndarray | None = None,
    *,
    mask: np.ndarray | None = None,
    degree: int = 2,
    span: tuple[float, float] | None = None,
) -> dict[str, float]:
    """Return the mean, the root mean square and the shape of the residual of one output over one cycle.

    **Arguments:** `residual` [T], measured minus predicted, NaN where missing; `position` [T], along which the shape is
    computed (the sample number by default); `mask` [T], True where measured; `degree` of the shape; `span`, the
    positions that map to -1 and 1: give it to compare cycles that end at different positions.

    **Returns:** mean, rms, shape_0 ... shape_degree; all NaN if there are fewer samples than coefficients.

    **Raises:** `ValueError` if the arguments are not vectors of the same length.

    **Example:**

    ```python
    s = np.linspace(-1, 1, 50)
    tw.monitor.residual_features(0.3 - 0.2 * s)  # shape_0 0.3, shape_1 -0.2, shape_2 0
    ```
    """
    residual = np.asarray(residual, np.float64)
    position = np.arange(residual.size, dtype=np.float64) if position is None else np.asarray(position, np.float64)
    if residual.ndim != 1 or position.shape != residual.shape:
        raise ValueError(
            f"The residual of one output is a vector [T]: got {residual.shape} at positions {position.shape}."
        )
    use = np.isfinite(residual) & np.isfinite(position) & (True if mask is None else mask)
    names = ["mean", "rms", *(f"shape_{k}" for k in range(degree + 1))]
    r, s = residual[use], position[use]
    low, high = span if span is not None else (s.min(initial=np.inf), s.max(initial=-np.inf))
    if r.size <= degree or not high > low:
        return dict.fromkeys(names, float("nan"))
    basis = np.polynomial.legendre.legvander(2 * (s - low) / (high - low) - 1, degree)
    # Scaled by a power of two, which is exact: the square of a diverged residual would overflow.
    unit = np.ldexp(1.0, np.frexp(np.abs(r).max())[1] - 1)
    r = r / unit
    values = [r.mean(), np.sqrt(np.mean(r**2)), *_fit_huber(basis, r)]
    return {name: float(unit * value) for name, value in zip(names, values, strict=True)}


def _fit_huber(basis: np.ndarray, r: np.ndarray) -> np.ndarray:
    """argmin_c sum huber((r - basis c) / scale) by reweighted least squares; the scale is the median deviation."""
    weight = np.ones_like(r)
    coefficients = np.zeros(basis.shape[1])
    for _ in range(MAX_PASSES):
        before = coefficients
        root = np.sqrt(weight)
        coefficients = np.linalg.lstsq(root[:, None] * basis, root * r, rcond=None)[0]
        size = np.abs(r - basis @ coefficients)
        scale = 1.4826 * np.median(size)
        # If half of the samples are fitted exactly, the scale is zero and the weights are undefined.
        if scale <= 1e-12 * np.abs(r).max(initial=0) or np.abs(coefficients - before).max() <= 1e-9 * scale:
            break
        weight = np.minimum(1.0, HUBER_THRESHOLD * scale / np.maximum(size, np.finfo(np.float64).tiny))
    return coefficients
