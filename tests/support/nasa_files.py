"""Small files in the layouts of NASA's, written with SciPy and csv: no measurement is in them."""

import csv
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

DATE = np.array([2008.0, 4.0, 2.0, 15.0, 25.0, 41.593])


def log(current=2.0, rows=60, step=60.0, lead=2, tail=3, start=4.2, end=2.6):
    """A discharge with two rows before the load and three after it: time, voltage, current (> 0), temperature."""
    time = step * np.arange(rows)
    load = np.zeros(rows)
    load[lead : rows - tail] = current
    voltage = np.full(rows, start)
    voltage[lead : rows - tail] = np.linspace(start - 0.2, end, rows - tail - lead)
    voltage[rows - tail :] = np.linspace(end + 0.3, end + 0.5, tail)
    return {"time": time, "voltage": voltage, "current": load, "temperature": np.linspace(24.0, 30.0, rows)}


def operation(kind: str = "discharge", ambient: float = 24.0, capacity: Any = 1.8, **changes: Any):
    """An operation of set #5; `changes` replaces fields of its data, None removes one."""
    from_log = log()
    data = {
        "Voltage_measured": from_log["voltage"],
        "Current_measured": -from_log["current"],
        "Temperature_measured": from_log["temperature"],
        "Current_load": from_log["current"],
        "Voltage_load": from_log["voltage"],
        "Time": from_log["time"],
        "Capacity": capacity,
    } | changes
    data = {name: value for name, value in data.items() if value is not None}
    return {"type": kind, "ambient_temperature": ambient, "time": DATE, "data": data}


def write_set5(path: Path, operations, cell: str | None = None) -> Path:
    """A .mat file in the layout of set #5."""
    return _write(path, {cell or path.stem: {"cycle": _struct_array(operations)}})


def step(comment, series, begin=0.0, **changes):
    """A step of set #11 that begins at `begin` on the clock of the experiment."""
    fields = {
        "comment": comment,
        "type": {"r": "R", "d": "D", "c": "C"}[comment.removeprefix("reference ")[0]],
        "relativeTime": series["time"],
        "time": series["time"] + begin,
        "voltage": series["voltage"],
        "current": series["current"],
        "temperature": series["temperature"],
        "date": "14-Nov-2014 20:13:31",
    } | changes
    return {name: value for name, value in fields.items() if value is not None}


def reference(**changes):
    """A 1 A reference discharge that begins under load, as those of set #11 do."""
    return step("reference discharge", log(current=1.0, lead=0, tail=0, end=3.2, start=4.28), **changes)


def walk(loads, begin, samples=5):
    """Steps of a random walk: a rest of two rows before each load; the voltage falls all the way."""
    steps, clock, voltage = [], begin, 4.2
    for amperes in loads:
        rest = {
            "time": np.array([0.01, 0.5]),
            "voltage": np.array([voltage, voltage]),
            "current": np.zeros(2),
            "temperature": np.full(2, 38.0),
        }
        steps.append(step("rest (random walk)", rest, begin=clock))
        clock += 0.5
        loaded = {
            "time": 0.04 + 60.0 * np.arange(samples),
            "voltage": voltage - 0.05 * amperes - 0.01 * np.arange(samples),
            "current": np.full(samples, float(amperes)),
            "temperature": np.full(samples, 39.0),
        }
        steps.append(step("discharge (random walk)", loaded, begin=clock))
        clock += loaded["time"][-1]
        voltage -= 0.05
    return steps


def write_set11(path: Path, steps) -> Path:
    """A .mat file in the layout of set #11."""
    return _write(path, {"data": {"step": _struct_array(steps), "procedure": "none", "description": "synthetic"}})


def write_csv(path: Path, rows) -> Path:
    """A CSV file of rows given as dictionaries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def table_rows(cell, index, series=None, **changes):
    """The rows of one discharge in the table of set #5."""
    series = log() if series is None else series
    return [
        {
            "battery": cell,
            "discharge_index": index,
            "time_s": time,
            "voltage_measured_V": voltage,
            "current_measured_A": -current,
            "temperature_measured_C": temperature,
        }
        | changes
        for time, voltage, current, temperature in zip(*series.values(), strict=True)
    ]


def zipped(**contents) -> bytes:
    """An archive of files by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def archives_in_an_archive(mat: bytes) -> bytes:
    """As NASA's set #5: an archive of archives, with a read-me in each."""
    inner = {"B0005.mat": mat, "README.txt": "read me"}
    return zipped(**{"5. Battery Data Set/1. BatteryAgingARC.zip": zipped(**inner), "__MACOSX/._B0005.mat": b"junk"})


def _struct_array(items) -> np.ndarray:
    names = list(dict.fromkeys(name for item in items for name in item))
    array = np.empty(len(items), dtype=[(name, object) for name in names])
    for row, item in enumerate(items):
        for name in names:
            array[row][name] = item.get(name, np.empty((0, 0)))
    return array


def _write(path: Path, contents) -> Path:
    import scipy.io

    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, contents)
    return path
