"""Figures."""

from twinfold.plot._plot import (
    COLOURS,
    DASHES,
    GREY,
    INK,
    PALE,
    SMALLEST,
    STYLE,
    errors_over_time,
    grid_of,
    math_name,
    matplotlib_of,
    phase,
    save,
    training,
    trajectories,
    violations_over_time,
)

__all__ = [
    "COLOURS",
    "DASHES",
    "GREY",
    "INK",
    "PALE",
    "SMALLEST",
    "STYLE",
    "errors_over_time",
    "grid_of",
    "math_name",
    "matplotlib_of",
    "phase",
    "save",
    "training",
    "trajectories",
    "violations_over_time",
]
