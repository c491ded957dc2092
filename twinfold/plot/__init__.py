"""Static figures of predictions and fits, drawn with matplotlib (`pip install 'twinfold[plot]'`)."""

from twinfold.plot._predictions import errors_over_time, phase_portrait, trajectories, violations_over_time
from twinfold.plot._style import COLOURS, DASHES, GREY, INK, LOG_FLOOR, PALE, math_label, save, subplots
from twinfold.plot._training import training_curves

__all__ = [
    "COLOURS",
    "DASHES",
    "GREY",
    "INK",
    "LOG_FLOOR",
    "PALE",
    "errors_over_time",
    "math_label",
    "phase_portrait",
    "save",
    "subplots",
    "training_curves",
    "trajectories",
    "violations_over_time",
]
