"""Discharges as a `Dataset`: current and temperature in, voltage out."""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from twinfold.data import Dataset
from twinfold_studies.nasa.discharge import Discharge
from twinfold_studies.nasa.quality import DROPOUT

Rows = Literal["loaded", "start", "tail", "all"]
LATE = 0.02  # of an interval: the load changes at least so much after the row before it


def to_dataset(discharges: Iterable[Discharge], *, rows: Rows = "loaded") -> Dataset:
    """A run for each discharge, named as it is ("B0005/0"), in the group of its cell, from time 0 on.

    The inputs are samples: a twin holds them until the next one by default. Leave it so (`Twin(input_interpolation="hold")`) where
    the load is switched: square waves and random walks.

    **Arguments:**

    - `discharges`: those of a `Collection`, or any others.
    - `rows`: those from the first to the last under load (`"loaded"`), with those before it (`"start"`), with the
      recovery after it (`"tail"`), or all. Outside of the load the current is 0. No log of a cycle has a row for the
      moment at which the load comes on, or goes off and on again in a square wave: it is put in, without a voltage, one
      interval before the first row after it. (Logs of randomized usage begin anew with each step of the load.)

    **Returns:** inputs `current` [A, positive on discharge] and `temperature` [deg C; the ambient where it was not
    measured], output `voltage` [V; missing where a contact dropped out].

    **Raises:** `ValueError` that names file, cell and cycle of a discharge that cannot be a run.
    """
    if rows not in ("loaded", "start", "tail", "all"):
        raise ValueError(f'rows={rows!r}: give "loaded", "start", "tail" or "all".')
    discharges = list(discharges)
    times, outputs, inputs = [], [], []
    for discharge in discharges:
        used = _rows(discharge, rows)
        load = np.zeros_like(discharge.current)
        load[discharge.loaded] = discharge.current[discharge.loaded]
        time, voltage = discharge.time[used], discharge.voltage[used]
        w = np.stack([load, discharge.known_temperature], axis=1)[used]
        _check(discharge, time, w)
        voltage = np.where(voltage < DROPOUT, np.nan, voltage)
        if discharge.kind == "cycle":
            on = discharge.under_load[used.start : discharge.last + 1]
            time, voltage, w = _switched(np.flatnonzero(on[1:] != on[:-1]) + 1, time, voltage, w)
        times.append(time - time[0])
        outputs.append(voltage)
        inputs.append(w)
    return Dataset.from_arrays(
        times,
        outputs,
        inputs=inputs,
        names=[discharge.name for discharge in discharges],
        groups=[discharge.cell for discharge in discharges],
        output_names=["voltage"],
        input_names=["current", "temperature"],
    )


def _rows(discharge: Discharge, rows: Rows) -> slice:
    begin = 0 if rows in ("start", "all") else discharge.first
    ends = {"tail": discharge.tail.stop, "all": len(discharge.time)}
    return slice(begin, ends.get(rows, discharge.last + 1))


def _switched(
    changed: np.ndarray, time: np.ndarray, voltage: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With a row in front of each that `changed`, for the moment at which the load came on or went off.

    The logger starts anew with the load: in the logs at hand the interval in which it comes on is longer than the next
    one by some 0.7 s, whether rows are 9 or 18 s apart, and a square wave is read at the end of its half periods.
    """
    gap = time[changed] - time[changed - 1]
    regular = np.append(np.diff(time), np.inf)[changed]
    moment = time[changed] - np.minimum(regular, (1 - LATE) * gap)
    rows = np.stack([w[changed, 0], w[changed - 1, 1]], axis=1)
    return np.insert(time, changed, moment), np.insert(voltage, changed, np.nan), np.insert(w, changed, rows, axis=0)


def _check(discharge: Discharge, time: np.ndarray, inputs: np.ndarray) -> None:
    if len(time) < 2:
        raise ValueError(
            f"{discharge.where}: {discharge.name} has {len(time)} rows under load, and a run needs two; leave it out "
            "(Collection.select(clean=True) does)."
        )
    if np.isnan(inputs).any():
        raise ValueError(
            f"{discharge.where}: neither the temperature nor the ambient of {discharge.name} is known; give one with "
            "dataclasses.replace(discharge, ambient=...)."
        )
