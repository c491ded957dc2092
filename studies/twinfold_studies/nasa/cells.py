"""What NASA's read-me files say of the cells and their .mat files do not."""

# Set #5: the groups were discharged to different voltages, in this order (V).
_CUTOFFS = {
    "B0005": 2.7,
    "B0006": 2.5,
    "B0007": 2.2,
    "B0018": 2.5,
    "B0033": 2.0,
    "B0034": 2.2,
    "B0036": 2.7,
    "B0038": 2.2,
    "B0039": 2.5,
    "B0040": 2.7,
} | {
    f"B{first + place:04d}": volts
    for first in (25, 29, 41, 45, 49, 53)
    for place, volts in enumerate((2.0, 2.2, 2.5, 2.7))
}

_RANDOMIZED = "RW"  # set #11
_WARM = {f"RW{number}" for number in range(21, 29)}


def cutoff(cell: str) -> float:
    """The voltage at which the discharges of a cell were stopped; NaN for a cell that is not NASA's."""
    return 3.2 if cell.startswith(_RANDOMIZED) else _CUTOFFS.get(cell, float("nan"))


def ambient(cell: str) -> float:
    """The temperature of the test in deg C, for cells of set #11; NaN for others, whose files say it."""
    if not cell.startswith(_RANDOMIZED):
        return float("nan")
    return 40.0 if cell in _WARM else 24.0
