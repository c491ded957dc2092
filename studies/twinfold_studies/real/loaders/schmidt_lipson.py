"""Schmidt and Lipson (Science 324, 2009): camera recordings of a pendulum; here the one with angle and velocity.

556 samples of one swing with friction, six in a unit of time (not certainly a second), with a few gaps.
"""

from pathlib import Path

from twinfold_studies.real.table import Records, numbers, read_columns


def load(folder: Path) -> Records:
    """The record "swing": t, theta [rad], omega. The derivative of theta is about 1.04 omega."""
    columns = read_columns(folder / "real_pend_h_1.csv")
    return {"swing": {name: numbers(columns, name) for name in ("t", "theta", "omega")}}
