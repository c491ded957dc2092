"""The refit: held-out runs decide how long to train, and all runs that are not tested are trained on in the end."""

import json
import re

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import twinfold as tw
from twinfold.cli import app
from twinfold.model._learned.base import learned_parts
from twinfold.train import prepare
from twinfold.workspace import _refit, _sweep, open_workspace
from twinfold.workspace._config import FitConfig
from twinfold.workspace._fit import fit_workspace, load_fitted, seen_split
from twinfold.workspace._monitor import _healthy_data
from twinfold.workspace._refit import choose_steps

SYSTEM = """
import jax.numpy as jnp
import twinfold as tw

def still(x):
    return 0 * x

def level(x, p):
    return p["level"] + 0 * x

def start(y):
    return 0 * y

def twin():
    return tw.Twin(still, params={"level": tw.Unknown(0.0)}, observe=level, initial=start)
"""
LEVELS = {"a": 1.0, "b": 1.4, "c": 3.0, "d": 4.0}  # b and c are held out or trained on, d is the test run
SAMPLES = {"a": 10, "b": 10, "c": 20, "d": 10}
SETTINGS = """
[data]
files = ["levels.csv"]
run = "run"
outputs = ["y"]
valid = ["c"]
test = ["d"]

[fit]
seeds = 1
lm_steps = 12
"""


