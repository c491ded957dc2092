"""NASA's genuine battery files: what is read, flagged and made into runs, against published and counted numbers."""

import csv
import os
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from twinfold_studies.nasa import FLAGS, load, to_dataset

FOLDER = Path(os.environ.get("TWINFOLD_DATA", "")) / "nasa_battery"
pytestmark = pytest.mark.skipif(
    not ("TWINFOLD_DATA" in os.environ and FOLDER.is_dir()),
    reason="needs NASA's files: set TWINFOLD_DATA to a folder that holds nasa_battery",
)

# The names that the table beside the data has for what we compute.
NAMES = {
    "starts_below_4.1V": "partial_start",
    "square_wave_load": "square_wave",
    "nonmonotonic_V": "nonmonotonic_voltage",
    "above_cutoff_at_end": "above_cutoff",
    "voltage_dropout": "voltage_dropout",
    "capacity<0.5Ah": "low_capacity",
    "no_load": "no_load",
    "capacity_missing": "capacity_missing",
}


@pytest.fixture(scope="module")
def everything():
    return load(FOLDER, on_error="raise", repair=False)  # nothing in it is unusable, or needs a repair


@pytest.fixture(scope="module")
def genuine():
    return load(FOLDER / "raw")


@pytest.fixture(scope="module")
def described():
    with (FOLDER / "cycles.csv").open(newline="") as file:
        return {f"{row['battery']}/{row['discharge_index']}": row for row in csv.DictReader(file)}


def defects(discharge) -> set[str]:
    return {flag.name for flag in discharge.flags if not flag.remark}


def test_the_first_discharge_of_b0005(everything):
    first = everything["B0005/0"]
    assert (first.kind, first.index, first.cycle, len(first.time)) == ("cycle", 0, 1, 197)
    assert (first.first, first.last) == (2, 179)
    assert (first.loaded, first.tail) == (slice(2, 180), slice(180, 197))
    assert first.start == datetime(2008, 4, 2, 15, 25, 41, 593000)
    assert first.ambient == 24
    assert first.published == pytest.approx(1.8565, abs=5e-5)
    assert first.charge == pytest.approx(1.86202, abs=5e-6)
    assert first.capacity == first.published
    assert first.load_current == pytest.approx(2.0126, abs=5e-5)
    assert first.rest_voltage == pytest.approx(4.190749, abs=1e-6)
    assert first.end_voltage == pytest.approx(first.voltage[:180].min())
    assert first.end_voltage < 2.7  # NASA's cut-off for this cell
    assert first.clean
    assert [flag.name for flag in first.flags] == ["unloaded_start", "recovery_tail"]
    assert first.flags[1].reason.startswith("17 rows after the load")


def test_load_rows_and_charge_of_every_discharge(everything, described):
    cycles = everything.select(kind="cycle")
    assert len(cycles) == len(described) == 2514
    for discharge in cycles:
        row = described[discharge.name]
        assert len(discharge.time) == int(row["n_rows"])
        assert discharge.cycle == int(row["mat_cycle_index"])
        if discharge.has("no_load"):
            assert row["load_first_row"] == "-1"
            continue
        assert discharge.first == int(row["load_first_row"])
        assert discharge.last == int(row["load_last_row"])
        assert discharge.charge == pytest.approx(float(row["integrated_Ah"]), abs=1e-5)


def test_our_flags_are_those_of_the_table_for_all_2514_discharges(everything, described):
    """No difference is left; the flags of the table are not read by the library."""
    different = {
        discharge.name
        for discharge in everything.select(kind="cycle")
        if defects(discharge) != {NAMES[name] for name in described[discharge.name]["flags"].split(";") if name}
    }
    assert different == set()
    counted = Counter(name for discharge in everything.select(kind="cycle") for name in defects(discharge))
    assert counted == {
        "low_capacity": 224,
        "nonmonotonic_voltage": 115,
        "square_wave": 112,
        "partial_start": 31,
        "no_load": 25,
        "capacity_missing": 25,
        "above_cutoff": 19,
        "voltage_dropout": 4,
    }
    assert sum(discharge.clean for discharge in everything.select(kind="cycle")) == 2077


def test_36_of_the_62_first_two_cycles_are_clean(everything):
    # Of all 34 cells 42 of 68; B0007, B0030 and B0048, not in this folder, have two clean ones each.
    first_two = everything.select(kind="cycle", first=2)
    assert len(first_two) == 62
    clean = first_two.select(clean=True)
    assert (len(clean), len(clean.cells)) == (36, 25)


