"""Drive cycles: how records become runs, how a circuit is fitted to them, and what is compared."""

import gzip

import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.drive.models import Design, build, fit_circuit, fit_temperature
from twinfold_studies.drive.records import TRAIN, read_native, read_open_circuit, read_seconds, thinned, voltage_only
from twinfold_studies.drive.scores import NATIVE, SECONDS, Cycles, rows_of, voltages
from twinfold_studies.experiments.drive import medians

import twinfold as tw
from twinfold.systems import OpenCircuit

OCV = OpenCircuit([0.0, 0.1, 1.0], [2.8, 3.4, 4.2])


@pytest.fixture
def folder(tmp_path):
    """A folder of records with known numbers: a slow cycle, one cycle of ten seconds, and one at ten rows a second."""
    slow = np.linspace(0, 72000, 200)
    rows = [f"{t:.1f},{4.2 - 1.4 * t / 72000:.5f},-0.145,{-0.145 * t / 3600:.5f},25.0" for t in slow]
    (tmp_path / "C20_OCV_25degC.csv").write_text("\n".join(["t_s,V,I_A,Ah,T_cell_C", *rows]) + "\n")
    lines = ["cycle,t_s,V,I_A,I_mean_1s_A,Ah,T_cell_C,T_chamber_C"]
    seconds = [0, 1, 2, 3, 5, 6]  # one row is missing, and the cell rests at first
    current = [0.0, 0.0, 2.0, 3.0, 1.0, 1.0]
    mean = [0.0, 0.0, 1.0, 2.5, 9.0, 1.0]
    ah = [0.0, 0.0, 1.0, 3.5, 7.5, 8.5]
    for k, t in enumerate(seconds):
        lines.append(f"Cycle_1,{t},4.0,{-current[k]},{-mean[k]},{-ah[k] / 3600:.9f},24.{k},25")
    with gzip.open(tmp_path / "drive_25degC_1Hz.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    with gzip.open(tmp_path / "native10Hz_25degC_US06.csv.gz", "wt") as file:
        file.write("t_s,V,I_A,Ah,T_cell_C\n0,4.1,0,0,25\n0.1,4.0,-2,0,25\n0.1,4.0,-2,0,25\n0.2,3.9,-4,0,25\n")
    return tmp_path


def test_the_charge_between_rows_is_that_of_the_mean_current(folder):
    run = read_seconds(folder, 25, "Cycle_1")
    assert run.w is not None
    np.testing.assert_allclose(run.ts, [0, 1, 2, 4, 5])  # from the last row at rest on
    np.testing.assert_allclose(run.w[:, 0], [1.0, 2.5, 2.0, 1.0, 0.0], atol=1e-4)  # counted where a row is missing
    np.testing.assert_allclose(run.w[:, 2], [0.0, 2.0, 3.0, 1.0, 1.0])
    fewer = thinned(run, 2)
    assert fewer.w is not None
    np.testing.assert_allclose(fewer.ts, [0, 2, 5])
    np.testing.assert_allclose(np.diff(fewer.ts) @ fewer.w[:-1, 0], np.diff(run.ts) @ run.w[:-1, 0])


def test_native_rows_have_the_mean_of_both_ends_and_no_repeated_time(folder):
    run = read_native(folder, 25, "US06")
    assert run.w is not None
    np.testing.assert_allclose(run.w[:, 0], [1.0, 3.0, 0.0])
    np.testing.assert_allclose(run.w[:, 2], [0.0, 2.0, 4.0])


def test_the_voltage_at_rest_is_read(folder):
    ocv = read_open_circuit(folder)
    assert ocv.capacity == pytest.approx(2.9, rel=1e-3)
    assert float(ocv(jnp.array(0.5))) == pytest.approx(3.5, abs=1e-3)


def test_test_cycles_are_not_trained_on():
    tests = {name for name, celsius in (*NATIVE, *SECONDS) if celsius == 25}
    assert tests == {"US06", "LA92", "HWFTa", "HWFTb"}
    assert not tests & set(TRAIN)


def test_errors_are_in_millivolt_and_a_failed_run_counts():
    run = tw.Run("a", np.arange(4.0), np.array([[4.0, 25], [3.9, 25], [3.8, 25], [3.0, 25]]), np.zeros((4, 3)))
    cycles = Cycles([("US06", 25)], [run], 10)
    (row,) = rows_of("m", "measured", 0, cycles, [run.y[:, 0] + [0.003, 0.004, 0.0, 0.0]])
    assert row["rmse_mv"] == pytest.approx(2.5)
    assert row["mae_mv"] == pytest.approx(1.75)
    (failed,) = rows_of("m", "measured", 1, cycles, [np.array([4.0, np.nan, np.nan, np.nan])])
    assert failed["failed"]
    assert failed["rmse_mv"] == pytest.approx(1000 * np.sqrt(3 / 4))
    (table,) = medians([row, failed])
    assert table["failures"] == 1
    assert table["published_rmse_mv"] == 39.3


@pytest.mark.slow
def test_a_simulated_cell_is_found_and_its_temperature_predicted():
    design = Design(pairs=1)
    truth = {"Q": 2.7, "R_0": 0.03, "R_1": 0.02, "tau_1": 25.0, "C_th": 40.0, "R_th": 8.0}
    cell = build(OCV, design, temperature="output", unknown=truth)
    rng = np.random.default_rng(0)
    ts = np.arange(0.0, 3000.0)
    current = np.repeat(rng.uniform(-2, 8, 150), 20)
    w = np.stack([current, np.full(3000, 25.0), current], axis=1)
    x0 = cell.initial_state(jnp.array(0.0), jnp.array([4.2, 25.0]), jnp.asarray(w[0]), cell.parameters())
    y = np.asarray(cell.simulate(x0, ts, w).ys)
    measured = w.copy()
    measured[:, 1] = y[:, 1]
    runs = [tw.Run("a", ts, y, measured)]
    fitted = fit_circuit(OCV, design, runs, 1).twin
    heated = fit_temperature(OCV, design, fitted, runs, 25.0)
    assert float(heated.parameters()["R_th"]) == pytest.approx(8.0, rel=0.05)
    cycles = Cycles([("a", 25)], runs, 1)
    for twin, kind in ((fitted, "measured"), (heated, "predicted")):
        assert rows_of("m", kind, 0, cycles, voltages(twin, cycles, kind))[0]["rmse_mv"] < 2.0
    assert voltage_only(*runs).output_names == ("voltage",)
