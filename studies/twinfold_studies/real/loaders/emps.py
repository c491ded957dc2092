"""EMPS, a positioning drive (Janot, Gautier, Brunot 2019): position under a voltage, official records train and test.

1 kHz, 24.8 s each. Friction is unknown; the force is 35.15065188248547 N/V times the voltage.
"""

from pathlib import Path

import numpy as np

from twinfold_studies.real.table import Records, numbers, read_columns


def load(folder: Path, *, every: int = 1) -> Records:
    """The records "train" and "test": t [s], voltage [V], position [m].

    **Arguments:** `folder` of the set; `every`: keep one sample in so many. The voltage is then its mean up to the next
    sample that is kept, which has the same momentum as the voltage that acted.
    """
    columns = read_columns(folder / "emps.csv.gz")
    run, t, u, q = np.array(columns["run"]), *(numbers(columns, name) for name in ("t_s", "u_V", "q_meas_m"))
    records = {}
    for name in ("train", "test"):
        rows = np.flatnonzero(run == name)
        rows = rows[: len(rows) // every * every]
        mean = u[rows].reshape(-1, every).mean(1)
        records[name] = {"t": t[rows[::every]], "voltage": mean, "position": q[rows[::every]]}
    return records