def test_square_waves_are_seen_in_the_current_alone(everything):
    waves = everything.select(flags=["square_wave"])
    assert waves.cells == ("B0025", "B0026", "B0027", "B0028")
    assert len(waves) == sum(discharge.cell in waves.cells for discharge in everything) == 112
    assert len(everything.select(flags=["square_wave"], clean=True, allow=["square_wave"])) == 111  # B0026/5: partial
    assert everything["B0028/0"].load_current == pytest.approx(2.0, abs=0.01)  # not 4 A, as the read-me says
    reason = next(flag.reason for flag in everything["B0025/0"].flags if flag.name == "square_wave")
    assert reason == "338 switches, every 10 s, between 0 and 4.03 A"


def test_every_flag_has_a_reason_with_numbers(everything):
    for row in everything.table():
        for part in filter(None, row["reasons"].split("; ")):
            name, _, reason = part.partition(": ")
            assert name in FLAGS
            assert name == "capacity_missing" or any(character.isdigit() for character in reason)
    by_name = {f"{row['cell']}/{row['index']}": row for row in everything.table()}
    assert "the load ends at 3.55 V, 1.35 V above the cut-off of 2.2 V" in by_name["B0050/4"]["reasons"]
    assert "0.35 V" in by_name["B0050/4"]["reasons"]
    assert "starts at 3.987 V at rest, below 4.1 V" in by_name["B0026/5"]["reasons"]


@pytest.mark.parametrize(("cell", "count"), [("B0025", 28), ("B0032", 40), ("B0047", 72), ("B0049", 25)])
def test_a_genuine_mat_file_and_the_table_give_the_same_discharges(genuine, everything, cell, count):
    ours, table = genuine.select(cells=[cell]), everything.select(cells=[cell])
    assert len(ours) == len(table) == count
    for a, b in zip(ours, table, strict=True):
        assert (a.name, a.cycle, a.start, a.ambient) == (b.name, b.cycle, b.start, b.ambient)
        assert (a.first, a.last) == (b.first, b.last)
        assert a.published == b.published
        assert defects(a) == defects(b)
        for channel in ("time", "voltage", "current", "temperature"):
            # The table keeps 32 bits: equal to the last of them.
            np.testing.assert_array_equal(getattr(a, channel).astype(np.float32), getattr(b, channel))


def test_the_other_tables_agree_within_their_rounding(everything, genuine):
    for name in ("discharge_first2.csv", "discharge_selected.csv"):
        table = load(FOLDER / name)
        assert {discharge.cell for discharge in table} == set(everything.select(kind="cycle").cells)
        for discharge in table:
            full = everything[discharge.name]
            assert defects(discharge) == defects(full)
            assert (discharge.first, discharge.last) == (full.first, full.last)
            assert discharge.published == pytest.approx(full.published, rel=1e-15, nan_ok=True)
            np.testing.assert_allclose(discharge.voltage, full.voltage, rtol=0, atol=1e-6)
    # B0005.mat is rebuilt from the tables: the first 11 of 168 discharges.
    rebuilt = genuine.select(cells=["B0005"])
    assert len(rebuilt) == 11
    for discharge in rebuilt:
        np.testing.assert_allclose(discharge.current, everything[discharge.name].current, rtol=0, atol=1e-6)


def test_the_fullest_table_is_read_and_the_rest_left(everything):
    assert {discharge.file for discharge in everything} == {
        "discharge_all.parquet",
        "rw_reference_discharge.csv",
        "rw26_random_walk_first_runs.csv",
    }
    left = {str(skipped) for skipped in everything.skipped}
    assert "B0025.mat, cell B0025: the cell was already read from another file" in left
    assert len(left) == 5


def test_randomized_usage(everything):
    rw9, rw26 = everything.select(cells=["RW9"]), everything.select(cells=["RW26"])
    assert (len(rw9), len(rw26.select(kind="reference")), len(rw26.select(kind="walk"))) == (80, 14, 6)
    # RW9 has no temperature in its source; the ambient is used instead.
    assert all(np.isnan(discharge.temperature).all() for discharge in rw9)
    assert (everything["RW9/0"].known_temperature == 24).all()
    assert "temperature was not measured" in everything["RW9/0"].notes[0]
    assert everything["RW9/0"].charge == pytest.approx(2.09774, abs=1e-5)
    assert everything["RW26/0"].capacity == pytest.approx(2.14717, abs=1e-5)
    assert everything["RW26/0"].start == datetime(2014, 11, 14, 20, 13, 31)
    assert everything["RW26/walk0"].ambient == 40
    walk = everything["RW26/walk0"]
    assert 0.5 < walk.current[walk.under_load].min() < walk.current.max() < 5.1
    # Their logs begin under load, and set #11 publishes no capacities: neither is a flag. One is truly odd: the load of
    # RW9/21 wavers between 0.89 and 1.07 A.
    flagged = [discharge.name for discharge in (*rw9, *rw26) if not discharge.clean]
    assert flagged == ["RW9/21"]


