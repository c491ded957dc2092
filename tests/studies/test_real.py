"""The studies of public measurements: their frame, their loaders, and their models on data with a known answer."""

import gzip
import json
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.bench.experiment import Options
from twinfold_studies.bench.store import Store
from twinfold_studies.experiments import real
from twinfold_studies.real import drive, tank
from twinfold_studies.real.loaders import alpha_pinene, draining_tank, emps, schmidt_lipson
from twinfold_studies.real.location import find_real
from twinfold_studies.real.registry import TASKS
from twinfold_studies.real.sources import folder_fingerprint, function_fingerprint
from twinfold_studies.real.task import Metric, Model, Task
from twinfold_studies.real.tasks import alpha_pinene as pinene_task
from twinfold_studies.real.tasks import draining_tank as tank_task
from twinfold_studies.real.tasks import emps as emps_task
from twinfold_studies.real.tasks import schmidt_lipson_pendulum as pendulum_task
from typer.testing import CliRunner

import twinfold as tw

MEASURED = pytest.mark.skipif(
    not os.environ.get("TWINFOLD_DATA"), reason="TWINFOLD_DATA names no folder of measurements"
)


def measured(name):
    try:
        return find_real(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))


# ------------------------------------------------------------------------------------------------------------ the frame


class Made:
    """A task of made-up numbers that counts what it computes."""

    def __init__(self):
        self.fitted, self.validated = [], []
        models = [
            Model("twin", self.fit, {"good": 2.0, "bad": 5.0}, self.validate, note="made up"),
            Model("broken", self.fail, seeded=False),
            Model("fixed", self.fit, {"": 10.0}, seeded=False),
        ]
        metric = Metric("free run", "RMSE", "mm", 2.64, "a paper")
        self.task = Task("made", "made", "Made up", lambda folder: folder.name, {"rmse": metric}, models)

    def fit(self, data, design, seed, quick):
        self.fitted.append((data, design, seed))
        return {"metrics": {"rmse": design + [0.0, 7.0, 1.0, 2.0, 3.0][seed]}}

    def validate(self, data, design, quick):
        self.validated.append(design)
        return design

    @staticmethod
    def fail(data, design, seed, quick):
        raise ValueError("no convergence\nand more")


@pytest.fixture
def made(tmp_path, monkeypatch):
    (tmp_path / "real" / "made").mkdir(parents=True)
    (tmp_path / "real" / "made" / "data.csv").write_text("1\n")
    found = Made()
    monkeypatch.setattr(real, "TASKS", {"made": found.task})
    return found


def run(tmp_path, **options):
    store = Store(tmp_path / "runs", None)
    return real.analyse(store, Options(data=str(tmp_path), seeds=5, **options), lambda line: None), store


def test_the_design_is_chosen_by_validation_and_the_row_is_the_median_of_its_seeds(made, tmp_path):
    findings, store = run(tmp_path)
    tables = {table.name: table.rows for table in findings.tables}
    assert [row["chosen"] for row in tables["designs"]] == [True, False]
    twin, fixed = tables["summary"]
    assert (twin["value"], twin["seeds"], twin["published"], twin["unit"]) == (4.0, 5, 2.64, "mm")
    assert twin["note"] == "made up; design 'good' of 2 tried"
    assert (fixed["value"], fixed["seeds"]) == (10.0, 1)
    assert [row["value"] for row in tables["seeds"]][:5] == [2.0, 9.0, 3.0, 4.0, 5.0]
    assert store.skipped == [("real-made: broken", "ValueError: no convergence")]
    assert findings.sentences == ["made, free run: RMSE [mm]: twin 4.000, fixed 10.00; published 2.640."]
    assert list(twin) == ["dataset", "task", "model", "metric", "unit", "value", "seeds", "published", "source", "note"]


