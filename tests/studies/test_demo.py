"""The demonstration and its command, from end to end with small settings."""

import csv
import json
import re

import jax
import numpy as np
import pytest
from twinfold_studies.bench import demo as demo_module
from twinfold_studies.bench.contenders import model_for
from twinfold_studies.bench.demo import Settings, make_data, run_demo
from twinfold_studies.bench.demo_report import write_report
from twinfold_studies.bench.demo_summary import failure_reasons, summarise, table
from twinfold_studies.systems import SYSTEMS, describe, system
from typer.testing import CliRunner

from twinfold.cli import app
from twinfold.io import ConfigurationMismatch
from twinfold.model._learned.base import count_parameters
from twinfold.report import format_number
from twinfold.train import _run as run_module

TINY = Settings(
    system="mass_spring",
    seeds=2,
    models=("hrpinn", "phrpinn_fast"),
    parameters=40,
    train=3,
    valid=2,
    test=3,
    epochs=(4, 0, 0),
)


def call(*arguments):
    """Exit code and everything that was printed, as one line without the frames of a box."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, re.sub(r"[\s│╭╮╰╯─]+", " ", result.output)


# Arguments


def test_systems_are_listed_with_their_equations():
    code, output = call("systems")
    assert code == 0
    for name in SYSTEMS:
        known, equations = describe(name)
        assert known
        assert equations
        assert name in output
    assert "L = q1 p2 - q2 p1" in output


@pytest.mark.parametrize(("typed", "near"), [("two-bdy", "two_body"), ("pendulum", None), ("Lotka Volterra", "lotka")])
def test_an_unknown_system_is_named_with_the_nearest_one(typed, near):
    code, output = call("demo", "--system", typed)
    assert code == 2
    assert f"'{typed}'" in output
    assert "Traceback" not in output
    for name in SYSTEMS:
        assert name in output
    if near is not None:
        assert f"Did you mean '{near}" in output


@pytest.mark.parametrize(
    ("arguments", "near"), [(("demo", "--sytem", "two_body"), "--system"), (("dmo",), "demo"), (("demo", "-q"), None)]
)
def test_unknown_options_and_commands(arguments, near):
    code, output = call(*arguments)
    assert code == 2
    assert near is None or near in output


def test_a_bad_number_of_seeds():
    code, output = call("demo", "--seeds", "0")
    assert code == 2
    assert "seeds" in output


# The demonstration


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "demo"
    results = run_demo(TINY, out, command="twinfold demo", progress=False)
    write_report(results, out)
    return results, out


def test_parameter_counts_are_matched():
    for name in SYSTEMS:
        of = system(name)
        counts = []
        for model in demo_module.MODELS:
            twin = model_for(model, of, parameters=Settings().parameters)
            drawn = twin.initialise(jax.random.key(0), states=len(of.state_names))
            counts.append(count_parameters(drawn))
        assert max(counts) <= 1.1 * min(counts), (name, counts)


def test_test_trajectories_are_unseen_and_three_times_as_long():
    data = make_data(TINY)
    starts = {tuple(run.y[0]) for part in (data.train, data.valid, data.test) for run in part.runs}
    assert len(starts) == TINY.train + TINY.valid + TINY.test
    assert data.train.runs[0].ts[-1] == pytest.approx(system("mass_spring").horizon)
    assert data.test.runs[0].ts[-1] == pytest.approx(3 * system("mass_spring").horizon)


@pytest.mark.slow
def test_the_report_shows_figures_that_exist(finished):
    _, out = finished
    page = (out / "report.html").read_text()
    figures = re.findall(r'<img src="([^"]+)"', page)
    assert len(figures) == 5
    for name in figures:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert "http" not in page  # nothing from the network
    assert "twinfold demo" in page
    assert "viewport" in page


@pytest.mark.slow
def test_the_summary_is_that_of_the_metrics(finished):
    _, out = finished
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    learned = [line for line in lines if line["field"] == "learned"]
    assert len(learned) == 2 * 2 * TINY.seeds * TINY.test
    with (out / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["horizon"]) for row in rows] == [
        (model, horizon) for model in TINY.models for horizon in ("train", "long")
    ]
    for row in rows:
        chosen = [line for line in learned if (line["model"], line["horizon"]) == (row["model"], row["horizon"])]
        for metric, over_runs in (("mae", np.mean), ("dtw", np.mean), ("relative_violation_max", np.max)):
            seeds = [over_runs([line[metric] for line in chosen if line["seed"] == seed]) for seed in range(2)]
            for kind, over_seeds in (("mean", np.mean), ("std", np.std), ("median", np.median)):
                assert float(row[f"{metric}_{kind}"]) == pytest.approx(over_seeds(seeds), rel=1e-12)
        floors = [
            line["mae"]
            for line in lines
            if (line["field"], line["model"], line["horizon"]) == ("exact", row["model"], row["horizon"])
        ]
        assert float(row["floor_mae"]) == pytest.approx(np.mean(floors), rel=1e-12)


@pytest.mark.slow
def test_the_table_and_its_summary(finished):
    results, _ = finished
    lines = {line.label: line for line in table(results)}
    assert lines["parameters"].cells == [str(outcome.fit.parameters) for outcome in results.outcomes]
    best = lines["MAE, T = 10"].best
    errors = [outcome.metrics["train"].aggregate()["mae"]["mean"] for outcome in results.outcomes]
    assert best == int(np.argmin(errors))
    text = " ".join(summarise(results))
    assert re.search(r"The largest relative violation over all steps and runs is \S+ for PHRPINN fast", text)
    assert "None of the 12 runs failed." in text


def test_numbers_are_short():
    assert [format_number(value) for value in (0.0, 3.14159e-4, 0.314, 12.6, 123456.0, np.inf, np.nan)] == [
        "0",
        "3.1e-4",
        "0.31",
        "13",
        "1.2e5",
        "inf",
        "-",
    ]


@pytest.mark.slow
def test_a_second_call_does_not_fit_again(finished, monkeypatch):
    results, out = finished

    def refuse(*_):
        raise AssertionError("a finished fit was run again")

    monkeypatch.setattr(run_module, "run_epochs", refuse)
    logged = []
    again = run_demo(TINY, out, command="twinfold demo", progress=False, log=logged.append)
    assert logged[0].startswith("Resuming the run")
    assert not again.errors
    for before, after in zip(results.outcomes, again.outcomes, strict=True):
        np.testing.assert_array_equal(before.predictions.predicted, after.predictions.predicted)


@pytest.mark.slow
def test_a_folder_of_another_configuration_is_refused(finished):
    _, out = finished
    other = Settings(**{**vars(TINY), "seeds": 5})
    before = (out / "config.json").read_bytes()
    with pytest.raises(ConfigurationMismatch, match=r"seeds: 2 in the folder, 5 requested") as refusal:
        run_demo(other, out, command="twinfold demo --seeds 5", progress=False)
    assert "--force" in str(refusal.value)
    assert (out / "config.json").read_bytes() == before


def test_a_folder_that_is_no_run_is_never_written_to(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigurationMismatch, match="not the folder of a run"):
        run_demo(TINY, tmp_path, command="twinfold demo", force=True, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    code, output = call("demo", "--system", "mass_spring", "--out", str(tmp_path), "--force")
    assert code == 2
    assert "--out" in output


def test_a_missing_extra_is_named_before_anything_is_fitted(monkeypatch, tmp_path):
    monkeypatch.setattr(demo_module, "EXTRAS", {"no_such_package": "plot", "json": "dtw"})
    code, output = call("demo", "--out", str(tmp_path / "run"))
    assert code == 2
    assert "pip install 'twinfold[plot]'" in output
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_force_starts_over(finished, monkeypatch, tmp_path):
    _, out = finished
    copy = tmp_path / "copy"
    (copy / "fits").mkdir(parents=True)
    for name in ("config.json", "fits/hrpinn.npz"):
        (copy / name).write_bytes((out / name).read_bytes())

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_module, "fit", fail)
    other = Settings(**{**vars(TINY), "seeds": 5})
    results = run_demo(other, copy, command="twinfold demo --force", force=True, progress=False)
    assert results.interrupted
    assert not list((copy / "fits").iterdir())
    assert json.loads((copy / "config.json").read_text())["settings"]["seeds"] == 5


@pytest.mark.slow
def test_one_failing_model_and_an_interrupt_keep_the_rest(finished, monkeypatch, tmp_path):
    whole, out = finished
    real = demo_module.fit

    def sometimes(twin, *arguments, label, checkpoint, **options):
        if label == "NODE":
            raise RuntimeError("the model is not for this system")
        if label == "PHRPINN robust":
            raise KeyboardInterrupt
        return real(twin, *arguments, label=label, checkpoint=out / "fits" / checkpoint.name, **options)

    monkeypatch.setattr(demo_module, "fit", sometimes)
    settings = Settings(**{**vars(TINY), "models": ("node", "hrpinn", "phrpinn_robust", "phrpinn_fast")})
    results = run_demo(settings, tmp_path / "run", command="twinfold demo", progress=False)
    page = write_report(results, tmp_path / "run").read_text()
    assert results.interrupted
    assert [outcome.name for outcome in results.outcomes] == ["hrpinn"]
    assert "not for this system" in page
    assert ("NODE", "RuntimeError: the model is not for this system") in failure_reasons(results)
    predicted = results.outcomes[0].predictions.predicted
    np.testing.assert_array_equal(predicted, whole.outcomes[0].predictions.predicted)
