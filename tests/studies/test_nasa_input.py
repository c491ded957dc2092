"""Layouts, faults and repairs of battery files, on small files written in NASA's layouts: nothing here was measured.

No genuine file of set #11 is at hand: its reader is tested on the layout that NASA documents, written with SciPy.
"""

from datetime import datetime
from typing import Any

import numpy as np
import pytest
from support.nasa_files import log, operation, reference, step, table_rows, walk, write_csv, write_set5, write_set11
from twinfold_studies.nasa import load, to_dataset

GOOD = operation()
EMPTY: Any = np.empty((0, 0))
NO_TABLE = "not readable as a table of discharges:"


def messages(collection) -> list[str]:
    return [str(skipped) for skipped in collection.skipped]


# Layouts


def test_set5_layout(tmp_path):
    charge = operation("charge")
    impedance = {"type": "impedance", "ambient_temperature": 24.0, "time": GOOD["time"], "data": {"Re": 0.05}}
    path = write_set5(tmp_path / "B0005.mat", [charge, GOOD, impedance, charge, operation(capacity=EMPTY)])
    found = load(path, on_error="raise")
    assert [discharge.name for discharge in found] == ["B0005/0", "B0005/1"]
    first, second = found
    assert (first.cycle, second.cycle) == (1, 4)
    assert first.start == datetime(2008, 4, 2, 15, 25, 41, 593000)
    np.testing.assert_array_equal(first.current, log()["current"])
    # 55 rows at 2 A and 60 s, and half a step at either end.
    assert first.charge == pytest.approx(2.0 * 55 * 60 / 3600)
    assert (first.first, first.last, first.clean) == (2, 56, True)
    assert np.isnan(second.published)
    assert second.capacity == second.charge
    assert [flag.name for flag in second.flags if not flag.remark] == ["capacity_missing"]


def test_a_file_with_a_single_operation(tmp_path):
    assert len(load(write_set5(tmp_path / "B0006.mat", [GOOD]))) == 1


def test_set11_layout(tmp_path):
    charge = step("charge (after random walk discharge)", log(current=-2.0, start=3.5, end=4.2))
    path = write_set11(
        tmp_path / "RW26.mat",
        [
            step("reference charge", log(current=-2.0, start=3.5, end=4.2)),
            reference(date="14-Nov-2014 20:13:31"),
            charge,
            *walk([3.5, 1.0, 4.5], begin=9000.0),
            charge,
            *walk([2.0], begin=20000.0),
            step("rest post random walk discharge", log(current=0.0), begin=21000.0),
            reference(temperature=None),
        ],
    )
    found = load(path, on_error="raise")
    assert [discharge.name for discharge in found] == ["RW26/0", "RW26/1", "RW26/walk0", "RW26/walk1"]
    assert [discharge.cycle for discharge in found] == [1, 13, 3, 10]
    first, second, long, short = found
    assert first.start == datetime(2014, 11, 14, 20, 13, 31)
    assert (first.current == 1.0).all()
    assert (first.ambient, first.clean, np.isnan(first.published)) == (40.0, True, True)
    assert np.isnan(second.temperature).all()
    assert (second.known_temperature == 40.0).all()
    # The clock of the experiment, from the first row of the walk on.
    assert (len(long.time), len(short.time)) == (21, 7)
    np.testing.assert_allclose(long.time[:4], [0.0, 0.49, 0.53, 60.53])
    assert (np.diff(long.time) > 0).all()
    assert sorted(set(long.current)) == [0.0, 1.0, 3.5, 4.5]
    assert not long.has("square_wave")
    assert not long.has("nonmonotonic_voltage")
    assert to_dataset(found).groups == ("RW26",) * 4


def test_tables_are_known_by_their_columns(tmp_path):
    write_csv(tmp_path / "any_name.csv", [*table_rows("B0005", 0), *table_rows("B0005", 7)])
    write_csv(
        tmp_path / "cycles.csv",
        [
            {
                "battery": "B0005",
                "discharge_index": 7,
                "mat_cycle_index": 20,
                "start_time": "2008-04-02T15:25:41.593",
                "ambient_temperature_C": 24,
                "capacity_Ah": 1.75,
                "flags": "no_load",
            }
        ],
    )
    first, second = load(tmp_path, on_error="raise")
    assert (first.index, first.cycle, first.has("capacity_missing")) == (0, None, True)
    assert (second.index, second.cycle, second.published, second.ambient) == (7, 20, 1.75, 24.0)
    assert second.clean  # whatever the table says
    np.testing.assert_array_equal(second.voltage, log()["voltage"])


