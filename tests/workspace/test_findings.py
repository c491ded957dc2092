"""What a fit says about its data: problems found before it, and a baseline that is better after it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import twinfold as tw
from twinfold.cli import app
from twinfold.data._duplicates import find_duplicates
from twinfold.workspace import _fit, _train
from twinfold.workspace._baselines import compare_with_baselines, judge_fit
from twinfold.workspace._check import examine_workspace
from twinfold.workspace._data import DataSplit
from twinfold.workspace._system import System

TS = np.linspace(0.0, 2.0, 41)


def noisy(seed: int, samples: int = 41) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(samples, 2))


def dataset(*ys: np.ndarray, names: list[str] | None = None, **options) -> tw.Dataset:
    times = [np.linspace(0, 1, len(y)) for y in ys]
    return tw.Dataset.from_arrays(times, list(ys), names=names, **options)


def test_copies_are_found_whatever_their_name_time_and_length():
    y, other = noisy(0), noisy(1)
    with_gap = y.copy()
    with_gap[3, 1] = np.nan
    assert find_duplicates(dataset(y, other)) == {}
    assert find_duplicates(dataset(y, other, y)) == {(0, 2): 1.0}
    assert find_duplicates(dataset(with_gap, with_gap[10:])) == {(0, 1): 1.0}
    assert find_duplicates(dataset(np.concatenate([other, y[:30]]), np.concatenate([y, other[:3]]))) == {
        (0, 1): pytest.approx(23 / 37)
    }
    assert find_duplicates(dataset(y[:3], y[:3], y[3:6])) == {(0, 1): 1.0}
    assert find_duplicates(dataset(np.zeros((30, 1)), np.zeros((30, 1)))) == {}  # a standstill is no copy
    # Other inputs: another experiment.
    assert find_duplicates(dataset(y, y, inputs=[noisy(2), noisy(3)])) == {}


def decays(starts: list[float], **options) -> tw.Dataset:
    rng = np.random.default_rng(4)
    ys = [x0 * np.exp(-0.7 * TS)[:, None] + 1e-3 * rng.normal(size=(len(TS), 1)) for x0 in starts]
    return tw.Dataset.from_arrays(TS, ys, output_names=["x"], **options)


def findings(data: tw.Dataset, tmp_path, **options) -> list[tuple[str, str]]:
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)}, **options)
    system = System(tmp_path / "system.py", "", twin, ("x",), {})
    split = DataSplit(data.select(data.names[:2]), None, data.select(data.names[2:]))
    return [(each.kind, each.severity) for each in examine_workspace(system, split).serious]


def test_sound_data_have_no_findings(tmp_path):
    assert findings(decays([1.0, 2.0, 1.5]), tmp_path) == []


def test_the_same_run_in_train_and_test_is_a_problem(tmp_path):
    data = decays([1.0, 2.0])
    copy = tw.Run("another name", TS + 5.0, data.runs[1].y)
    doubled = tw.Dataset((*data.runs, copy), ("x",))
    assert findings(doubled, tmp_path) == [("duplicated", "warning"), ("held out", "problem")]


def test_a_wrong_initial_state_is_a_problem(tmp_path):
    wrong = decays([1.0, 2.0, 1.5], x0=[np.array([2.0]), np.array([4.0]), np.array([3.0])])
    assert ("initial", "problem") in findings(wrong, tmp_path)
    estimated = tw.Unknown(np.array([1.0]), per_run=True)
    assert ("initial", "problem") not in findings(decays([1.0, 2.0, 1.5]), tmp_path, initial=estimated)


def test_constant_outputs_are_a_problem(tmp_path):
    still = tw.Dataset.from_arrays(TS, np.full((3, len(TS), 1), 2.0), output_names=["x"])
    assert ("constant", "problem") in findings(still, tmp_path)


def test_a_baseline_that_is_better_is_a_problem_where_it_counts():
    metrics = {
        "twin": {"train": {"rmse": 0.1}, "test": {"rmse": 0.5}},
        "fitted physics": {"train": {"rmse": 0.2}, "test": {"rmse": 0.4}},
        "constant": {"train": {"rmse": 1.0}, "test": {"rmse": None}},
    }
    (found,) = compare_with_baselines(metrics)
    assert found.severity == "problem"
    assert "'fitted physics' predicts the test runs better than the twin (RMSE 0.4 and 0.5)" in found.message
    for tie in (0.3, 0.401):  # a difference in the last digits does not count
        metrics["twin"]["test"]["rmse"] = tie
        assert compare_with_baselines(metrics) == []
    metrics["twin"]["test"]["rmse"] = None  # the twin failed
    assert [each.detail["model"] for each in compare_with_baselines(metrics)] == ["fitted physics"]


@pytest.mark.parametrize(("error", "stuck"), [(0.9, False), (1.1, True), (None, True)])
def test_a_fit_that_does_not_follow_its_own_runs_is_told_to_take_windows(error, stuck):
    metrics = {"twin": {"train": {"rmse": error}}, "constant": {"train": {"rmse": 1.0}}}
    said = [each.message for each in judge_fit(metrics) if each.severity == "problem"]
    assert any("--set fit.window=50" in message for message in said) == stuck


SYSTEM = """
import twinfold as tw

