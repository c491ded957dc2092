"""Drive cycles of a Panasonic NCR18650PF cell (P. Kollmeyer, University of Wisconsin-Madison, 2017) as runs.

Training cycles were thinned to one row a second: their current changes within it, so that the charge until the next row
is that of the mean current, and the drop over the resistor that of the current at the row itself. Runs therefore have
three inputs: the mean current until the next sample, the temperature, and the current at the sample (both currents > 0
on discharge).
"""

import functools
from pathlib import Path

import numpy as np

from twinfold.data import Dataset, Run
from twinfold.systems import OpenCircuit
from twinfold_studies.real.table import Record, numbers, read_columns

FOLDER = "panasonic_18650pf"
OUTPUTS, INPUTS = ("voltage", "temperature"), ("mean current", "temperature", "current")
TRAIN = ("Cycle_1", "Cycle_2", "Cycle_3", "Cycle_4", "NN")  # at 25 degrees Celsius
HELD_OUT = ("Cycle_3", "NN")  # of these, for the choice of a design
THERMOSTATS = {25: "25degC", 10: "10degC", 0: "0degC", -10: "n10degC", -20: "n20degC"}
RATE = 1.5  # s; rows that are farther apart have gaps between them
IDLE = 0.05  # A


def read_open_circuit(folder: Path) -> OpenCircuit:
    """The voltage at rest, from the discharge and charge at C/20."""
    columns = read_columns(folder / "C20_OCV_25degC.csv")
    time, current, voltage = (numbers(columns, name) for name in ("t_s", "I_A", "V"))
    return OpenCircuit.from_slow_cycle(time, current, voltage, discharge_sign=-1)


@functools.cache
def _drive_file(path: Path) -> dict[str, Record]:
    columns = read_columns(path)
    cycles = np.array(columns.pop("cycle"))
    table = {name: numbers(columns, name) for name in ("t_s", "V", "I_A", "I_mean_1s_A", "Ah", "T_cell_C")}
    return {str(name): {key: values[cycles == name] for key, values in table.items()} for name in dict.fromkeys(cycles)}


def read_seconds(folder: Path, celsius: int, cycle: str) -> Run:
    """A cycle with a row each second, from the last row at rest on."""
    record = _drive_file(folder / f"drive_{THERMOSTATS[celsius]}_1Hz.csv.gz")[cycle]
    first = max(int(np.flatnonzero(np.abs(record["I_A"]) > IDLE)[0]) - 1, 0)
    record = {name: values[first:] for name, values in record.items()}
    steps = np.diff(record["t_s"])
    counted = -3600 * np.diff(record["Ah"]) / steps
    mean = np.where(steps < RATE, -record["I_mean_1s_A"][1:], counted)
    return _run(f"{cycle} {celsius} C", record, mean)


def read_native(folder: Path, celsius: int, cycle: str) -> Run:
    """A cycle with its own ten rows a second."""
    columns = read_columns(folder / f"native10Hz_{THERMOSTATS[celsius]}_{cycle}.csv.gz")
    record = {name: numbers(columns, name) for name in ("t_s", "V", "I_A", "T_cell_C")}
    kept = np.concatenate([[True], np.diff(record["t_s"]) > 0])
    record = {name: values[kept] for name, values in record.items()}
    return _run(f"{cycle} {celsius} C", record, -(record["I_A"][1:] + record["I_A"][:-1]) / 2)


def _run(name: str, record: Record, mean: np.ndarray) -> Run:
    w = np.stack([np.append(mean, 0.0), record["T_cell_C"], -record["I_A"]], axis=1)
    return Run(name, record["t_s"] - record["t_s"][0], np.stack([record["V"], record["T_cell_C"]], axis=1), w)


def thinned(run: Run, every: int) -> Run:
    """Every so many samples; the mean current is that of the longer steps, so that the charge stays the same."""
    assert run.w is not None
    rows = np.arange(0, len(run.ts), every)
    charge = np.concatenate([[0.0], np.cumsum(run.w[:-1, 0] * np.diff(run.ts))])
    w = run.w[rows].copy()
    w[:-1, 0] = np.diff(charge[rows]) / np.diff(run.ts[rows])
    w[-1, 0] = 0.0
    return Run(run.name, run.ts[rows], run.y[rows], w)


def voltage_only(*runs: Run) -> Dataset:
    """Runs whose temperature is an input."""
    return Dataset(tuple(Run(run.name, run.ts, run.y[:, :1], run.w) for run in runs), OUTPUTS[:1], INPUTS)


def with_ambient(run: Run, celsius: float) -> Run:
    """A run whose second input is the temperature of the chamber."""
    assert run.w is not None
    w = run.w.copy()
    w[:, 1] = celsius
    return Run(run.name, run.ts, run.y, w)