def test_a_cell_comes_from_its_fullest_file(tmp_path):
    write_set5(tmp_path / "raw" / "B0005.mat", [GOOD, GOOD, GOOD])
    write_set5(tmp_path / "raw" / "B0005_part.mat", [GOOD], cell="B0005")
    write_csv(tmp_path / "discharge_first2.csv", [*table_rows("B0005", 0), *table_rows("B0006", 0)])
    found = load(tmp_path, on_error="raise")
    assert [(discharge.name, discharge.file) for discharge in found] == [
        ("B0005/0", "B0005.mat"),
        ("B0005/1", "B0005.mat"),
        ("B0005/2", "B0005.mat"),
        ("B0006/0", "discharge_first2.csv"),
    ]
    assert messages(found) == [
        "B0005_part.mat, cell B0005: the cell was already read from another file",
        "discharge_first2.csv, cell B0005: the cell was already read from another file",
    ]


def test_the_tables_that_hold_one_another(tmp_path):
    for name, indices in (("discharge_first2.csv", (0, 1)), ("discharge_selected.csv", (0, 1, 50))):
        write_csv(tmp_path / name, [row for index in indices for row in table_rows("B0005", index)])
    assert [discharge.index for discharge in load(tmp_path)] == [0, 1, 50]


# Faults: each is named, and the rest is read

