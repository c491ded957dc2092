"""DFKI double pendulum, design C.0 (Wiebe et al. 2022): angles under motor torques, runs for identification.

500 Hz for 10 s; runs 12 and 13, with torques five times as large, 625 Hz for 6 s. Samples are slightly irregular. The
second angle is that of the elbow. The measured velocities have spikes.
"""

from pathlib import Path

import numpy as np

from twinfold_studies.real.table import Record, Records, numbers, read_columns

COLUMNS = {"q1": "q1_rad", "q2": "q2_rad", "dq1": "dq1_rad_s", "dq2": "dq2_rad_s", "tau1": "tau1_Nm", "tau2": "tau2_Nm"}


def load(folder: Path) -> Records:
    """The records "trajectory_00", ...: t [s], q1, q2 [rad], dq1, dq2 [rad/s], tau1, tau2 [Nm]."""
    columns = read_columns(folder / "sysid_design_C0.csv.gz")
    run, t = np.array(columns["run"]), numbers(columns, "t_s")
    values = {name: numbers(columns, column) for name, column in COLUMNS.items()}
    records: Records = {}
    for name in dict.fromkeys(columns["run"]):
        rows = np.flatnonzero(run == name)
        rows = rows[np.diff(t[rows], prepend=-np.inf) > 0]  # repeated times are left out
        records[name] = {"t": t[rows]} | {column: value[rows] for column, value in values.items()}
    return records


def resampled(record: Record, step: float) -> Record:
    """The record at equal times: angles and velocities interpolated, a torque as its mean up to the next time.

    The mean has the same impulse as the torque that acted.
    """
    t = record["t"]
    at = t[0] + step * np.arange(int((t[-1] - t[0]) / step + 1e-9))
    found = {"t": at} | {name: np.interp(at, t, record[name]) for name in ("q1", "q2", "dq1", "dq2")}
    for name in ("tau1", "tau2"):
        steps = np.diff(t)
        impulse = np.concatenate([[0.0], np.cumsum(0.5 * (record[name][1:] + record[name][:-1]) * steps)])
        found[name] = np.diff(np.interp(np.append(at, at[-1] + step), t, impulse)) / step
    return found
