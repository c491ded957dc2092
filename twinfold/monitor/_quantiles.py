"""Quantiles of Student's t and of the F distribution, through the incomplete beta function, in double precision.

P(T > t) = I_x(v/2, 1/2) / 2,  x = v / (v + t^2)          P(F > f) = I_x(d2/2, d1/2),  x = d2 / (d2 + d1 f)
"""

import functools
import math

SMALLEST = 1e-300  # stands in for a zero denominator of the continued fraction


def student_quantile(q: float, dof: int) -> float:
    """t with P(T <= t) = q, for `dof` degrees of freedom.

    **Arguments:** `q`, strictly between 0 and 1; `dof`, positive.
    """
    _check(q, dof)
    x = _beta_quantile(2 * min(q, 1 - q), dof / 2, 0.5)
    return math.copysign(math.sqrt(dof * (1 - x) / x), q - 0.5)


def f_quantile(q: float, above: int, below: int) -> float:
    """f with P(F <= f) = q, for `above` and `below` degrees of freedom of numerator and denominator."""
    _check(q, min(above, below))
    x = _beta_quantile(1 - q, below / 2, above / 2)
    return below * (1 - x) / (above * x)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # on this side the fraction converges slowly
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = value
        for term in (even, odd):
            c, d = _away(1 + term / c), 1 / _away(1 + term * d)
            value *= c * d
        if abs(value - before) <= 1e-16 * abs(value):
            break
    return math.exp(front) * value / a


@functools.lru_cache(maxsize=256)  # a monitor asks for the same one every cycle
def _beta_quantile(p: float, a: float, b: float) -> float:
    """x with I_x(a, b) = p, by bisection: no derivative, no start value, and it always ends."""
    low, high = 0.0, 1.0
    for _ in range(1100):  # enough to reach the smallest number from 1
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if incomplete_beta(middle, a, b) < p else (low, middle)
    return high


def _away(value: float) -> float:
    return value if abs(value) > SMALLEST else SMALLEST


def _check(q: float, dof: int) -> None:
    if not 0 < q < 1 or not dof > 0:
        raise ValueError(f"A quantile needs 0 < q < 1 and positive degrees of freedom; got q = {q:g}, {dof:g}.")