FAULTS = {
    "arrays of different length": (operation(Voltage_measured=log()["voltage"][:40]), "truncated: Time has 60 values"),
    "empty": (
        operation(Time=EMPTY, Voltage_measured=EMPTY, Current_measured=EMPTY),
        "truncated: Time has 0 values, Voltage_measured has 0 values, Current_measured has 0 values, Temp",
    ),
    "nothing at all": (
        operation(Time=EMPTY, Voltage_measured=EMPTY, Current_measured=EMPTY, Temperature_measured=EMPTY),
        "empty: no rows",
    ),
    "one row": (
        operation(Time=0.0, Voltage_measured=4.2, Current_measured=0.0, Temperature_measured=24.0),
        "truncated: one row",
    ),
    "a field is missing": (operation(Current_measured=None), "the fields Time, Voltage_measured"),
    "text": (operation(Voltage_measured="4.2"), "Voltage_measured contains str"),
    "not a number": (
        operation(Voltage_measured=np.where(np.arange(60) == 7, np.nan, log()["voltage"])),
        "Voltage_measured is nan in row 7",
    ),
    "time goes backwards": (
        operation(Time=np.where(np.arange(60) == 10, 5.0, log()["time"])),
        "Time goes backwards: 5 s in row 10 after 540 s",
    ),
    "a charge": (
        operation(Current_measured=log()["current"], Voltage_measured=log(start=3.0, end=4.2)["voltage"]),
        "the cell is charged (2 A, voltage rises from 3.00 to 4.20 V): not a discharge",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_cycle_is_named_and_skipped_or_refused(tmp_path, fault):
    bad, reason = FAULTS[fault]
    path = write_set5(tmp_path / "B0018.mat", [operation("charge"), GOOD, bad, GOOD])
    found = load(path)
    assert [discharge.name for discharge in found] == ["B0018/0", "B0018/2"]  # the count goes on over what is skipped
    assert len(found.skipped) == 1
    assert messages(found)[0].startswith(f"B0018.mat, cell B0018, cycle 2: {reason}")
    assert (found.skipped[0].file, found.skipped[0].cell, found.skipped[0].cycle) == ("B0018.mat", "B0018", 2)
    with pytest.raises(ValueError, match=r'B0018\.mat, cell B0018, cycle 2: .*Pass on_error="skip"'):
        load(path, on_error="raise")


def test_a_faulty_step_of_a_walk(tmp_path):
    steps = walk([2.0, 1.0], begin=0.0)
    steps[3] = steps[3] | {"voltage": steps[3]["voltage"][:2]}
    found = load(write_set11(tmp_path / "RW3.mat", [reference(), *steps]))
    assert [discharge.name for discharge in found] == ["RW3/0"]
    assert messages(found) == [
        "RW3.mat, cell RW3, cycle 4: truncated: time has 5 values, voltage has 2 values, current has 5 values, "
        "temperature has 5 values"
    ]


def test_a_faulty_discharge_of_a_table_without_cycle_numbers(tmp_path):
    backwards = table_rows("B0005", 1)
    backwards[3]["time_s"] = 1.0
    found = load(write_csv(tmp_path / "log.csv", [*table_rows("B0005", 0), *backwards]))
    assert len(found) == 1
    assert messages(found) == ["log.csv, cell B0005: cycle 1: time_s goes backwards: 1 s in row 3 after 120 s"]


def damaged(folder):
    """Files that cannot be read, by name, with what is said of each."""
    import scipy.io

    write_set5(folder / "B0006.mat", [GOOD] * 20)
    whole = write_set5(folder / "B0007.mat", [GOOD] * 20).read_bytes()
    (folder / "B0007.mat").write_bytes(whole[: len(whole) // 2])
    (folder / "B0018.mat").write_bytes(b"")
    (folder / "B0025.mat").write_text("<html>not found</html>" * 20)
    scipy.io.savemat(folder / "B0026.mat", {"x": np.arange(3.0), "y": {"z": 1.0}})
    (folder / "B0027.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\0" * 200)
    rows = table_rows("B0028", 0)
    write_csv(folder / "no_voltage.csv", [{n: v for n, v in row.items() if n[0] != "v"} for row in rows])
    rows[5]["current_measured_A"] = "two"
    write_csv(folder / "text.csv", rows)
    (folder / "short.csv").write_text("battery,discharge_index,time_s,voltage_measured_V,current_measured_A\nB0029,0\n")
    (folder / "other.csv").write_text("a,b\n1,2\n")  # no log, and nobody's business
    return {
        "B0007.mat": "not readable as a MATLAB file, possibly truncated",
        "B0018.mat": "not readable as a MATLAB file, possibly truncated",
        "B0025.mat": "not readable as a MATLAB file, possibly truncated",
        "B0026.mat": "unknown layout: it contains x, y, but neither B00xx.cycle (set #5) nor data.step (set #11)",
        "B0027.mat": "a MATLAB 7.3 file (HDF5); save it with -v7",
        "no_voltage.csv": f"{NO_TABLE} required columns are missing: voltage_measured_V",
        "short.csv": f"{NO_TABLE} line 2 and the header have different numbers of fields",
        "text.csv": f"{NO_TABLE} column current_measured_A: could not convert string to float",
    }


def test_files_that_cannot_be_read(tmp_path):
    said = damaged(tmp_path)
    found = load(tmp_path)
    assert found.cells == ("B0006",)
    assert len(found) == 20
    assert {skipped.file for skipped in found.skipped} == set(said)
    for skipped in found.skipped:
        assert str(skipped).startswith(f"{skipped.file}: {said[skipped.file]}")
    for name in said:
        with pytest.raises(ValueError, match=name):
            load(tmp_path / name, on_error="raise")


def test_a_fault_is_said_once(tmp_path):
    damaged(tmp_path)
    with pytest.raises(ValueError, match=r"^no_voltage\.csv: not readable as a table of discharges: required columns"):
        load(tmp_path / "no_voltage.csv", on_error="raise")


def test_a_parquet_file_that_is_none(tmp_path):
    (tmp_path / "discharge_all.parquet").write_bytes(b"PAR1 and no more")
    assert messages(load(tmp_path))[0].startswith(f"discharge_all.parquet: {NO_TABLE}")


def test_a_cell_that_never_discharges(tmp_path):
    write_set5(tmp_path / "B0005.mat", [operation("charge")] * 3 + [operation("impedance")])
    write_set5(tmp_path / "B0006.mat", [GOOD])
    write_set5(tmp_path / "B0007.mat", [operation(Current_measured=np.full(60, -0.004))] * 2)
    write_set11(tmp_path / "RW1.mat", [step("reference charge", log(current=-2.0, start=3.5, end=4.2))])
    found = load(tmp_path)
    assert messages(found) == [
        "B0005.mat, cell B0005: the cell is never discharged; its operations: 3 charge, 1 impedance",
        "RW1.mat, cell RW1: the cell is never discharged; its steps: 1 reference charge",
        "B0007.mat, cell B0007: the cell is never discharged: no load in any of 2 logs",
    ]
    assert [discharge.name for discharge in found if not discharge.has("no_load")] == ["B0006/0"]
    assert found["B0007/0"].flags[0].reason == "no current above 0.1 A in 60 rows (highest 0.004 A)"
    with pytest.raises(ValueError, match="cell B0005: the cell is never discharged"):
        load(tmp_path, on_error="raise")


def test_nothing_to_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"twinfold data nasa-battery --from PATH\|URL"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ValueError, match="neither a folder nor a"):
        load(tmp_path / "notes.txt")
