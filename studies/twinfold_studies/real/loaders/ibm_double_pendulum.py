"""Double Pendulum Chaotic (Asseman, Kornuta, Ozcan 2018): three markers of a double pendulum, 400 frames a second.

Coordinates are integers of about a fifth of a pixel. Gravity points along +x in the image, the pivot is marker 0, and
the scale differs from run to run: rods of 602 and 461 units in runs 0 and 1, of 589 and 451 in the others. The official
sequences were cut out of the same runs: `held_out` finds where, so that nobody trains on them.
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from twinfold_studies.real.table import Record, Records, numbers, read_columns

FRAMES_PER_SECOND = 400.0
COLUMNS = ("x0", "y0", "x1", "y1", "x2", "y2")


def load(folder: Path) -> Records:
    """The records "run-0", ... and the official sequences "validation-60", ..., "test-0", ...: t [s], x0, ..., y2."""
    runs = read_columns(folder / "original_runs_a.csv.gz")
    official = read_columns(folder / "official_test_and_validation.csv.gz")
    sequence = [f"{part}-{seq}" for part, seq in zip(official["part"], official["seq"], strict=True)]
    return _by_name(runs, [f"run-{run}" for run in runs["run"]]) | _by_name(official, sequence)


def _by_name(columns: dict[str, list[str]], names: list[str]) -> Records:
    frame, labels = numbers(columns, "k"), np.array(names)
    values = {name: numbers(columns, name) for name in COLUMNS}
    records: Records = {}
    for name in dict.fromkeys(names):
        rows = np.flatnonzero(labels == name)
        if np.any(np.diff(frame[rows]) != 1):
            raise ValueError(f"{name}: frames are missing or out of order")
        record = {column: value[rows] for column, value in values.items()}
        records[name] = {"t": (frame[rows] - frame[rows[0]]) / FRAMES_PER_SECOND} | record
    return records


def markers(record: Record) -> Float[np.ndarray, "T 3 2"]:
    """The positions of pivot, elbow and tip."""
    return np.stack([record[name] for name in COLUMNS], 1).reshape(-1, 3, 2)


def held_out(records: Records, run: str) -> Int[np.ndarray, "k 2"]:
    """First and last frame of each official sequence that lies in this run."""
    whole = markers(records[run]).reshape(-1, len(COLUMNS))
    found = []
    for name, record in records.items():
        if not name.startswith("run-"):
            part = markers(record).reshape(-1, len(COLUMNS))
            for first in np.flatnonzero(np.all(whole == part[0], axis=1)):
                if np.array_equal(whole[first : first + len(part)], part):
                    found.append([first, first + len(part) - 1])
    return np.array(found, int).reshape(-1, 2)
