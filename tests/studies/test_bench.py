"""Experiments: cells are computed once, failures stay alone, and the tables say what the numbers say."""

import dataclasses
import json
import time

import jax
import numpy as np
import pytest
import twinfold_studies.bench.job as job_module
import twinfold_studies.bench.queue as queue_module
import twinfold_studies.bench.runner as runner_module
from twinfold_studies.battery import monitoring
from twinfold_studies.bench.cache import ELSEWHERE, cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.fingerprint import normalised
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import make_data, problem, quick_sizes
from twinfold_studies.bench.protocols import PROTOCOLS
from twinfold_studies.bench.queue import Request, run_queue
from twinfold_studies.bench.runner import run_experiment
from twinfold_studies.bench.store import JobResult, Store
from twinfold_studies.bench.tables import CONVERGED, convergence, interval, paired_rows, summary_rows
from twinfold_studies.bench.timing import best_time
from twinfold_studies.experiments.registry import EXPERIMENTS
from twinfold_studies.experiments.theory import fitted_orders, jacobian_gap, step_errors
from twinfold_studies.numerics import adaptive
from twinfold_studies.systems.misspecified import MISSPECIFICATIONS, VARIANTS, misspecified
from typer.testing import CliRunner

from twinfold.cli import app
from twinfold.io import ConfigurationMismatch
from twinfold.io._atomic import atomic_write
from twinfold.metrics._errors import MAX_DTW_SAMPLES
from twinfold.model import Unknown
from twinfold.monitor._life import END_READINGS
from twinfold.numerics._project.adaptive import MAX_FROZEN_STEPS
from twinfold.parallel import AbstractExecutor, InProcess

QUICK = Job("mass_spring", "hrpinn", "paper", quick=True)
PLAIN = [Job("mass_spring", model, "paper", quick=True) for model in ("constant", "physics")]


def cell_of(folder, job, seeds) -> JobResult:
    found = Store(folder).result(job, seeds)
    assert found is not None
    return found