def twin():
    return tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
"""
TOML = """
[data]
files = ["all.csv"]
run = "id"
outputs = ["x"]
valid = 0.0
test = ["copy"]

[fit]
seeds = 1
adam_epochs = 2
lm_steps = 0
"""


def test_a_fit_without_a_finite_seed_is_recorded(tmp_path, monkeypatch):
    (tmp_path / "system.py").write_text(SYSTEM)
    (tmp_path / "twinfold.toml").write_text('[data]\nfiles = ["all.csv"]\noutputs = ["x"]\n')
    (tmp_path / "all.csv").write_text("t,x\n0,1\n1,0.5\n2,0.3\n")
    done = SimpleNamespace(scores=np.array([np.nan]), interrupted=False, failures={})
    monkeypatch.setattr(_fit, "examine_workspace", lambda system, split: SimpleNamespace(serious=()))
    monkeypatch.setattr(_train, "run_fit", lambda *_, **__: done)
    monkeypatch.setattr(_fit.files, "write_history", lambda folder, done: None)
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(ValueError, match="Every seed became non-finite"):
            _fit.fit_workspace(tw.workspace.open_workspace(tmp_path), progress=False, log=said.append)
        (path,) = tmp_path.glob("runs/*/findings.json")
        (stored,) = json.loads(path.read_text())
        assert (stored["kind"], stored["severity"]) == ("diverged", "problem")
    assert not [line for line in said if line.startswith("Problem")]  # it is not known before the fit


def test_a_fit_says_its_problems_first_and_the_exit_code_and_the_metrics_carry_them(tmp_path):
    (tmp_path / "system.py").write_text(SYSTEM)
    (tmp_path / "twinfold.toml").write_text(TOML)
    data = decays([1.0, 2.0])
    rows = [
        f"{run.name},{t!r},{float(x)!r}" for run in data.runs for t, x in zip(TS.tolist(), run.y[:, 0], strict=True)
    ]
    copy = [f"copy,{t + 3.0!r},{float(x)!r}" for t, x in zip(TS.tolist(), data.runs[1].y[:, 0], strict=True)]
    (tmp_path / "all.csv").write_text("\n".join(["id,t,x", *rows, *copy]) + "\n")
    first, again = (CliRunner().invoke(app, ["fit", "-q", "-C", str(tmp_path)]) for _ in range(2))
    for result in (first, again):
        assert result.exit_code == 1, result.output
        before, _, after = result.output.partition("RMSE")
        assert (
            "Problem: The same measurements are in different parts of the data: '1' (train) and 'copy' (test)" in before
        )
        assert "Model:" in after
    assert "already holds this fit" in again.output
    (run,) = (tmp_path / "runs").iterdir()
    stored = json.loads((run / "metrics.json").read_text())["findings"]
    assert [each["kind"] for each in stored if each["severity"] == "problem"] == ["held out"]
