"""Numbers as short text and as JSON."""

import math

import numpy as np


def format_number(value: float, digits: int = 2) -> str:
    """A number with two significant digits, or as many as given; NaN is "-".

    **Example:**

    ```python
    tw.report.format_number(0.314)  # '0.31'
    tw.report.format_number(-3.14159e-4)  # '-3.1e-4'
    tw.report.format_number(0.031416, digits=3)  # '0.0314'
    ```
    """
    if math.isnan(value):
        return "-"
    sign, size = "-" if value < 0 else "", abs(value)
    if size == 0 or math.isinf(size):
        return f"{sign}{size:.0f}"
    smallest = 0.1 if digits < 3 else 1e-3
    # Rounded first: 9.996 has the digits of 10.
    if smallest <= float(f"{size:.{digits - 1}e}") < 10 ** (digits - 1):
        return f"{sign}{size:#.{digits}g}"
    if 10 ** (digits - 1) <= float(f"{size:.{digits - 1}e}") and size < 10_000:
        return f"{sign}{size:.0f}"
    mantissa, exponent = f"{size:.{digits - 1}e}".split("e")
    return f"{sign}{mantissa}e{int(exponent)}"


def format_estimate(value: float, error: float = math.nan) -> str:
    """A value to the second digit of its standard error, with two digits at least and five at most."""
    if not (value and error > 0 and math.isfinite(value) and math.isfinite(error)):
        return f"{value:.5g}"
    size = math.floor(math.log10(abs(value)))
    digits = max(size - math.floor(math.log10(error)) + 2, 2)
    if digits >= 5:
        return f"{value:.5g}"
    if not -5 < size < 5:
        return f"{value:.{digits - 1}e}"
    decimals = digits - 1 - size
    return f"{round(value, decimals):.{max(decimals, 0)}f}"


def json_numbers(values: np.ndarray, digits: int) -> list[float | None]:
    """Numbers rounded to `digits` significant digits; None where not finite, since JSON has no NaN."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values, float)]
