"""The study of the first attempt: its synthetic record, its loaders, its projects and its table."""

import gzip

import numpy as np
import pytest
from twinfold_studies.bench.cache import record_skips
from twinfold_studies.bench.experiment import Options
from twinfold_studies.bench.store import Store
from twinfold_studies.experiments import defaults, refit
from twinfold_studies.experiments.first import _designs, design_rows
from twinfold_studies.first import drive, family, synthetic
from twinfold_studies.first.fits import error, fit_design
from twinfold_studies.first.project import COMMON, FIRST, PROJECTS
from twinfold_studies.real.loaders import building_thermal, emps, schmidt_lipson
from twinfold_studies.real.location import find_real
from twinfold_studies.real.table import write_records

import twinfold as tw


def test_the_synthetic_record_is_held_noisy_and_begins_in_motion():
    record = drive.record(200)["drive"]
    changes = np.flatnonzero(np.diff(record["torque"])) + 1
    assert np.all((changes + drive.BEFORE) % drive.HELD == 0)
    assert len(changes) >= 9
    other = drive.record(200, seed=1)["drive"]
    assert abs(record["speed"][0]) > 0.5
    assert not np.allclose(other["speed"], record["speed"])
    steps = np.diff(record["speed"], 3) / np.sqrt(20)
    assert 0.5 < np.median(np.abs(steps)) / 0.6745 / (drive.NOISE * record["speed"].std()) < 4


def test_the_rate_of_the_drive_balances_momentum_and_friction_dissipates():
    x, torque = np.array([1.3, 0.2, -0.4]), 0.7
    rate = drive.rate(x, torque)
    assert drive.MOTOR * rate[0] + drive.LOAD * rate[2] == pytest.approx(torque - drive.friction(x[2]), rel=1e-12)
    speeds = np.linspace(-5, 5, 101)
    assert all(drive.friction(speed) * speed >= 0 for speed in speeds.tolist())