def made(folder, settings="refit = true\n"):
    """Runs at different levels; their least-squares level is the mean over all samples that are trained on."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = [
        {"run": name, "t": 0.1 * k, "y": level + noise}
        for name, level in LEVELS.items()
        for k, noise in enumerate(0.1 * rng.normal(size=SAMPLES[name]))
    ]
    tw.io.write_csv(folder / "levels.csv", rows)
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(SETTINGS + settings)
    return folder


def mean_of(folder, *names):
    data = open_workspace(folder).load_data()
    return float(np.mean(np.concatenate([run.y for run in data.runs if run.name in names])))


def call(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, re.sub(r"\s+", " ", result.output)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("refit") / "levels")
    code, output = call("fit", "-C", folder, "-q")
    assert code in (0, 1), output
    return folder, output


def test_the_final_level_is_the_mean_over_training_and_validation_runs(fitted):
    folder, output = fitted
    found = load_fitted(open_workspace(folder))
    assert float(found.twin.parameters()["level"]) == pytest.approx(mean_of(folder, "a", "b", "c"), abs=1e-4)
    assert abs(mean_of(folder, "a", "b") - mean_of(folder, "a", "b", "c")) > 0.5  # the training runs alone are biased
    assert "trained on training and validation runs together" in output


def test_the_validation_error_is_that_of_the_fit_before(fitted):
    folder, _ = fitted
    metrics = json.loads((folder / "runs/first/metrics.json").read_text())
    data = open_workspace(folder).load_data()
    (held_out,) = (run.y for run in data.runs if run.name == "c")
    expected = np.sqrt(np.mean((held_out - mean_of(folder, "a", "b")) ** 2))
    assert metrics["twin"]["valid"]["rmse"] == pytest.approx(expected, rel=1e-3)
    assert "those of the fit before" in metrics["note"]
    code, output = call("evaluate", "-C", folder)
    assert code in (0, 1)
    assert "those of the fit before" in output
    again = json.loads((folder / "runs/first/metrics.json").read_text())
    assert again["note"] == metrics["note"]
    assert again["twin"]["valid"] == metrics["twin"]["valid"]
    assert again["twin"]["train"]["rmse"] == pytest.approx(metrics["twin"]["train"]["rmse"], rel=1e-9)


def test_the_report_and_info_say_so(fitted):
    folder, _ = fitted
    code, _ = call("report", "-C", folder)
    assert code == 0
    page = (folder / "runs/first/report/index.html").read_text()
    assert "trained on training and validation runs together" in page
    code, output = call("info", folder / "runs/first/model.twin")
    assert code == 0
    assert "trained on training and validation runs together" in output


def test_after_a_refit_only_the_test_runs_are_held_out(fitted, tmp_path):
    folder, _ = fitted
    workspace = open_workspace(folder)
    found = load_fitted(workspace)
    split = seen_split(workspace, found)
    assert (split.train.names, split.valid) == (("a", "b", "c"), None)
    assert _healthy_data(workspace, found, None).names == ("d",)
    other = made(tmp_path / "other", "refit = false\n")
    workspace = open_workspace(other)
    fit_workspace(workspace, progress=False)
    found = load_fitted(workspace)
    assert found.info.trained_on == ""
    assert float(found.twin.parameters()["level"]) == pytest.approx(mean_of(other, "a", "b"), abs=1e-4)
    assert _healthy_data(workspace, found, None).names == ("c", "d")


def test_an_interrupted_refit_resumes(fitted, tmp_path, monkeypatch):
    folder = made(tmp_path / "levels", "refit = true\nfolds = 3\n")
    original, labels = _refit.run_fit, []

    def interrupted(*arguments, label="", **options):
        labels.append(label)
        if label == "refit" and labels.count("refit") == 1:
            raise KeyboardInterrupt
        return original(*arguments, label=label, **options)

    monkeypatch.setattr(_refit, "run_fit", interrupted)
    workspace = open_workspace(folder)
    outcome = fit_workspace(workspace, progress=False)
    assert outcome.interrupted
    assert not (workspace.run_folder / "model.twin").exists()
    assert sorted(path.name for path in workspace.run_folder.glob("fold-*.npz")) == ["fold-1.npz", "fold-2.npz"]
    written = {path.name: path.stat().st_mtime_ns for path in workspace.run_folder.glob("fold-*.npz")}
    said: list[str] = []
    outcome = fit_workspace(workspace, progress=False, log=said.append)
    assert not outcome.interrupted
    assert any("the mean over 3 folds" in line for line in said)
    assert any("3 fits, each with other runs held out" in line for line in said)
    level = float(load_fitted(workspace).twin.parameters()["level"])
    assert level == pytest.approx(mean_of(folder, "a", "b", "c"), abs=1e-4)
    assert set(written) == {path.name for path in workspace.run_folder.glob("fold-*.npz")}
    assert fit_workspace(workspace, progress=False).finished_before
    fit_workspace(workspace, force=True, progress=False)
    assert labels.count("refit") == 3


def test_a_sweep_judges_before_any_refit(fitted, monkeypatch, tmp_path):
    folder = made(tmp_path / "levels")
    monkeypatch.setattr(_refit, "refit", lambda *_, **__: pytest.fail("a sweep does not refit"))
    swept = tw.workspace.sweep_workspace(open_workspace(folder), {"loss.l2": [0.0]}, progress=False)
    expected = np.sqrt(np.mean((3.0 - mean_of(folder, "a", "b")) ** 2))  # in units of the training runs, up to noise
    spread = np.std(np.concatenate([run.y for run in open_workspace(folder).load_split().train.runs]))
    assert swept.rows[0].error * spread == pytest.approx(expected, rel=0.1)
    for name in _sweep.AFTERWARDS:
        with pytest.raises(ValueError, match="before any refit"):
            tw.workspace.sweep_workspace(open_workspace(folder), {name: [True]}, progress=False)


def test_each_block_is_held_out_once_and_the_record_is_whole_in_the_end(tmp_path):
    tw.io.write_csv(tmp_path / "one.csv", [{"t": 0.1 * k, "y": float(k)} for k in range(50)])
    tw.io.write_csv(tmp_path / "two.csv", [{"t": 0.1 * k, "y": -float(k)} for k in range(50)])
    (tmp_path / "system.py").write_text(SYSTEM)
    text = '[data]\nfiles = ["one.csv", "two.csv"]\noutputs = ["y"]\nblocks = 4\nblock_gap = 0\ntest = ["one[3]"]\n'
    (tmp_path / "twinfold.toml").write_text(text + 'valid = ["one[1]"]\n')
    folds = open_workspace(tmp_path).load_folds()
    others = folds.others(100)
    assert len(others) == 6
    held_out = [run.name for split in (folds.given, *others) if split.valid is not None for run in split.valid.runs]
    assert sorted(held_out) == ["one[0]", "one[1]", "one[2]", *(f"two[{k}]" for k in range(4))]
    for split in others:
        assert split.test is None
        assert split.valid is not None
        trained = {float(y) for run in split.train.runs for y in run.y[:, 0]}
        assert not trained & {float(y) for run in split.valid.runs for y in run.y[:, 0]} - {0.0}
        assert not trained & set(map(float, range(38, 50)))  # the test block
    assert folds.everything.train.names == ("one[0-2]", "two[0-3]")
    assert folds.everything.valid is None
    assert len(folds.others(3)) == 2
    assert folds.others(1) == ()


def _network(twin):
    (part,) = learned_parts(twin)
    assert isinstance(part, tw.MLP)
    return part.network


def history(scores, stages=None):
    """That of a fit with these scores [epoch, seed]."""
    scores = np.array(scores, float)
    stages = np.zeros(len(scores)) if stages is None else np.array(stages)
    return {"score": scores, "stage": np.repeat(stages[:, None], scores.shape[1], 1)}


def test_the_mean_over_folds_decides_about_the_steps():
    easy = history([[0.5], [0.1], [0.4], [0.3]])  # by itself: two steps
    others = [history([[3.0], [2.0], [1.0], [0.9]]), history([[3.0], [2.0], [1.5]])]  # the last has ended after three
    assert choose_steps([easy]).steps == (2,)
    choice = choose_steps([easy, *others])
    assert (choice.steps, choice.folds) == ((4,), 3)
    assert choice.scores == pytest.approx((2.7 / 3,))


def test_steps_are_those_of_the_best_seed_and_stages_without_gain_are_left_out():
    scores = [[3.0, 2.0], [2.5, 9.0], [2.0, 1.0], [2.2, 3.0], [np.nan, 5.0]]
    choice = choose_steps([history(scores, [0, 0, 1, 1, 2])])
    assert (choice.steps, choice.seed, choice.scores) == ((1, 1, 0), 1, (2.0, 1.0))
    methods = (tw.Adam(10, patience=3), tw.LevenbergMarquardt(5), tw.LevenbergMarquardt(7))
    assert [each.epochs for each in choice.methods(methods)] == [1, 1]
    assert choice.methods(methods)[0].patience is None
    assert choose_steps([history(scores, [0, 0, 1, 1, 2])], late=True).steps == (1, 1, 1)  # of another model


def test_where_every_seed_fails_in_some_fold_the_validation_runs_decide_alone():
    given = history([[3.0, 2.0], [2.0, 2.5]])
    others = [history([[1.0, np.nan]] * 2), history([[np.inf, 1.0]] * 2)]
    assert choose_steps([given, *others]) == choose_steps([given])
    assert choose_steps([given, others[0]]).seed == 0


def test_a_warm_start_has_the_weights_and_parameters_of_the_fit_before():
    ts = np.linspace(0, 2, 21)

    def data(*rates):
        return tw.Dataset.from_arrays(ts, [np.exp(-k * ts)[:, None] for k in rates], names=[f"run {k}" for k in rates])

    twin = tw.Twin(
        tw.GreyBox(lambda x, p: -p["k"] * x, residual=tw.MLP(width=3, depth=1)), params={"k": tw.Unknown(1.0)}, warmup=5
    )
    first = tw.fit(twin, data(0.7), method=tw.LevenbergMarquardt(3), progress=False).twin
    more = data(0.7, 0.8)
    _, (problem,), params = prepare(first, more, methods=(tw.LevenbergMarquardt(1),), draw=False)
    start = problem.estimate(jax.tree.map(lambda leaf: leaf[0], params)).twin
    weights = [jax.tree.leaves(_network(each)) for each in (start, first)]
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert float(start.parameters()["k"]) == float(first.parameters()["k"])
    assert start.runs == more.names
    assert isinstance(start.initial, tw.Unknown)
    states = np.asarray(jax.vmap(start.initial.value)(np.arange(2)))[:, 0]
    np.testing.assert_allclose(states, 1.0, atol=0.02)
    with pytest.raises(ValueError, match="no weights to start from"):
        prepare(twin, more, draw=False)


def test_a_refit_that_is_lost_continues_the_best_fold(tmp_path, monkeypatch):
    folder = made(tmp_path / "levels", "refit = true\n")
    original = _refit.scaled_errors
    monkeypatch.setattr(
        _refit,
        "scaled_errors",
        lambda model, *rest: original(model, *rest) + (100.0 if isinstance(model, tw.Fit) else 0.0),
    )
    workspace = open_workspace(folder)
    said: list[str] = []
    fit_workspace(workspace, progress=False, log=said.append)
    assert any("continues the fit of a fold" in line for line in said)
    found = load_fitted(workspace)
    assert float(found.twin.parameters()["level"]) == pytest.approx(mean_of(folder, "a", "b", "c"), abs=1e-4)
    assert (workspace.run_folder / "continued.npz").exists()
    code, _ = call("report", "-C", folder)
    assert code == 0


def test_folds_without_a_refit_are_refused():
    with pytest.raises(ValueError, match=r"set fit\.refit = true as well"):
        FitConfig(refit=False, folds=3)
