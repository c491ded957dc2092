"""Facts about the cells that are in NASA's read-me files, but not in the .mat files."""

# Set #5: cut-off voltages, V.
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
    f"B{first + index:04d}": volts
    for first in (25, 29, 41, 45, 49, 53)
    for index, volts in enumerate((2.0, 2.2, 2.5, 2.7))
}

_RANDOMIZED = "RW"  # set #11
_WARM = {f"RW{number}" for number in range(21, 29)}


def cutoff(cell: str) -> float:
    """The cut-off voltage of a cell; NaN if it is not NASA's."""
    return 3.2 if cell.startswith(_RANDOMIZED) else _CUTOFFS.get(cell, float("nan"))


def ambient(cell: str) -> float:
    """The ambient temperature in deg C of cells of set #11; NaN for others, whose files have it."""
    if not cell.startswith(_RANDOMIZED):
        return float("nan")
    return 40.0 if cell in _WARM else 24.0
