"""Discharges as a `Dataset`, with current and temperature as inputs and the voltage as output."""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from twinfold.data import Dataset
from twinfold_studies.nasa.discharge import Discharge
from twinfold_studies.nasa.quality import DROPOUT

Rows = Literal["loaded", "start", "tail", "all"]
MIN_DELAY = 0.02  # between the row before a switch of the load and the switch, relative to the interval


def to_dataset(discharges: Iterable[Discharge], *, rows: Rows = "loaded") -> Dataset:
    """A run for each discharge, with its name ("B0005/0") and the cell as its group, from time 0 on.

    Inputs are held between samples by default (`Twin(input_interpolation="hold")`); keep that for switched loads, such
    as square waves and random walks.

    **Arguments:**

    - `discharges`: a `Collection`, or other discharges.
    - `rows`: from the first to the last under load (`"loaded"`), also those before the load (`"start"`) or the recovery
      after it (`"tail"`), or all. Without load the current is 0. Logs of cycles have no row at the moment at which the
      load is switched: it is inserted, without a voltage, one interval before the next row. (Logs of randomized usage
      start a new step at each change of load.)

    **Returns:** inputs `current` [A, positive on discharge] and `temperature` [deg C; the ambient if not measured],
    output `voltage` [V; missing at dropouts].

    **Raises:** `ValueError` that names file, cell and cycle of an unusable discharge.
    """
    if rows not in ("loaded", "start", "tail", "all"):
        raise ValueError(f'rows={rows!r}: choose "loaded", "start", "tail" or "all".')
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
            time, voltage, w = _with_switches(np.flatnonzero(on[1:] != on[:-1]) + 1, time, voltage, w)
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


def _with_switches(
    changed: np.ndarray, time: np.ndarray, voltage: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Insert a row before each of the rows `changed`, for the moment at which the load was switched.

    The logger restarts with the load: in NASA's logs the interval in which the load is switched on is about 0.7 s
    longer than the next one, for rows 9 and 18 s apart; square waves are sampled at the end of their half periods.
    """
    gap = time[changed] - time[changed - 1]
    regular = np.append(np.diff(time), np.inf)[changed]
    moment = time[changed] - np.minimum(regular, (1 - MIN_DELAY) * gap)
    rows = np.stack([w[changed, 0], w[changed - 1, 1]], axis=1)
    return np.insert(time, changed, moment), np.insert(voltage, changed, np.nan), np.insert(w, changed, rows, axis=0)


def _check(discharge: Discharge, time: np.ndarray, inputs: np.ndarray) -> None:
    if len(time) < 2:
        raise ValueError(
            f"{discharge.where}: {discharge.name} has {len(time)} rows under load, but a run needs two; exclude it, "
            "for example with Collection.select(clean=True)."
        )
    if np.isnan(inputs).any():
        raise ValueError(
            f"{discharge.where}: neither temperature nor ambient of {discharge.name} is known; set it with "
            "dataclasses.replace(discharge, ambient=...)."
        )