def test_what_is_stored_is_not_computed_again_and_other_files_are(made, tmp_path):
    run(tmp_path)
    assert len(made.fitted) == 6
    run(tmp_path)
    assert (len(made.fitted), made.validated) == (6, [2.0, 5.0])
    (tmp_path / "real" / "made" / "README.md").write_text("not data")
    folder_fingerprint.cache_clear()
    run(tmp_path)
    assert len(made.fitted) == 6
    (tmp_path / "real" / "made" / "data.csv").write_text("2\n")
    folder_fingerprint.cache_clear()
    run(tmp_path)
    assert len(made.fitted) == 12


def test_a_set_that_is_not_asked_for_is_shown_as_far_as_it_is_stored(made, tmp_path):
    findings, store = run(tmp_path, sets=("another",))
    assert (findings.tables[0].rows, store.skipped, made.fitted) == ([], [], [])
    run(tmp_path)
    findings, store = run(tmp_path, sets=("another",))
    assert [row["model"] for row in findings.tables[0].rows] == ["twin", "fixed"]
    assert (store.skipped, len(made.fitted)) == ([], 6)


def test_a_set_without_its_folder_is_a_plain_reason(made, tmp_path):
    store = Store(tmp_path / "runs", None)
    real.analyse(store, Options(data=str(tmp_path / "nowhere")), lambda line: None)
    ((name, reason),) = store.skipped
    assert name == "real-made"
    assert str(tmp_path / "nowhere") in reason


def test_several_designs_need_a_function_that_chooses():
    with pytest.raises(ValueError, match="2 designs need a function"):
        Model("twin", Made.fail, {"a": 1, "b": 2})


def test_a_result_depends_on_the_modules_behind_its_function():
    assert function_fingerprint(emps_task.twin) == function_fingerprint(emps_task.node)
    assert function_fingerprint(emps_task.twin) != function_fingerprint(pendulum_task.twin)
    from twinfold_studies.real.sources import _imported

    names = _imported(emps_task.twin.__module__, set())
    assert "twinfold_studies.real.rivals.narx" in names
    assert "twinfold_studies.real.drive" in names
    assert not [name for name in names if "figures" in name or name.endswith(".task")]


