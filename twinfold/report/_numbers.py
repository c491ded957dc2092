"""Numbers as short text and as JSON."""

import math

import numpy as np


def format_number(value: float) -> str:
    """A number with two significant digits; NaN is "-".

    **Example:**

    ```python
    tw.report.format_number(0.314)  # '0.31'
    tw.report.format_number(-3.14159e-4)  # '-3.1e-4'
    ```
    """
    if math.isnan(value):
        return "-"
    sign, size = "-" if value < 0 else "", abs(value)
    if size == 0 or math.isinf(size):
        return f"{sign}{size:.0f}"
    if 0.1 <= size < 10:
        return f"{sign}{size:#.2g}"
    if 10 <= size < 10_000:
        return f"{sign}{size:.0f}"
    digits, exponent = f"{size:.1e}".split("e")
    return f"{sign}{digits}e{int(exponent)}"


def json_numbers(values: np.ndarray, digits: int) -> list[float | None]:
    """Numbers rounded to `digits` significant digits; None where not finite, since JSON has no NaN."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values, float)]
