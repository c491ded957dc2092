"""Schmidt and Lipson (Science 324, 2009): camera recordings of a pendulum and of a double pendulum.

The pendulum: 556 samples of one swing with friction, six in a unit of time (not certainly a second), with a few gaps.
The double pendulum: two trials at about 100 Hz with dozens of gaps; the second one turns over again and again.
"""

from pathlib import Path

import numpy as np

from twinfold_studies.real.table import Records, numbers, read_columns


def load(folder: Path) -> Records:
    """The record "swing": t, theta [rad], omega. The derivative of theta is about 1.04 omega."""
    columns = read_columns(folder / "real_pend_h_1.csv")
    return {"swing": {name: numbers(columns, name) for name in ("t", "theta", "omega")}}


def load_double(folder: Path) -> Records:
    """The records "trial-0" and "trial-1": t [s], theta1, theta2 [rad] from the vertical, omega1, omega2 [rad/s]."""
    columns = read_columns(folder / "real_double_pend_h_1.csv")
    trial = numbers(columns, "trial")
    names = {"t": "t_s"} | {name: name for name in ("theta1", "theta2", "omega1", "omega2")}
    return {
        f"trial-{int(each)}": {name: numbers(columns, column)[trial == each] for name, column in names.items()}
        for each in np.unique(trial)
    }