def call(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.replace("│", " ").split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one trained cell and two that need no training."""
    out = tmp_path_factory.mktemp("bench")
    outcome = run_queue(
        [Request(QUICK, 2, dtw=True), *(Request(job, 1) for job in PLAIN)], out, log=lambda line: None, show=False
    )
    assert outcome.computed == 3
    assert not outcome.failed
    return out


@pytest.mark.slow
def test_finished_cells_are_not_computed_again(folder, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("computed again")

    monkeypatch.setattr(queue_module, "complete", refuse)
    again = run_queue([Request(QUICK, 2, dtw=True), Request(QUICK, 1)], folder, log=lambda line: None, show=False)
    assert again.computed == 0
    assert not again.failed


@pytest.mark.slow
def test_a_cell_is_completed_from_its_stored_fit(folder, tmp_path, monkeypatch):
    """Errors that are measured from stored parameters are those that were measured after the fit."""
    store = Store(folder)
    before = cell_of(folder, QUICK, 2)
    store.path(QUICK, "errors").rename(tmp_path / "kept.npz")
    monkeypatch.setattr(queue_module, "train", lambda *arguments: pytest.fail("trained again"))
    run_queue([Request(QUICK, 2, dtw=True)], folder, log=lambda line: None, show=False)
    after = cell_of(folder, QUICK, 2)
    for horizon in ("train", "long"):
        for metric in ("mae", "relative_violation_max", "failed"):
            np.testing.assert_allclose(after.metrics[horizon][metric], before.metrics[horizon][metric], rtol=1e-6)


@pytest.mark.slow
def test_a_cell_with_more_seeds_serves_those_who_want_fewer(folder):
    both, first = cell_of(folder, QUICK, 2), cell_of(folder, QUICK, 1)
    assert both.seeds == (0, 1)
    assert first.seeds == (0,)
    np.testing.assert_array_equal(first.by_seed("train", "mae"), both.by_seed("train", "mae")[:1])
    assert Store(folder).result(QUICK, 3) is None


@pytest.mark.slow
def test_parts_of_an_earlier_run_with_fewer_seeds_are_not_mixed_in(folder, tmp_path):
    store = Store(folder)
    path = store.path(QUICK, "dtw")
    found = store.load(QUICK, "dtw", 2)
    assert found is not None
    path.rename(tmp_path / "dtw.npz")
    store.save(QUICK, "dtw", {"seeds": [0]}, {name: values[:1] for name, values in found[1].items()})
    partial = cell_of(folder, QUICK, 2)
    assert np.isnan(partial.metrics["train"]["dtw"]).all()
    assert np.isfinite(partial.metrics["train"]["mae"]).all()
    (tmp_path / "dtw.npz").replace(path)
    assert np.isfinite(cell_of(folder, QUICK, 2).metrics["train"]["dtw"]).all()


@pytest.mark.slow
def test_one_failed_cell_stops_nothing_and_says_why(folder, monkeypatch):
    broken = Job("mass_spring", "node", quick=True)
    honest = queue_module.complete

    def complete(request, *arguments):
        if request.job == broken:
            raise FloatingPointError("this cell is broken")
        honest(request, *arguments)

    monkeypatch.setattr(queue_module, "complete", complete)
    floor = Job("mass_spring", "hrpinn", floor=True, quick=True)
    lines: list[str] = []
    outcome = run_queue([Request(broken, 1), Request(floor, 1)], folder, log=lines.append, show=False)
    assert outcome.computed == 1
    assert "this cell is broken" in outcome.failed[broken.key]
    assert any("failed: FloatingPointError" in line for line in lines)
    assert "this cell is broken" in (Store(folder).failure(broken) or "")
    assert cell_of(folder, floor, 1).by_seed("train", "mae")[0] < 1e-5


@pytest.mark.slow
def test_summary_has_the_numbers_of_the_cells(folder):
    rows = summary_rows([QUICK, *PLAIN], Store(folder), 2)
    assert [(row["model"], row["horizon"]) for row in rows[:2]] == [("hrpinn", "train"), ("hrpinn", "long")]
    cell = cell_of(folder, QUICK, 2)
    assert rows[0]["mae_mean"] == pytest.approx(cell.metrics["train"]["mae"].mean(1).mean())
    assert rows[0]["violation_max"] == pytest.approx(cell.metrics["train"]["relative_violation_max"].max())
    assert rows[0]["seeds"] == 2
    assert np.isnan(rows[0]["paper_mae"])
    assert rows[2]["mae_mean"] > 0.1  # a constant is no model of an oscillation


def test_the_share_of_seeds_that_converge():
    """Two of four are far below the constant, one is as bad as it, one is lost; by the training horizon alone."""
    mae = {"train": [[0.01, 0.03], [0.5, 0.5], [0.01, 0.0], [np.inf, 1.0]], "long": [[0.2], [0.1], [0.4], [np.inf]]}
    metrics = {horizon: {"mae": np.array(values)} for horizon, values in mae.items()}
    result = JobResult(QUICK, (0, 1, 2, 3), {}, metrics, np.zeros(4))
    assert convergence(result, "train", 0.5) == {"converged": 0.5, "converged_median": pytest.approx(0.0125)}
    assert convergence(result, "long", 0.5) == {"converged": 0.5, "converged_median": pytest.approx(0.3)}
    assert convergence(result, "train", 0.02 / CONVERGED)["converged"] == 0.5
    assert convergence(result, "train", 0.004 / CONVERGED)["converged"] == 0
    assert np.isnan(convergence(result, "train", np.nan)["converged"])


def test_an_epoch_of_the_paper_is_an_update_for_each_trajectory():
    (adam,) = PROTOCOLS["paper"].stages
    assert (adam.epochs, getattr(adam, "batch_size", None)) == (500, 1)


@pytest.mark.slow
def test_paired_differences_are_those_of_the_seeds(folder):
    rows = paired_rows([QUICK, *PLAIN], Store(folder), 2, reference="hrpinn")
    ours = cell_of(folder, QUICK, 2).by_seed("train", "mae")
    constant = cell_of(folder, PLAIN[0], 1).by_seed("train", "mae")
    row = next(row for row in rows if row["model"] == "constant" and row["horizon"] == "train")
    assert row["difference_mean"] == pytest.approx(float(np.mean(constant - ours)))
    assert row["low"] <= row["difference_mean"] <= row["high"]
    assert row["reference_lower"] == int((constant > ours).sum())
    assert row["verdict"] == ("reference better" if row["low"] > 0 else "reference worse")


def test_the_interval_of_a_mean_covers_it():
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        low, high = interval(random.normal(1.0, 0.5, 25), seed=trial)
        covered += low <= 1.0 <= high
    assert 0.88 <= covered / 200 <= 0.98
    assert all(np.isnan(interval(np.array([1.0, np.inf]))))


def test_keys_tell_jobs_apart_but_for_models_that_are_the_same():
    jobs = [QUICK, dataclasses.replace(QUICK, noise=0.1), dataclasses.replace(QUICK, fraction=0.5), *PLAIN]
    assert len({job.key for job in jobs}) == len(jobs)
    assert Job("rigid_body", "hrpinn").key == Job("rigid_body", "node").key
    assert Job("rigid_body_inertia", "hrpinn").key != Job("rigid_body_inertia", "node").key


def test_a_result_is_found_by_the_code_that_computed_it_alone(monkeypatch):
    job = Job("mass_spring", "hrpinn")
    key = job.key
    assert key.startswith("mass_spring-hrpinn-best-")
    assert Job("mass_spring", "hrpinn").key == key
    monkeypatch.setattr(job_module, "code_fingerprint", lambda: "of other code")
    assert job.key != key


def test_the_fingerprint_of_code_ignores_its_wording():
    code = 'def f(x):\n    """Doc."""\n    return x + 1\n'
    reworded = 'def f(x):\n    """Another."""\n\n    # why\n    return x + 1  # what\n'
    assert normalised(code) == normalised(reworded)
    assert normalised(code) != normalised(code.replace("+ 1", "+ 2"))
    assert normalised(code) != normalised(code.replace('"""Doc."""\n    ', "").replace("x + 1", "x"))


@pytest.mark.slow
def test_noise_and_fraction_change_the_training_data_alone(folder):
    sizes = quick_sizes(problem("mass_spring"))
    clean = make_data("mass_spring", sizes, folder / "data")
    noisy = make_data("mass_spring", sizes, folder / "data", noise=0.1, fraction=0.5)
    assert len(noisy.train) == 4
    assert len(clean.train) == 8
    for kind in ("test", "long"):
        np.testing.assert_array_equal(getattr(noisy, kind).runs[0].y, getattr(clean, kind).runs[0].y)
    spread = np.stack([run.y for run in clean.train.runs]).std((0, 1))
    off = np.stack([a.y - b.y for a, b in zip(noisy.train.runs, clean.train.runs, strict=False)])
    np.testing.assert_allclose(off.std((0, 1)), 0.1 * spread, rtol=0.15)


@pytest.mark.parametrize("name", list(MISSPECIFICATIONS))
def test_misspecified_systems_are_wrong_in_what_they_say(name):
    right = problem(name)
    x = right.draw(jax.random.key(0), 1)[0] + 0.1
    told = misspecified(right, "parameter", learned=False)
    parameters = {key: np.asarray(value) for key, value in told.params.items()}
    true = {key: value / 1.2 for key, value in parameters.items()}
    assert np.abs(told.physics(0.0, x, parameters) - told.physics(0.0, x, true)).max() > 1e-3
    learned = misspecified(right, "manifold", learned=True)
    assert all(isinstance(value, Unknown) for value in learned.params.values())
    with pytest.raises(ValueError, match="there is no misspecification 'term2'; there are: parameter, term"):
        misspecified(right, "term2", learned=False)
    assert set(VARIANTS) == {"parameter", "term", "manifold"}


@pytest.mark.slow
def test_orders_are_those_of_the_theorem():
    found = fitted_orders(step_errors(problem("mass_spring")))
    orders = {(row["integrator"], row["projected"]): row for row in found}
    for (integrator, projected), row in orders.items():
        assert row["error_order"] >= row["nominal"] - 0.1, (integrator, projected)
        assert row["between_order"] >= row["between_expected"] - 0.1
        assert row["slope_between_order"] >= row["slope_expected"] - 0.1
    assert orders["Euler", True]["error_order"] == pytest.approx(2.0, abs=0.1)
    assert orders["RK4", False]["slope_between_order"] == pytest.approx(3.0, abs=0.15)


@pytest.mark.slow
def test_the_gap_of_the_jacobians_grows_with_the_distance_within_its_bound():
    rows = jacobian_gap(problem("two_body"))
    gaps = [row["gap"] for row in rows]
    assert all(row["within"] for row in rows)
    assert gaps == sorted(gaps)
    np.testing.assert_allclose(gaps[1] / gaps[0], 10.0, rtol=0.05)


def nothing(store, options, log):
    return Findings(
        ["It says so."], [Table("numbers", "Numbers", [{"a": 1.0, "b": "x"}, {"a": float("nan"), "b": "y"}])]
    )


EMPTY = Experiment(
    "empty",
    "Nothing",
    "An experiment without cells.",
    full=Options(("two_body", "rigid_body"), seeds=25),
    quick=Options(("mass_spring",), seeds=1),
    requests=lambda options: [],
    analyse=nothing,
)


def run_empty(out, options, **more):
    settings = {"command": "twinfold bench empty", "resume": False, "workers": 1, "seconds": None} | more
    return run_experiment(EMPTY, options, out, log=lambda line: None, show=False, **settings)


def test_an_experiment_fills_in_what_a_call_leaves_open():
    assert EMPTY.with_defaults(Options()) == Options(("two_body", "rigid_body"), seeds=25)
    assert EMPTY.with_defaults(Options(quick=True)) == Options(("mass_spring",), seeds=1, quick=True)
    assert EMPTY.with_defaults(Options(("robot_arm",), seeds=3)) == Options(("robot_arm",), seeds=3)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with atomic_write(path) as file:
        file.write(b"first")
    assert path.read_bytes() == b"first"

    def fill_the_disk():
        with atomic_write(path) as file:
            file.write(b"half of the sec")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        fill_the_disk()
    assert [each.read_bytes() for each in path.parent.iterdir()] == [b"first"]


def test_a_folder_is_resumed_only_when_asked_and_only_for_the_same_run(tmp_path):
    page, _ = run_empty(tmp_path, Options(seeds=1))
    assert "It says so." in page.read_text()
    assert (tmp_path / "empty" / "numbers.csv").read_text().splitlines()[0] == "a,b"
    assert "| 1.0 | x |" in (tmp_path / "empty" / "tables.md").read_text()
    assert json.loads((tmp_path / "empty" / "config.json").read_text())["settings"]["seeds"] == 1
    with pytest.raises(ConfigurationMismatch, match="--resume"):
        run_empty(tmp_path, Options(seeds=1))
    run_empty(tmp_path, Options(seeds=1), resume=True)
    with pytest.raises(ConfigurationMismatch, match="seeds: 1 in the folder, 2 requested"):
        run_empty(tmp_path, Options(seeds=2), resume=True)


def test_the_list_of_experiments():
    code, output = call("bench", "list")
    assert code == 0
    for name in ("cs2", "ablation", "misspecification", "noise", "conjecture1", "conjecture2", "theory", "cost"):
        assert name in output
        assert name in EXPERIMENTS


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (("bench", "cs3"), "cs2"),
        (("bench", "cs2", "--systems", "two_bdy"), "two_body"),
        (("bench", "cs2", "--models", "phrpin_robust"), "phrpinn_robust"),
        (("bench", "cs2", "--protocol", "papper"), "paper"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(arguments, near):
    code, output = call(*arguments)
    assert code == 2
    assert f"Did you mean '{near}'" in output
    assert "there are:" in output


def test_what_failed_or_came_too_late_is_left_out_with_its_reason(tmp_path):
    store = Store(tmp_path, deadline=time.monotonic() + 100)
    found = []
    for name, compute in (("good", lambda: 1), ("bad", lambda: [][0]), ("last", lambda: 3)):
        with record_skips(store):
            found.append(cached(store, name, [], compute))
    assert found == [1, 3]
    assert store.skipped == [("bad", "IndexError: list index out of range")]
    late = Store(tmp_path, deadline=time.monotonic() - 1)
    assert cached(late, "good", [], lambda: pytest.fail("computed again")) == 1
    with record_skips(late):
        cached(late, "new", [], lambda: pytest.fail("begun too late"))
    assert [name for name, _ in late.skipped] == ["new"]
    assert "--resume" in late.skipped[0][1]


def test_a_result_that_another_process_computes_is_left_to_it(tmp_path):
    store, other = Store(tmp_path), Store(tmp_path)

    def compute():
        with record_skips(other):
            cached(other, "shared", [], lambda: pytest.fail("computed twice"))
        return 1

    assert cached(store, "shared", [], compute) == 1
    assert other.skipped == [("shared", ELSEWHERE)]
    assert cached(other, "shared", [], lambda: pytest.fail("computed again")) == 1


class Elsewhere(AbstractExecutor):
    """Runs tasks here, and is not known to."""

    def run(self, fn, tasks, order, progress, may_start):
        yield from InProcess().run(fn, tasks, order, progress, may_start)


def test_workers_compute_what_an_analysis_needs_but_no_times(tmp_path, monkeypatch):
    """Each result once; what failed there is tried again and is named."""
    monkeypatch.setattr(runner_module, "select_executor", lambda workers, scheduler: Elsewhere())
    computed = []

    def analyse(store, options, log):
        rows = []
        for name in ("a", "time", "bad", "b"):
            with record_skips(store):
                compute = lambda name=name: computed.append((name, store.shared)) or [1][name == "bad"]  # noqa: E731
                rows.append({"name": name, "value": cached(store, name, [], compute, timed=name == "time")})
        return Findings([], [Table("rows", "Rows", rows)])

    one = Experiment("one", "One", "One.", Options(), Options(), lambda options: [], analyse)
    given = {"command": "", "resume": False, "workers": 2, "seconds": None, "log": lambda line: None, "show": False}
    page, report = run_experiment(one, Options(), tmp_path, **given)
    elsewhere = [("a", True), ("bad", True), ("b", True)]
    assert computed == [*elsewhere, ("bad", True), ("time", False), ("bad", False)]
    assert list(report.failed) == ["bad"]
    assert (page.parent / "rows.csv").read_text().split() == ["name,value", "a,1", "time,1", "b,1"]
    computed.clear()
    run_experiment(dataclasses.replace(one, name="two", timed=True), Options(), tmp_path / "timed", **given)
    assert [shared for _, shared in computed] == [False] * 4


def test_limits_of_the_library_that_the_studies_repeat():
    """They are not public, but the studies rely on them."""
    assert job_module.MAX_DTW_SAMPLES == MAX_DTW_SAMPLES
    assert adaptive.MAX_FROZEN_STEPS == MAX_FROZEN_STEPS
    assert monitoring.WORN_CYCLES == END_READINGS


def test_the_best_time_is_the_shortest_after_a_first_call():
    calls = []

    def run():
        calls.append(time.sleep(0.02 if len(calls) in (0, 2) else 0.001))
        return len(calls)

    result, seconds = best_time(run, 3)
    assert (result, len(calls)) == (1, 4)
    assert 0.001 <= seconds < 0.02
    best_time(run, 100, max_seconds=0.0005)
    assert len(calls) == 6
