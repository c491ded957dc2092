"""Measured capacities of NASA's cells, for the tests that need them."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

DATA = Path(os.environ.get("TWINFOLD_DATA", "")) / "nasa_battery" / "cycles.csv"
measured = pytest.mark.skipif(
    not os.environ.get("TWINFOLD_DATA") or not DATA.exists(),
    reason="the measured cells are in $TWINFOLD_DATA/nasa_battery, which is not set or not there",
)

NOT_WHOLE = (
    "capacity<0.5Ah",
    "starts_below_4.1V",
    "above_cutoff_at_end",
    "no_load",
    "capacity_missing",
    "voltage_dropout",
)


def capacity(cell):
    """Measured capacity of each discharge, NaN where it was not a whole one."""
    with DATA.open() as file:
        rows = [row for row in csv.DictReader(file) if row["battery"] == cell]
    whole = [not any(flag in NOT_WHOLE for flag in row["flags"].split(";")) for row in rows]
    return np.array([float(row["capacity_Ah"]) if good else np.nan for row, good in zip(rows, whole, strict=True)])
