"""What is repaired in battery files, with a note, and what is flagged; on small made-up files in NASA's layouts."""

from typing import Any

import numpy as np
import pytest
from support.nasa_files import log, operation, reference, table_rows, walk, write_csv, write_set5, write_set11
from twinfold_studies.nasa import load, to_dataset
from twinfold_studies.nasa.quality import FLAGS

GOOD = operation()
EMPTY: Any = np.empty((0, 0))


def messages(collection) -> list[str]:
    return [str(skipped) for skipped in collection.skipped]


# Repairs: noted, or refused with repair=False


def repaired(tmp_path, bad, note):
    """The discharge of a file with one fault that has a plain cause; refused where repairs are."""
    path = write_set5(tmp_path / "B0005.mat", [GOOD, bad])
    found = load(path, on_error="raise")
    assert len(found) == 2
    assert found["B0005/0"].notes == ()
    assert found["B0005/1"].notes[0].startswith(note)
    strict = load(path, repair=False)
    assert [discharge.name for discharge in strict] == ["B0005/0"]
    assert messages(strict)[0].startswith(f"B0005.mat, cell B0005, cycle 1: {note}")
    return found["B0005/1"]


def test_a_current_of_the_wrong_sign_in_set5(tmp_path):
    note = "the current has the sign of a charge (2 A), but the voltage falls from 4.20 to 2.60 V: sign reversed"
    turned = repaired(tmp_path, operation(Current_measured=log()["current"]), note)
    np.testing.assert_array_equal(turned.current, log()["current"])
    assert turned.clean


def test_a_current_of_the_wrong_sign_in_set11(tmp_path):
    steps = [reference(current=-np.ones(60)), *walk([2.0, 1.0], begin=9000.0)]
    steps = [each | {"current": -np.abs(each["current"])} for each in steps]
    found = load(write_set11(tmp_path / "RW9.mat", steps), on_error="raise")
    assert [discharge.name for discharge in found] == ["RW9/0", "RW9/walk0"]
    for discharge in found:
        assert "sign reversed" in discharge.notes[0]
        assert discharge.current.min() >= 0
        assert discharge.charge > 0
    assert found["RW9/0"].charge == pytest.approx(59 * 60 / 3600)


def test_temperature_in_kelvin(tmp_path):
    warm = log()["temperature"] + 273.15
    bad = operation(Temperature_measured=warm, ambient=297.15)
    found = repaired(tmp_path, bad, "the temperature is in kelvin (median 300.1): converted to deg C")
    np.testing.assert_allclose(found.temperature, log()["temperature"])
    assert found.ambient == pytest.approx(24.0)
    assert found.notes[1] == "the ambient temperature is in kelvin (297.15): converted to deg C"


def test_rows_of_the_same_time(tmp_path):
    time = log()["time"]
    time[30] = time[31]
    found = repaired(tmp_path, operation(Time=time), "1 rows have the same time as the next (Time): dropped")
    assert len(found.time) == 59
    assert (np.diff(found.time) > 0).all()
    np.testing.assert_array_equal(found.voltage, np.delete(log()["voltage"], 30))  # the later row stays


@pytest.mark.parametrize("missing", [None, EMPTY, np.full(60, np.nan)])
def test_a_missing_temperature_is_the_ambient(tmp_path, missing):
    path = write_set5(tmp_path / "B0005.mat", [operation(Temperature_measured=missing, ambient=4.0)])
    found = load(path, on_error="raise", repair=False)["B0005/0"]
    assert np.isnan(found.temperature).all()
    assert found.notes == ("temperature was not measured: the ambient, 4 deg C, is used instead",)
    run = to_dataset([found]).runs[0]
    assert run.w is not None
    np.testing.assert_array_equal(run.w[:, 1], 4.0)


def test_a_temperature_with_gaps_is_interpolated(tmp_path):
    gaps = log()["temperature"]
    gaps[20:30] = np.nan
    found = load(write_set5(tmp_path / "B0005.mat", [operation(Temperature_measured=gaps)]), on_error="raise")
    assert np.isnan(found["B0005/0"].temperature).sum() == 10
    np.testing.assert_allclose(found["B0005/0"].known_temperature, log()["temperature"])


def test_no_temperature_of_any_kind(tmp_path):
    rows = [row | {"temperature_measured_C": ""} for row in table_rows("B0005", 0)]
    found = load(write_csv(tmp_path / "log.csv", rows))
    with pytest.raises(ValueError, match="neither temperature nor ambient of B0005/0 is known"):
        to_dataset(found)


# Flags


@pytest.mark.parametrize(
    ("changes", "flag", "reason"),
    [
        ({"start": 4.0}, "partial_start", "starts at 4.000 V at rest, below 4.1 V: not fully charged"),
        ({"end": 3.0}, "above_cutoff", "the load ends at 3.00 V, 0.30 V above the cut-off of 2.7 V"),
        ({"tail": 0}, None, ""),
        ({"current": 0.5}, "low_capacity", "0.458 Ah (integrated), below 0.5 Ah"),
    ],
)
def test_flags_of_a_made_up_log(tmp_path, changes, flag, reason):
    series = log(**changes)
    bad = operation(capacity=EMPTY, Voltage_measured=series["voltage"], Current_measured=-series["current"])
    found = load(write_set5(tmp_path / "B0005.mat", [bad]))["B0005/0"]
    named = {each.name: each.reason for each in found.flags if not each.remark and each.name != "capacity_missing"}
    assert named == ({flag: reason} if flag else {})


def test_a_rising_voltage_and_a_dropout(tmp_path):
    voltage = log()["voltage"]
    voltage[20] += 0.1
    voltage[59] = 0.2
    found = load(write_set5(tmp_path / "B0005.mat", [operation(Voltage_measured=voltage)]))
    assert found.counts() == {
        "unloaded_start": 1,
        "recovery_tail": 1,
        "nonmonotonic_voltage": 1,
        "voltage_dropout": 1,
    }
    assert set(found.counts()) < set(FLAGS)
    reasons = found.table()[0]["reasons"]
    assert "rises 1 times by more than 5 mV under constant current, by at most 74 mV, first at row 20" in reasons
    assert "1 rows below 0.5 V, first row 59, lowest 0.20 V" in reasons


def test_a_square_wave_of_a_cell_that_is_not_nasas(tmp_path):
    series = log()
    current = series["current"] * (np.arange(60) % 2)
    found = load(write_set5(tmp_path / "mine.mat", [operation(Current_measured=-current)]))["mine/0"]
    assert [flag.name for flag in found.flags if not flag.remark] == ["square_wave"]
    assert (found.first, found.last) == (3, 55)