def test_the_command_names_the_sets(tmp_path):
    from twinfold.cli import app

    result = CliRunner().invoke(app, ["bench", "real", "empss", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "emps" in result.output
    result = CliRunner().invoke(app, ["bench", "theory", "emps"])
    assert result.exit_code == 2
    assert "unexpected" in result.output


def test_every_task_names_its_models_once_and_every_metric_is_stated():
    for name, task in TASKS.items():
        assert task.name == name
        models = [model.name for model in task.models]
        assert len(set(models)) == len(models)
        assert {"twin", "black box"} <= set(models)
        for metric in task.metrics.values():
            assert (metric.published is None) == (metric.source == "")


# ---------------------------------------------------------------------------------------------------------- the loaders


def test_alpha_pinene_reads_its_species(tmp_path):
    header = "t_min," + ",".join(f"y{i}_{name}_pct" for i, name in enumerate(alpha_pinene.SPECIES, start=1))
    (tmp_path / "alpha_pinene.csv").write_text(f"{header}\n0,100,0,0,0,0\n1230,88.35,7.3,2.3,0.4,1.75\n")
    record = alpha_pinene.load(tmp_path)["batch"]
    assert record["t"].tolist() == [0, 1230]
    assert record["dimer"].tolist() == [0, 1.75]


NOTES = """# hand-written
H* = 28.6 cm
L_t = 14.6 cm
W_t = 9.0 cm
perimeter = 44.3 cm
L_b = 13.4 cm
W_b = 7.8 cm
perimeter = 40.1 cm
p = 2(L + W - 4 r + pi r)
"""


def test_the_tank_is_read_from_the_notes():
    found = draining_tank.read_geometry(NOTES)
    # The published point estimates are 103.0 and 129.9 cm^2; the second is that of a perimeter of 44.3 cm, rounded.
    assert found.bottom == pytest.approx(103.0, abs=0.05)
    assert found.top == pytest.approx(128.95, abs=0.01)
    assert found.height == pytest.approx(np.sqrt(28.6**2 - 0.6**2))
    assert found.area(np.array(found.height)) == pytest.approx(found.top)
    square = draining_tank.read_geometry(NOTES.replace("44.3", "47.2"))  # sharp corners: p = 2 (L + W)
    assert square.top == pytest.approx(14.6 * 9.0)


def test_the_drain_begins_at_the_last_of_the_highest_readings_and_each_time_counts_once(tmp_path):
    rows = [(0, 508), (0, 509), (5, 776), (6, 777), (7, 776), (8, 700), (8, 699), (9, 600)]
    lines = [f"{run},{t},{reading}" for run in draining_tank.RUNS for t, reading in rows]
    (tmp_path / "draining_tank.csv").write_text("run,t_s,sensor_reading\n" + "\n".join(lines))
    (tmp_path / "level_sensor_calibration.csv").write_text(
        "\ufeffh [cm],level sensor reading\n1,507\n28,808\n", "utf-8"
    )
    (tmp_path / "bottle_area.csv").write_text("\ufeffh [cm],circumference [cm],area \n0,24.5,47.76\n", "utf-8")
    (tmp_path / "tank_length_measurements.txt").write_text(NOTES)
    records = draining_tank.load(tmp_path)
    assert records["empty_test"]["t"].tolist() == [0, 1, 2]
    assert records["empty_test"]["reading"].tolist() == [776, 700, 600]
    assert records["calibration"]["reading"].tolist() == [507, 808]
    assert records["bottle"]["area"].tolist() == [47.76]
    assert draining_tank.geometry(records) == draining_tank.read_geometry(NOTES)


@MEASURED
def test_the_real_files_have_the_samples_that_their_sources_state():
    assert len(alpha_pinene.load(measured("alpha_pinene"))["batch"]["t"]) == 9
    records = emps.load(measured("emps"))
    assert [len(records[name]["t"]) for name in ("train", "test")] == [24841, 24841]
    np.testing.assert_allclose(np.diff(records["test"]["t"]), 1e-3, atol=1e-9)
    swing = schmidt_lipson.load(measured("schmidt_lipson"))
    (t, _), (later, _) = pendulum_task.parts(swing)
    assert (len(t) - 1, len(later) - 1) == (444, 111)
    records = draining_tank.load(measured("draining_tank"))
    for name in draining_tank.RUNS:
        assert np.all(np.diff(records[name]["t"]) > 0)
    assert len(records["bottle"]["area"]) == 29


# ----------------------------------------------------------------------------------------------------------- the models


def test_the_reactions_keep_the_mass_and_the_published_rates_have_the_published_sum_of_squares():
    x, rates = jnp.array([70.0, 20.0, 6.0, 1.0, 3.0]), {"k": jnp.array(pinene_task.PUBLISHED)}
    assert float(jnp.sum(pinene_task.reactions(x, rates))) == pytest.approx(0.0, abs=1e-15)


@MEASURED
@pytest.mark.slow
def test_alpha_pinene_reaches_the_optimum_of_least_squares():
    records = alpha_pinene.load(measured("alpha_pinene"))
    found = pinene_task.fitted(pinene_task.chemistry(balanced=True), pinene_task.dataset(records), 0, quick=False)
    metrics = pinene_task.outcome(found, records)["metrics"]
    assert metrics["sse"] <= 19.873
    assert metrics["balance"] <= 1e-12
    np.testing.assert_allclose(found.parameters()["k"], pinene_task.PUBLISHED, rtol=2e-3)


def hidden_body(level):
    return 10.0 + 35.0 / (1 + np.exp(level - 16.0))


def made_drain(area, sensor, *, hole=2.3, c=0.97):
    """A drain, exactly: t is the integral of (A - a) / (c sqrt(h - hole)) over the level."""
    geometry = draining_tank.read_geometry(NOTES)
    level = np.linspace(26.0, 3.2, 4000)
    slope = (geometry.area(level) - area(level)) / (c * np.sqrt(level - hole))
    t = np.concatenate([[0.0], np.cumsum(0.5 * (slope[1:] + slope[:-1]) * -np.diff(level))])
    times = np.arange(0.0, t[-1], 0.17)
    return {"t": times, "reading": np.round(sensor(np.interp(times, t, level)))}


def staircase(level):
    """A sensor whose reading rises in steps of a centimetre and a half."""
    return 505.0 + 10.0 * (level + 0.2 * np.sin(2 * np.pi * level / 1.5))


@pytest.fixture(scope="module")
def made_tank():
    geometry = draining_tank.read_geometry(NOTES)
    marks = np.arange(1.0, 28.0)
    return {
        "empty_train": made_drain(lambda h: 0.0 * h, staircase),
        "empty_test": made_drain(lambda h: 0.0 * h, staircase),
        "with_bottle": made_drain(hidden_body, staircase),
        "calibration": {"level": marks, "reading": 505.0 + 10.0 * marks},  # it misses the steps
        "bottle": {"level": marks, "area": hidden_body(marks)},
        "tank": {name: np.array([value]) for name, value in geometry._asdict().items()},
    }


def test_readings_of_a_drain_never_rise(made_tank):
    record = {"t": np.arange(6.0), "reading": np.array([9.0, 7.0, 8.0, 5.0, 5.0, 6.0])}
    found = tank.falling(record)
    assert np.all(np.diff(found) < 0)
    np.testing.assert_allclose(found, [9.0, 7.5, 7.5, 16 / 3, 16 / 3, 16 / 3], atol=2e-3)


@pytest.mark.slow
def test_the_empty_tank_calibrates_the_sensor_and_the_body_is_found(made_tank):
    known = tank.fit_empty(made_tank, tank_task.EMPTY, quick=False)
    assert float(known.parameters()["c"]) == pytest.approx(0.97, rel=0.01)
    assert float(known.parameters()["hole"]) == pytest.approx(2.3, abs=0.2)  # by how much the table is wrong
    sensor = tank.calibrate(made_tank, tank_task.EMPTY, known)
    levels = np.linspace(5.0, 24.0, 80)
    by_table = np.interp(staircase(levels), made_tank["calibration"]["reading"], made_tank["calibration"]["level"])
    by_drain = np.interp(staircase(levels), sensor.reading, sensor.level)
    assert np.std(by_table - levels) > 0.13
    assert np.std(by_drain - levels) < 0.05
    found = tank_task.twin(made_tank, {"structure": (), "l2": 1e-5}, 0, quick=False)
    assert found["metrics"]["share"] < 4.0
    assert found["metrics"]["level"] < 0.1
    assert json.loads(json.dumps(found)) == found


def test_a_body_fits_into_the_tank_whatever_the_weights_are(made_tank):
    known = tank.empty_tank(draining_tank.geometry(made_tank), c=1.0)
    levels = np.linspace(0.0, 28.0, 57)
    for structure in ((), ("decreasing",)):
        drawn = tank.with_body(known, width=8, depth=2, structure=structure).initialise(jax.random.key(0), states=1)
        large = jax.tree.map(lambda leaf: 40 * leaf if eqx.is_inexact_array(leaf) else leaf, drawn)
        area = np.asarray(tank.body_area(large, levels))
        assert np.all(area >= 0)
        assert np.all(area < draining_tank.geometry(made_tank).area(levels))


def test_the_voltage_that_is_thinned_out_has_the_same_momentum():
    record = {"t": 1e-3 * np.arange(10), "voltage": np.arange(10.0), "position": np.arange(10.0)}
    found = drive.thinned(record, 4)
    assert found["voltage"].tolist() == [1.5, 5.5]
    assert found["position"].tolist() == [0.0, 4.0]
    assert drive.thinned(record, 2, slice(4, None))["t"].tolist() == record["t"][[4, 6, 8]].tolist()


def test_friction_resists_the_motion_and_only_forces_accelerate():
    twin = drive.build(drive.Design(2, drift=True, asymmetric=True), warmup=5).initialise(
        jax.random.key(1), states=2, inputs=1
    )
    large = jax.tree.map(lambda leaf: 30 * leaf if eqx.is_inexact_array(leaf) and leaf.ndim == 2 else leaf, twin)
    p = large.parameters()
    for q in (0.0, 0.2):
        for v in (-0.2, -0.01, 0.01, 0.2):
            assert v * float(large.field.friction(jnp.array(q), jnp.array(v), p)) > 0
    rate = drive.Drive()(0.0, jnp.array([0.1, 0.0]), jnp.array([2.0]), p | {"drift": 0.5, "offset": 1.0})
    assert float(rate[1]) == pytest.approx((2 * drive.FORCE - 1.0 + 0.5 * drive.MIDDLE) / float(p["mass"]))


@pytest.mark.slow
def test_the_drive_is_identified_and_what_follows_the_start_is_not_seen():
    truth = {"mass": 90.0, "viscous": 180.0, "coulomb": 22.0, "offset": -2.0, "drift": -0.02, "asymmetry": -0.2}
    t = 1e-3 * np.arange(8000)
    voltage = np.where(np.sin(2 * np.pi * t / 3.1) > 0, 1.0, -1.1)
    plant = tw.Twin(drive.Drive(), params=truth, observe=lambda x: x[:1])
    position = np.asarray(plant.simulate([0.0, 0.0], t, voltage[:, None]).ys)[:, 0]
    records = {"train": {"t": t, "voltage": voltage, "position": position}}
    fit = emps_task.fit_rows(records, drive.Design(0, drift=True, asymmetric=True, l2=0.0), slice(None), 0, quick=False)
    for name, value in truth.items():
        assert float(fit.twin.parameters()[name]) == pytest.approx(value, rel=0.02, abs=2e-3)
    cut = {**records["train"], "position": np.where(np.arange(len(t)) < drive.FIRST, position, 1e3)}
    free = drive.free_run(fit.twin, cut)
    assert drive.error(free, records["train"]) < 0.5


def test_the_scores_of_the_pendulum_are_those_of_the_protocol():
    t = np.array([0.0, 0.5, 1.5])
    x = np.array([[0.0, 1.0], [0.5, 1.0], [1.0, 0.0]])
    after = x[1:] + np.array([[0.1, 0.0], [0.0, 0.2]])
    found = pendulum_task.scores(t, x, after, np.array([[0.0, 1.0], [np.pi, 0.0]]))
    assert found["loss"] == pytest.approx((0.2**2 + 0.2**2) / 4)
    exact = 2.4 * (1 - np.cos(0.5)) + 1.0
    assert found["energy"] == pytest.approx((4.8 - exact) ** 2 / 2)


def test_a_gap_is_several_steps():
    t = np.array([0.0, 1.0, 3.0, 4.0]) * pendulum_task.STEP
    x = np.stack([2.0 ** np.array([0, 1, 3, 4]), np.zeros(4)], 1)

    def doubles(u, first):
        return first * 2.0 ** np.arange(len(u))[:, None]

    found = pendulum_task.with_steps(t, x, doubles)
    assert found["metrics"]["loss"] == pytest.approx(0.0, abs=1e-20)
    assert found["metrics"]["energy"] == pytest.approx(0.0, abs=1e-20)


def test_the_exact_pendulum_has_no_error():
    known = tw.Twin(lambda x: jnp.stack([x[1], -1.2 * jnp.sin(x[0])]), integrator=tw.RK4(substeps=2))
    t = np.arange(0.0, 5.0, pendulum_task.STEP)
    x = np.asarray(known.simulate([1.0, 0.0], t).ys)
    metrics = pendulum_task.with_twin(known, t, x)["metrics"]
    assert metrics["loss"] < 1e-20
    assert metrics["energy"] < 1e-20


def test_emps_files_are_compressed(tmp_path):
    rows = ["run,t_s,q_ref_m,q_meas_m,u_V,pulse_N", "train,0.0,0,1,2,0", "test,0.0,0,3,4,0"]
    (tmp_path / "emps.csv.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    records = emps.load(tmp_path)
    assert records["test"]["position"].tolist() == [3.0]