def test_emps_keeps_the_mean_of_the_voltage(tmp_path):
    rows = ["run,t_s,q_ref_m,q_meas_m,u_V,pulse_N"]
    for run in ("train", "test"):
        rows += [f"{run},{0.001 * k},0,{k},{k % 4},0" for k in range(10)]
    (tmp_path / "emps.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    records = emps.load(tmp_path, every=4)
    assert list(records) == ["train", "test"]
    np.testing.assert_allclose(records["test"]["t"], [0.0, 0.004])
    np.testing.assert_array_equal(records["test"]["voltage"], [1.5, 1.5])
    np.testing.assert_array_equal(records["train"]["position"], [0, 4])
    assert len(emps.load(tmp_path)["train"]["t"]) == 10


def test_the_other_loaders_read_their_columns_and_units(tmp_path):
    (tmp_path / "real_pend_h_1.csv").write_text("trial,t,theta,omega\n0,5,1.1,0.9\n0,5.2,1.2,0.7\n")
    np.testing.assert_array_equal(schmidt_lipson.load(tmp_path)["swing"]["omega"], [0.9, 0.7])
    text = "\ufefft_s,T_out_C,Q_heat_W,I_sol_W_m2,T_in_C\n1800,16,2000,500,30\n3600,15,0,0,29\n"
    (tmp_path / "rouchier_testcell.csv").write_text(text, encoding="utf-8")
    cell = building_thermal.load(tmp_path)["cell"]
    assert [cell[name][0] for name in ("t", "T_out", "heat", "sun", "T_in")] == [0.5, 16, 2, 0.5, 30]
    (path,) = write_records({"cell": cell}, tmp_path)
    assert path.read_text().splitlines()[1] == "0.5,16,2,0.5,30"


def test_missing_measurements_are_a_plain_reason(tmp_path, monkeypatch):
    monkeypatch.delenv("TWINFOLD_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="set TWINFOLD_DATA"):
        find_real("emps")
    store = Store(tmp_path, None)
    with record_skips(store):
        _designs(PROJECTS["emps"], store, Options(data=str(tmp_path)), lambda line: None)
    ((name, reason),) = store.skipped
    assert name == "first-emps"
    assert str(tmp_path / "real" / "emps") in reason
    (tmp_path / "emps").mkdir()
    assert find_real("emps", str(tmp_path)) == tmp_path / "emps"


def test_every_record_has_ten_designs_and_the_first_changes_nothing():
    for project in PROJECTS.values():
        assert len(project.designs) == 10
        assert project.designs[FIRST] == ()
        assert set(COMMON) < set(project.designs)


def test_a_project_is_that_of_twinfold_new_with_the_last_block_as_test_record(tmp_path):
    project = PROJECTS["drive"]
    project.write(tmp_path / "drive")
    for design in project.designs:
        workspace = project.open(tmp_path / "drive", design)
        split = workspace.load_split()
        assert split.test is not None
        assert split.test.names == ("drive[4]",)
        assert workspace.load_system().twin.warmup == 20
    tw.workspace.new_project(str(tmp_path / "new"), template="motor")
    template, first = (
        tw.workspace.open_workspace(tmp_path / "new").config,
        project.open(tmp_path / "drive", FIRST).config,
    )
    assert (first.fit, first.loss, first.model) == (template.fit, template.loss, template.model)


def test_the_table_names_the_choice_and_the_ratio():
    found = {
        name: {"valid": valid, "test": 0.5, "test_before": test, "scale": [2.0], "weights": 3, "seconds": 1.0}
        for name, valid, test in (("a", 0.2, 0.3), ("b", 0.1, 0.6))
    }
    a, b = design_rows(PROJECTS["drive"], found)
    assert (a["chosen"], b["chosen"]) == (False, True)
    assert (a["ratio"], b["ratio"]) == (1.0, 2.0)
    assert b["test_rmse"] == pytest.approx(1.2)


def test_the_error_leaves_the_warm_up_out():
    twin = tw.Twin(lambda x: 0 * x, initial=lambda y: y)
    data = tw.Dataset.from_arrays(np.arange(4.0), np.array([[[1.0], [9.0], [1.0], [3.0]]]))
    assert error(twin, data, np.array([2.0]), 2) == pytest.approx(np.sqrt(0.5))
    assert error(twin, data, np.array([2.0]), 3) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_quick_fit_of_the_synthetic_record_is_far_better_than_its_mean(tmp_path):
    project = PROJECTS["drive"]
    project.write(tmp_path / "drive")
    system = project.open(tmp_path / "drive", FIRST).load_system()
    found = fit_design(project, tmp_path / "drive", FIRST, system, quick=True)
    assert found["valid"] < 0.1
    assert found["test"] < 0.1


@pytest.mark.slow
def test_the_synthetic_records_obey_their_equations_and_have_test_records_of_their_own():
    loads = (
        (synthetic.room, "T_in"),
        (synthetic.slide, "position"),
        (synthetic.tanks, "level"),
        (synthetic.swing, "theta"),
    )
    for load, output in loads:
        records = load(1)
        assert list(records) == ["record", "test"]
        assert not np.allclose(records["record"][output], records["test"][output])
        assert not np.allclose(load(2)["record"][output], records["record"][output])
        np.testing.assert_array_equal(load(1)["record"][output], records["record"][output])
    # Held inputs, exact exponential: x' = -2 x + w.
    states = synthetic._simulate(lambda x, w: -2 * x + w, np.array([1.0]), np.array([[0.0], [4.0], [4.0]]), 0.1)
    first = np.exp(-0.2)
    np.testing.assert_allclose(states[:, 0], [1.0, first, 2 + (first - 2) * np.exp(-0.2)], rtol=1e-9)


def test_the_study_of_the_refit_has_three_ways_for_each_record():
    found = list(family.projects(2, refit.VARIANTS))
    assert {"room-2", "slide-2", "tanks-2", "drive-2"} <= {each.name for each in found}
    assert len({each.name for each in found}) == len(found) == len(family.KINDS)
    for project in found:
        assert set(refit.VARIANTS) <= set(project.designs)
    assert "0.50 times" in refit._sentence("b", np.array([0.25, 1.0, 0.5]))
    assert "lower on 2" in refit._sentence("b", np.array([0.25, 1.0, 0.5]))


def test_the_choice_among_defaults_is_made_on_the_validation_block():
    found = {name: {"valid": 0.3, "test_before": 0.5} for name in defaults.VARIANTS} | {
        defaults.ADAM: {"valid": 0.2, "test_before": 0.6},
        defaults.NARROW: {"valid": 0.1, "test_before": 0.7},
    }
    row = defaults._row("room-1", found)
    assert (row[FIRST], row["with or without Adam"], row["any"]) == (0.5, 0.6, 0.7)
    assert "0.71 times the error of 'any'" in defaults._sentence("any", "records", [row])


def test_a_call_that_names_records_computes_these_and_shows_what_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(family, "fit_design", lambda project, *_, **__: {"of": project.name})
    monkeypatch.setattr(family.Project, "write", lambda *_: None)
    monkeypatch.setattr(family.Project, "open", lambda *_: type("Opened", (), {"load_system": lambda self: None})())

    def names(*sets: str) -> list[str]:
        each = family.each_record("defaults", {FIRST: ()}, store, Options(sets=sets), lambda line: None)
        return [record for record, found in each if found[FIRST]["of"] == record]

    store = Store(tmp_path)
    assert names("tanks-2") == ["tanks-2"]
    assert names("room-1") == ["room-1", "tanks-2"]
    assert store.skipped == []
    assert set(names()) == set(family.RECORDS)
