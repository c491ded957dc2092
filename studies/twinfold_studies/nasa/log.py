"""From the log in a file to a `Discharge`: checked, repaired where the cause is clear, refused otherwise."""

import dataclasses
from datetime import datetime
from typing import Any

import numpy as np

from twinfold_studies.nasa.discharge import MIN_LOAD, Discharge, Kind
from twinfold_studies.nasa.quality import quality_flags

ZERO_CELSIUS = 273.15
MIN_KELVIN = 200.0  # a higher value must be in kelvin: no cell is that hot in deg C


class Unusable(ValueError):
    """A discharge that cannot be used; the message is the reason, without file, cell and cycle."""


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """One unchecked discharge of a file; the fields are those of `Discharge`.

    **Arguments:** `series`, the arrays by their names in the file, in the order time, voltage, current and (if present)
    temperature; `sign` of a discharge current in the file.
    """

    cell: str
    index: int
    kind: Kind
    series: dict[str, Any]
    sign: int
    ambient: float
    published: float
    start: datetime | None
    file: str
    cycle: int | None


def to_discharge(log: Log, *, repair: bool) -> Discharge:
    """The discharge of a log, with its flags.

    **Arguments:** `log`; `repair`: whether to reverse a current of the wrong sign, convert kelvin and drop rows of the
    same time (with a note), or to refuse these logs.

    **Raises:** `Unusable`, with the reason.
    """
    names, arrays = list(log.series), [_numbers(name, values) for name, values in log.series.items()]
    _check_lengths(names, arrays)
    for position, (name, array) in enumerate(zip(names, arrays, strict=True)):
        # A temperature may be missing (NaN): the ambient is used instead.
        bad = np.isinf(array) if position == 3 else ~np.isfinite(array)
        if bad.any():
            raise Unusable(f"{name} is {array[bad][0]} in row {int(bad.argmax())}")
    time, voltage, current = arrays[0], arrays[1], log.sign * arrays[2]
    temperature = arrays[3] if len(arrays) > 3 else np.full(len(time), np.nan)
    notes: list[str] = []
    keep = _distinct_times(names[0], time, notes)
    time, voltage, current, temperature = time[keep], voltage[keep], current[keep], temperature[keep]
    current = _positive_on_discharge(current, voltage, notes)
    temperature, ambient = _celsius(temperature, log.ambient, notes)
    if notes and not repair:
        raise Unusable("; ".join(notes) + ". Pass repair=True to apply these repairs")
    if np.isnan(temperature).all():  # not a repair
        instead = "" if np.isnan(ambient) else f": the ambient, {ambient:g} deg C, is used instead"
        notes.append(f"temperature was not measured{instead}")
    discharge = Discharge(
        cell=log.cell,
        index=log.index,
        kind=log.kind,
        time=time,
        voltage=voltage,
        current=current,
        temperature=temperature,
        ambient=ambient,
        published=log.published,
        start=log.start,
        file=log.file,
        cycle=log.cycle,
        notes=tuple(notes),
    )
    return dataclasses.replace(discharge, flags=quality_flags(discharge))


def _numbers(name: str, values: Any) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise Unusable(f"{name} contains {array.dtype.name}, not numbers")
    return np.array(array.ravel(), np.float64)


def _check_lengths(names: list[str], arrays: list[np.ndarray]) -> None:
    lengths = {name: len(array) for name, array in zip(names, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise Unusable("truncated: " + ", ".join(f"{name} has {length} values" for name, length in lengths.items()))
    rows = len(arrays[0])
    if rows < 2:
        raise Unusable(f"{'empty: no rows' if rows == 0 else 'truncated: one row'}; a discharge has at least two")


def _distinct_times(name: str, time: np.ndarray, notes: list[str]) -> np.ndarray:
    steps = np.diff(time)
    if (steps < 0).any():
        row = int(np.argmax(steps < 0))
        raise Unusable(f"{name} goes backwards: {time[row + 1]:g} s in row {row + 1} after {time[row]:g} s")
    keep = np.append(steps > 0, True)  # of rows at the same time keep the last: after a change of load, the new one
    if not keep.all():
        notes.append(f"{np.count_nonzero(~keep)} rows have the same time as the next ({name}): dropped")
        if np.count_nonzero(keep) < 2:
            raise Unusable(f"{name} is {time[0]:g} s in every row")
    return keep


def _positive_on_discharge(current: np.ndarray, voltage: np.ndarray, notes: list[str]) -> np.ndarray:
    rows = np.flatnonzero(np.abs(current) > MIN_LOAD)
    if len(rows) == 0 or np.median(current[rows]) > 0:
        return current
    before, after = voltage[max(rows[0] - 1, 0)], voltage[rows[-1]]
    typical = f"{np.median(np.abs(current[rows])):.3g} A"
    if after >= before:
        raise Unusable(
            f"the cell is charged ({typical}, voltage rises from {before:.2f} to {after:.2f} V): not a discharge"
        )
    notes.append(
        f"the current has the sign of a charge ({typical}), but the voltage falls from {before:.2f} to "
        f"{after:.2f} V: sign reversed"
    )
    return -current


def _celsius(temperature: np.ndarray, ambient: float, notes: list[str]) -> tuple[np.ndarray, float]:
    measured = temperature[~np.isnan(temperature)]
    if len(measured) and np.median(measured) > MIN_KELVIN:
        notes.append(f"the temperature is in kelvin (median {np.median(measured):.1f}): converted to deg C")
        temperature = temperature - ZERO_CELSIUS
    if ambient > MIN_KELVIN:
        notes.append(f"the ambient temperature is in kelvin ({ambient:g}): converted to deg C")
        ambient = ambient - ZERO_CELSIUS
    return temperature, ambient
