"""A draining tank, empty and with a hidden bottle (Fabusola and Simon, Chem. Eng. Sci. 309, 2025): its level at 6 Hz.

Traps: byte-order marks; the time stands still for the first samples; the sensor reads in steps of about 1 cm; the tank
is filled first, and drains from the last of the highest readings on.
"""

import math
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from twinfold_studies.real.table import Records, numbers, read_columns

RUNS = ("empty_train", "empty_test", "with_bottle")


class Geometry(NamedTuple):
    """The tank: its height [cm], and the areas of its bottom and top [cm^2], between which the area is linear."""

    height: float
    bottom: float
    top: float

    def area(self, level: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The cross-section [cm^2] at a level [cm]."""
        return self.bottom + (self.top - self.bottom) * level / self.height


def load(folder: Path) -> Records:
    """The runs "empty_train", "empty_test" and "with_bottle" (t [s], reading), from the start of the drain on.

    With "calibration" of the sensor (level [cm], reading), "bottle", the measured truth (level [cm], area [cm^2]), and
    "tank" (height, bottom, top: one number each, see `Geometry`).
    """
    columns = read_columns(folder / "draining_tank.csv")
    run, t, reading = np.array(columns["run"]), numbers(columns, "t_s"), numbers(columns, "sensor_reading")
    records: Records = {name: _drain(t[run == name], reading[run == name]) for name in RUNS}
    calibration = read_columns(folder / "level_sensor_calibration.csv")
    bottle = read_columns(folder / "bottle_area.csv")
    tank = read_geometry((folder / "tank_length_measurements.txt").read_text(encoding="utf-8"))
    return records | {
        "calibration": {
            "level": numbers(calibration, "h [cm]"),
            "reading": numbers(calibration, "level sensor reading"),
        },
        "bottle": {"level": numbers(bottle, "h [cm]"), "area": numbers(bottle, "area")},
        "tank": {name: np.array([value]) for name, value in tank._asdict().items()},
    }


def _drain(t: Float[np.ndarray, " T"], reading: Float[np.ndarray, " T"]) -> dict[str, Float[np.ndarray, " D"]]:
    """The samples from the last one near the highest reading on, each time once, at zero first."""
    rows = np.arange(np.flatnonzero(reading >= reading.max() - 1)[-1], len(t))
    rows = rows[np.append(True, np.diff(t[rows]) > 0)]
    return {"t": t[rows] - t[rows[0]], "reading": reading[rows]}


def read_geometry(text: str) -> Geometry:
    """The tank from the notes of its measurement: rounded rectangles, and the height along the slanted wall."""
    values = {name: float(value) for name, value in re.findall(r"^(H\*|L_[tb]|W_[tb]) = ([\d.]+) cm", text, re.M)}
    values |= dict(zip(("p_t", "p_b"), map(float, re.findall(r"^perimeter = ([\d.]+) cm", text, re.M)), strict=True))

    def area(end: str) -> float:
        length, width, perimeter = (values[f"{name}_{end}"] for name in "LWp")
        corner = (perimeter / 2 - (length + width)) / (math.pi - 4)  # p = 2 (L + W) - (8 - 2 pi) r
        return length * width - (4 - math.pi) * corner**2

    slant = (values["L_t"] - values["L_b"]) / 2
    return Geometry(math.sqrt(values["H*"] ** 2 - slant**2), area("b"), area("t"))


def geometry(records: Records) -> Geometry:
    """The geometry among the records."""
    return Geometry(*(float(records["tank"][name][0]) for name in Geometry._fields))