def test_runs_of_the_loaded_rows(everything):
    first = everything["B0005/0"]
    data = to_dataset(everything.select(cells=["B0005", "B0006"], first=2))
    assert data.names == ("B0005/0", "B0005/1", "B0006/0", "B0006/1")
    assert data.groups == ("B0005", "B0005", "B0006", "B0006")
    assert (data.output_names, data.input_names) == (("voltage",), ("current", "temperature"))
    run = data.runs[0]
    assert run.w is not None
    np.testing.assert_allclose(run.ts, first.time[2:180] - 35.703, atol=1e-3)
    assert run.ts[0] == 0
    np.testing.assert_allclose(run.y[:2, 0], [3.974871, 3.951717], atol=1e-6)
    np.testing.assert_allclose(run.w[0], [2.012528, 24.389085], atol=1e-6)
    assert run.w[:, 0].min() > 1.9


def test_runs_with_what_lies_around_the_load(everything):
    first = everything["B0005/0"]
    tail, complete = (to_dataset([first], rows=rows).runs[0] for rows in ("tail", "all"))
    assert tail.w is not None
    assert complete.w is not None
    assert (len(tail.ts), len(complete.ts)) == (195, 198)
    # No load is no current: the sensor's offset of a few mA is not simulated.
    assert first.current[0] == pytest.approx(0.0049, abs=1e-4)
    np.testing.assert_array_equal(complete.w[[0, 1, 181, 197], 0], 0)
    np.testing.assert_array_equal(tail.w[178:, 0], 0)
    np.testing.assert_allclose(np.delete(complete.y[:, 0], 2), first.voltage)
    # The load came on one interval of 18.1 s before the first row under it, less than a second after the last at rest.
    np.testing.assert_allclose(complete.ts[1:5], [16.781, 17.531, 35.703, 53.781], atol=0.1)
    np.testing.assert_allclose(complete.w[1:4, 0], [0.0, 2.0125, 2.0125], atol=1e-3)
    assert np.isnan(complete.y[2, 0])
    # A contact that dropped out measured nothing.
    dropped = to_dataset([everything["B0050/4"]], rows="all").runs[0]
    assert np.isnan(dropped.y).sum() - 1 == np.count_nonzero(everything["B0050/4"].voltage < 0.5) > 0


def test_a_square_wave_is_held(everything):
    """A run has the samples themselves, of two levels; held until the next, they carry the published charge.

    To 2.1 %: a sample in 10 s does not say when within them the wave, of 20 s, was switched.
    """
    wave = everything["B0025/0"]
    run = to_dataset([wave]).runs[0]
    assert run.w is not None
    held = np.sum(run.w[:-1, 0] * np.diff(run.ts)) / 3600
    assert held == pytest.approx(wave.published, rel=0.025)
    levels = run.w[:, 0]
    assert ((np.abs(levels) < 0.1) | (np.abs(levels - 4.03) < 0.15)).all()
    # It is switched right after a row and read at the end of each half period: a current is that of the time before.
    switched = np.flatnonzero(np.isnan(run.y[:, 0]))
    on = levels > 2
    np.testing.assert_array_equal(switched, np.flatnonzero(on[1:] != on[:-1]) + 1)
    assert len(switched) > 100
    assert (run.ts[switched] - run.ts[switched - 1]).max() < 1.0
    assert np.median(run.ts[switched + 1] - run.ts[switched]) == pytest.approx(10, abs=0.5)


def test_what_cannot_be_a_run_is_named(everything):
    with pytest.raises(
        ValueError, match=r"discharge_all.parquet, cell B0053, cycle \d+: B0053/55 has 1 rows under load"
    ):
        to_dataset([everything["B0053/55"]])


def test_selection_names_what_it_does_not_know(everything):
    with pytest.raises(ValueError, match="there is no cell 'B0007'"):
        everything.select(cells=["B0007"])
    with pytest.raises(ValueError, match="Did you mean 'square_wave'"):
        everything.select(flags=["square-wave"])
    with pytest.raises(KeyError, match="there is no discharge 'B0005/168'"):
        everything["B0005/168"]
