"""What the residual of one cycle looks like, in a few numbers: how large it is, and its shape along the cycle.

    residual(s) = sum_k shape_k P_k(s) + rest,        s in [-1, 1]: normalised time, charge, or any other position

P_k are Legendre polynomials. The coefficients minimise Huber's loss, so that a spike does not move them; samples that
are missing are left out. `shape_0` is the level, `shape_1` a slope, `shape_2` a bend.
"""

from collections.abc import Sequence

import numpy as np

BEND = 1.345  # residuals beyond this many standard deviations count linearly: 95 % efficient on normal noise
PASSES = 30


def residual_features(
    residual: np.ndarray,
    position: np.ndarray | None = None,
    *,
    mask: np.ndarray | None = None,
    degree: int = 2,
    span: tuple[float, float] | None = None,
) -> dict[str, float]:
    """The mean, the root mean square and the shape of one channel's residual over one cycle.

    **Arguments:** `residual` [T], measured minus predicted, NaN where missing; `position` [T], along which the shape
    is taken (sample number if left out); `mask` [T], True where it was measured; `degree` of the shape; `span`, the
    positions that are the ends -1 and 1: give it where cycles that are to be compared end at different positions.

    **Returns:** mean, rms, shape_0 ... shape_degree; all NaN where there are fewer samples than coefficients.
    """
    residual = np.asarray(residual, np.float64)
    position = np.arange(residual.size, dtype=np.float64) if position is None else np.asarray(position, np.float64)
    if residual.ndim != 1 or position.shape != residual.shape:
        raise ValueError(f"One channel is [T]: got a residual {residual.shape} at positions {position.shape}.")
    use = np.isfinite(residual) & np.isfinite(position) & (True if mask is None else mask)
    names = ["mean", "rms", *(f"shape_{k}" for k in range(degree + 1))]
    r, s = residual[use], position[use]
    low, high = span if span is not None else (s.min(initial=np.inf), s.max(initial=-np.inf))
    if r.size <= degree or not high > low:
        return dict.fromkeys(names, float("nan"))
    basis = np.polynomial.legendre.legvander(2 * (s - low) / (high - low) - 1, degree)
    # In units of a power of two, which rounds nothing: the square of a residual that has run away overflows.
    unit = np.ldexp(1.0, np.frexp(np.abs(r).max())[1] - 1)
    r = r / unit
    values = [r.mean(), np.sqrt(np.mean(r**2)), *_huber(basis, r)]
    return {name: float(unit * value) for name, value in zip(names, values, strict=True)}


def channel_features(
    residual: np.ndarray,
    outputs: Sequence[str],
    position: np.ndarray | None = None,
    *,
    mask: np.ndarray | None = None,
    degree: int = 2,
    span: tuple[float, float] | None = None,
) -> dict[str, float]:
    """`residual_features` of each output of a twin, as "output.feature".

    **Arguments:** `residual` [T, k]; the names of the k `outputs`; the rest as for `residual_features`, with a `mask`
    [T, k].
    """
    mask = np.ones(residual.shape, bool) if mask is None else mask
    found = {}
    for name, r, use in zip(outputs, residual.T, mask.T, strict=True):
        one = residual_features(r, position, mask=use, degree=degree, span=span)
        found |= {f"{name}.{feature}": value for feature, value in one.items()}
    return found


def _huber(basis: np.ndarray, r: np.ndarray) -> np.ndarray:
    """argmin_c sum huber((r - basis c) / scale), by reweighted least squares; the scale is the median deviation."""
    weight = np.ones_like(r)
    found = np.zeros(basis.shape[1])
    for _ in range(PASSES):
        before = found
        root = np.sqrt(weight)
        found = np.linalg.lstsq(root[:, None] * basis, root * r, rcond=None)[0]
        size = np.abs(r - basis @ found)
        scale = 1.4826 * np.median(size)
        # Where half of the samples are fitted exactly there is no scale to speak of.
        if scale <= 1e-12 * np.abs(r).max(initial=0) or np.abs(found - before).max() <= 1e-9 * scale:
            break
        weight = np.minimum(1.0, BEND * scale / np.maximum(size, np.finfo(np.float64).tiny))
    return found
