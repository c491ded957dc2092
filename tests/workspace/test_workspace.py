"""The path from a folder to a fitted twin: projects, systems, splits, run folders, commands; the twin has one state."""

import dataclasses
import importlib
import json
import re
import shutil
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from twinfold.check import Finding
from twinfold.cli import app
from twinfold.data._dataset import Dataset
from twinfold.io import ConfigurationMismatch, read_info
from twinfold.monitor import Verdict
from twinfold.workspace import _fit as training_module
from twinfold.workspace import _monitor as monitor_module
from twinfold.workspace import _run_fit
from twinfold.workspace._config import DataConfig, read_config
from twinfold.workspace._data import read_new_files, split_data
from twinfold.workspace._export import export_spec
from twinfold.workspace._files import (
    OPENINGS,
    claim_run_folder,
    count_openings,
    read_findings,
    read_history,
    record_opening,
    write_findings,
)
from twinfold.workspace._fit import fit_workspace, load_fitted
from twinfold.workspace._new import new_project
from twinfold.workspace._report import _all_seeds, read_metrics
from twinfold.workspace._samples import SAMPLES, motor_rate, pendulum_rate, tank_rate
from twinfold.workspace._system import load_system
from twinfold.workspace._workspace import open_workspace

pd = pytest.importorskip("pandas")

SYSTEM = """
import twinfold as tw

STATES = ["x"]
UNITS = {"time": "s", "x": "m", "u": "m/s"}


def rate(x, w, p):
    return -p["k"] * x + w


def twin():
    return tw.Twin(rate, params={"k": tw.Unknown(1.0, positive=True)})
"""
TOML = """
[data]
files = ["data/*.csv"]
run = "id"
inputs = ["u"]
outputs = ["x"]

[fit]
seeds = 1
lm_steps = 12

[run]
folder = "runs/a"
"""
DECAY, STEP = 0.7, 0.05


def decays(runs: int = 5, samples: int = 21) -> str:
    """x' = -k x + u with u held between samples, exact."""
    rng, lines, kept = np.random.default_rng(0), ["id,t,u,x"], np.exp(-DECAY * STEP)
    for run in range(runs):
        x = rng.uniform(0.5, 2)
        for sample in range(samples):
            u = float(sample // 7) - 1
            lines.append(f"{run},{sample * STEP!r},{u},{float(x)!r}")
            x = kept * x + (1 - kept) / DECAY * u
    return "\n".join(lines) + "\n"


def made(folder):
    (folder / "data").mkdir(parents=True)
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(TOML)
    (folder / "data" / "all.csv").write_text(decays())
    return folder


def call(*arguments):
    """Exit code and all that was printed, as one line."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result.exit_code, re.sub(r"[\s│╭╮╰╯─]+", " ", result.output)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("work") / "decay")
    code, output = call("fit", "-q", "-C", folder)
    assert code == 0, output
    return folder, output


# Projects


@pytest.mark.parametrize("template", list(SAMPLES))
def test_a_new_project_is_complete_and_readable(template, tmp_path):
    files = new_project(tmp_path / "plant", template)
    assert [path.relative_to(tmp_path / "plant").as_posix() for path in files] == [
        "system.py",
        "twinfold.toml",
        "README.md",
        "data/sample.csv",
    ]
    workspace = open_workspace(tmp_path / "plant")
    system, parts = workspace.load_system(), workspace.load_split()
    assert [len(data) for data in parts.by_name().values()] == [6, 2, 2]
    assert "plant" in (tmp_path / "plant" / "README.md").read_text()
    assert set(system.states or ()) | {"time", *parts.train.input_names} == set(system.units)
    before = (tmp_path / "plant" / "system.py").read_bytes()
    with pytest.raises(FileExistsError, match="not empty"):
        new_project(tmp_path / "plant", template)
    assert (tmp_path / "plant" / "system.py").read_bytes() == before
    with pytest.raises(ValueError, match="Did you mean 'motor'"):
        new_project(tmp_path / "other", "moter")


def test_a_project_whose_creation_was_killed_is_completed(tmp_path):
    expected = {path.name: path.read_bytes() for path in new_project(tmp_path / "whole" / "plant")}
    folder = tmp_path / "killed" / "plant"
    shutil.copytree(tmp_path / "whole" / "plant", folder)
    (folder / "data" / "sample.csv").rename(folder / "data" / "sample.csv.host.1.part")
    (folder / "README.md").unlink()
    assert {path.name: path.read_bytes() for path in new_project(folder)} == expected
    (folder / "README.md").unlink()
    (folder / "system.py").write_text("# mine\n")
    with pytest.raises(FileExistsError, match="not empty"):
        new_project(folder)
    assert not (folder / "README.md").exists()


@pytest.mark.parametrize(
    ("template", "rate", "p", "x", "missing"),
    [
        # Along the rod the drag is taken up by the rod; across it, it is the drag itself.
        ("pendulum", pendulum_rate, {"mass": 0.8}, [0.72, -0.96, 1.6, 1.2], [0, 0, -(0.08 + 0.3) * 1.6, -0.38 * 1.2]),
        ("motor", motor_rate, {"resistance": 1.3}, [2.0, 200.0], [0, -(0.012 + 3e-5 * 200) / 5e-5]),
        (
            "tank",
            tank_rate,
            {"valve": 1.4e-3},
            [0.3, 0.25],
            [0, -6e-4 * np.sqrt(0.250001) * 1.794646 / 0.04],
        ),
    ],
)
def test_the_sample_differs_from_the_physics_by_what_is_to_be_learned(template, rate, p, x, missing, tmp_path):
    new_project(tmp_path / "plant", template)
    field: Any = load_system(tmp_path / "plant" / "system.py").twin.field
    known = np.asarray(field.physics(0.0, np.array(x), np.array([0.4]), p))
    np.testing.assert_allclose(rate(np.array(x), 0.4) - known, missing, rtol=1e-4, atol=1e-9)


# The user's file


def test_a_changed_system_is_not_run_unless_it_is_trusted(tmp_path):
    path, marker = tmp_path / "system.py", tmp_path / "ran"
    path.write_text(SYSTEM)
    sha = load_system(path).sha256
    path.write_text(SYSTEM + f"\nopen({str(marker)!r}, 'w').close()\n")
    with pytest.raises(ValueError, match=r"not run.*--trust-changed-system"):
        load_system(path, sha256=sha)
    assert not marker.exists()
    assert load_system(path, sha256=sha, trust_changed=True).sha256 != sha
    assert marker.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", "line 1: '\\(' was never closed"),
        ("\n1 / 0\n", "line 2, in <module>: ZeroDivisionError"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError"),
        (
            "def twin():\n    return helper()\n\n\ndef helper():\n    raise KeyError('k')\n",
            "line 6, in helper: KeyError",
        ),
        ("pass\n", "no function twin"),
        ("def twin():\n    return 3\n", "returned a int"),
        ("raise SystemExit\n", "SystemExit"),
        ("STATES = 'x'\n" + SYSTEM.replace('["x"]', "[1]"), r"system.py: STATES\[0\] is 1; it must be a string"),
        ("\0", "null|source"),
    ],
)
def test_mistakes_in_system_py_are_named_with_their_line(text, message, tmp_path):
    (tmp_path / "system.py").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_system(tmp_path / "system.py")


def test_the_arguments_of_a_fit_are_used_again(fitted, tmp_path):
    """Whatever twinfold.toml says after the fit."""
    shutil.copytree(fitted[0], tmp_path / "decay")
    source = SYSTEM.replace("twin():", "twin(guess=1.0):").replace("1.0, p", "guess, p")
    (tmp_path / "decay" / "system.py").write_text(source)
    options = ["fit.lm_steps=1", "run.folder=runs/b"]
    fit_workspace(open_workspace(tmp_path / "decay", [*options, "model.guess=0.3"]), progress=False)
    for changes in ([], ["model.guess=5"]):
        loaded = load_fitted(open_workspace(tmp_path / "decay", [*options, *changes]))
        assert loaded.info.config["model"] == loaded.system.arguments == {"guess": 0.3}
        assert float(loaded.system.twin.parameters()["k"]) == pytest.approx(0.3)
    with pytest.raises(ConfigurationMismatch, match=r"model\.guess: 0\.3 in the folder, 0\.4 requested"):
        fit_workspace(open_workspace(tmp_path / "decay", [*options, "model.guess=0.4"]), progress=False)


# Splits


def runs(count: int) -> Dataset:
    return Dataset.from_arrays(np.arange(3.0), [np.ones((3, 1)) * index for index in range(count)])


@pytest.mark.parametrize(
    ("count", "valid", "test", "sizes", "notes"),
    [
        (10, 0.2, 0.2, [6, 2, 2], 0),
        (3, 0.2, 0.2, [1, 1, 1], 0),
        (2, 0.2, 0.2, [1, 1], 1),
        (1, 0.2, 0.2, [1], 2),
        (4, 0.0, 0.5, [2, 2], 0),
        (4, ("0",), ("3", "1"), [1, 1, 2], 0),
    ],
)
def test_every_run_is_in_one_part(count, valid, test, sizes, notes):
    parts = split_data(runs(count), DataConfig(files=("a",), outputs=("y0",), valid=valid, test=test))
    named = parts.by_name()
    assert [len(data) for data in named.values()] == sizes
    assert sorted(name for data in named.values() for name in data.names) == sorted(runs(count).names)
    assert len(parts.notes) == notes


def cells():
    """Two discharges of each of four cells."""
    names = [f"B000{cell}/{index}" for cell in (5, 6, 7, 18) for index in (0, 1)]
    return Dataset.from_arrays(
        [0.0, 1.0], np.zeros((8, 2, 1)), names=names, groups=[name.partition("/")[0] for name in names]
    )


def test_trained_on_some_cells_and_tested_on_others():
    def split(**settings):
        return split_data(cells(), DataConfig(files=("a",), outputs=("y0",), **settings))

    parts = split(train=("B0005", "B0006"), valid=0.0, test=("B00018",))
    assert parts.train.names == ("B0005/0", "B0005/1", "B0006/0", "B0006/1")
    assert parts.test is not None
    assert parts.test.names == ("B00018/0", "B00018/1")
    assert parts.valid is None
    assert parts.notes == ("2 of 8 runs are in none of data.train, data.test, and not used.",)
    first = split(train=("*/0",), valid=("B000?/1",), test=("B00018/1",))
    assert first.train.names == ("B0005/0", "B0006/0", "B0007/0", "B00018/0")
    assert first.valid is not None
    assert first.valid.names == ("B0005/1", "B0006/1", "B0007/1")
    held_out = split(valid=0.0, test=("B0006",))
    assert held_out.train.groups == ("B0005",) * 2 + ("B0007",) * 2 + ("B00018",) * 2
    with pytest.raises(ValueError, match=r"The run 'B0006/0' is in data\.train and in data\.test"):
        split(train=("B000*",), valid=0.0, test=("B0006",))
    with pytest.raises(ValueError, match=r"data\.train: there is no run or group 'B0008'"):
        split(train=("B0008",), valid=0.0, test=("B0006",))


# Fits


def test_a_fit_finds_the_parameter_and_keeps_all_in_its_folder(fitted):
    folder, output = fitted
    run = folder / "runs" / "a"
    # Some versions of filelock leave the lock file.
    assert {path.name for path in run.iterdir()} - {".lock"} == {
        "config.json",
        "config.toml",
        "findings.json",
        "fit.npz",
        "model.twin",
        "seeds.npz",
        "history.jsonl",
        "metrics.json",
        "test_openings.json",
    }
    workspace = open_workspace(folder)
    found = load_fitted(workspace)
    assert float(found.twin.parameters()["k"]) == pytest.approx(DECAY, abs=1e-6)
    assert (found.info.states, found.info.inputs, found.info.dt) == (("x",), ("u",), STEP)
    assert read_config(run / "config.toml") == workspace.config
    metrics = read_metrics(workspace, found)
    assert metrics["twin"]["test"]["rmse"] < 1e-6
    first = float(workspace.load_system().twin.parameters()["k"])
    assert metrics["pure physics"]["test"]["rmse"] > 0.01 * abs(first - DECAY)
    train, test = workspace.load_split().train, workspace.load_split().test
    mean = np.concatenate([run.y for run in train.runs]).mean()
    assert test is not None
    expected = np.mean([np.sqrt(np.mean((run.y - mean) ** 2)) for run in test.runs])
    assert metrics["constant"]["test"]["rmse"] == pytest.approx(expected, rel=1e-12)
    assert "RMSE" in output
    history = read_history(run)
    assert history is not None
    assert history["loss"].shape[1] == 1
    assert history["loss"][-1, 0] < 1e-10 < history["loss"][0, 0]


def test_the_same_command_does_not_fit_again(fitted, monkeypatch):
    monkeypatch.setattr(_run_fit, "fit", lambda *_, **__: pytest.fail("a finished fit was run again"))
    code, output = call("fit", "-C", fitted[0])
    assert code == 0
    assert "already holds this fit" in output


def test_another_configuration_is_refused_and_nothing_touched(fitted):
    folder, _ = fitted
    run = folder / "runs" / "a"
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    code, output = call("fit", "-C", folder, "--set", "fit.lm_steps=99")
    assert code == 2
    assert "fit.lm_steps: 12 in the folder, 99 requested" in output
    assert "--force" in output
    system = folder / "system.py"
    system.write_text(SYSTEM + "\n# changed\n")
    try:
        code, output = call("fit", "-C", folder)
        assert code == 2
        assert "system sha256" in output
        code, output = call("evaluate", "-C", folder)
        assert code == 2
        assert "was not run" in output
    finally:
        system.write_text(SYSTEM)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_folder_that_is_no_run_is_never_written_to(fitted, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    code, output = call("fit", "-C", fitted[0], "--out", tmp_path, "--force")
    assert code == 2
    assert "not the folder of a run" in output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_interrupted_fit_leaves_no_model_and_goes_on_from_its_checkpoint(fitted, monkeypatch, tmp_path):
    folder = tmp_path / "decay"
    shutil.copytree(fitted[0], folder)
    run = folder / "runs" / "a"
    for name in ("model.twin", "metrics.json"):
        (run / name).unlink()
    real, given = _run_fit.fit, []

    def stopped(*arguments, **options):
        given.append(options["checkpoint"])
        done = real(*arguments, **options)
        object.__setattr__(done, "interrupted", len(given) == 1)
        return done

    monkeypatch.setattr(_run_fit, "fit", stopped)
    workspace = open_workspace(folder)
    assert fit_workspace(workspace, progress=False).interrupted
    assert given == [run / "fit.npz"]
    assert not (run / "model.twin").exists()
    logged = []
    assert not fit_workspace(workspace, progress=False, log=logged.append).interrupted
    assert logged[0] == f"Resuming the fit in {run}."
    original = read_info(fitted[0] / "runs" / "a" / "model.twin")
    assert read_info(run / "model.twin").metrics == original.metrics


def unfinished_copy(fitted, tmp_path):
    """A workspace whose fit was killed before its last file was written."""
    shutil.copytree(fitted[0], tmp_path / "decay")
    (tmp_path / "decay" / "runs" / "a" / "metrics.json").unlink()
    return open_workspace(tmp_path / "decay")


def test_a_fit_that_was_killed_after_its_comparison_says_each_finding_once(fitted, monkeypatch, tmp_path):
    workspace = unfinished_copy(fitted, tmp_path)
    before, worse = (Finding("gaps", "warning", "A gap."),), Finding("baseline", "problem", "A baseline is better.", {})
    write_findings(workspace.run_folder, (*before, worse))
    metrics = read_info(workspace.run_folder / "model.twin").metrics
    monkeypatch.setattr(training_module, "evaluate_with_baselines", lambda *_: metrics)
    monkeypatch.setattr(training_module, "judge_fit", lambda _: [worse])
    logged = []
    outcome, stored = fit_workspace(workspace, progress=False, log=logged.append), read_findings(workspace.run_folder)
    expected = [*(each.message for each in before), worse.message]
    assert [each.message for each in outcome.findings] == [each.message for each in stored or ()] == expected
    assert logged.count("Problem: A baseline is better.") == 1


def test_a_fit_that_is_interrupted_in_its_baseline_does_not_finish_without_it(fitted, monkeypatch, tmp_path):
    workspace = unfinished_copy(fitted, tmp_path)
    real = training_module.fit

    def stopped(*arguments, **options):
        done = real(*arguments, **options)
        return dataclasses.replace(done, interrupted=options["checkpoint"].name == "physics.npz")

    monkeypatch.setattr(training_module, "fit", stopped)
    monkeypatch.setattr(training_module, "learned_parts", lambda _: ["a network"])
    assert fit_workspace(workspace, progress=False).interrupted
    assert not (workspace.run_folder / "metrics.json").exists()


# What comes after


def test_a_watch_that_was_killed_before_its_end_is_repeated(fitted, monkeypatch, tmp_path):
    workspace = open_workspace(fitted[0])
    verdict = Verdict("healthy", "", 0, 1, "")
    watched = SimpleNamespace(rows=[{"window": 2}], verdict=verdict, state=lambda: {"format": 2}, figure=lambda: None)
    monkeypatch.setattr(monitor_module, "watch", lambda *_, **__: watched)
    monkeypatch.setattr(monitor_module, "save", lambda *_: None)
    (tmp_path / "windows.csv").write_text("window\n1\n")

    def resumed(state: dict) -> list[str]:
        (tmp_path / "state.json").write_text(json.dumps(state))
        data = [str(fitted[0] / "data" / "all.csv")]
        monitor_module.monitor_workspace(workspace, load_fitted(workspace), data, folder=tmp_path, resume=True)
        return (tmp_path / "windows.csv").read_text().split()

    with monkeypatch.context() as killed:
        killed.setattr(monitor_module, "save", lambda *_: 1 / 0)  # after the table was written
        with pytest.raises(ZeroDivisionError):
            resumed({"table rows": 1})
    assert json.loads((tmp_path / "state.json").read_text()) == {"table rows": 1}
    assert resumed({"table rows": 1}) == ["window", "1", "2"]
    assert json.loads((tmp_path / "state.json").read_text()) == {"format": 2, "table rows": 2}
    assert resumed({}) == ["window", "1", "2", "2"]  # as in version 0.2: the state of the whole table


def test_evaluate_and_info_say_the_same_numbers(fitted, tmp_path):
    folder, _ = fitted
    before = json.loads((folder / "runs" / "a" / "metrics.json").read_text())
    code, _ = call("evaluate", "-C", folder, "--out", tmp_path / "m.json")
    assert code == 0
    assert json.loads((folder / "runs" / "a" / "metrics.json").read_text()) == before
    assert before.pop("findings") == []
    assert json.loads((tmp_path / "m.json").read_text()) == before
    assert before.pop("units") == {"rmse": "m", "rmse x": "m", "mae": "m", "valid_time": "s"}
    code, output = call("info", "-C", folder, "--json")
    assert code == 0
    assert json.loads(output)["metrics"] == before
    code, output = call("info", folder / "runs" / "a" / "model.twin")
    assert code == 0
    assert "u [m/s] from -1 to 1" in output


def test_a_new_file_is_judged_as_a_whole(fitted, tmp_path, monkeypatch):
    folder, _ = fitted
    monkeypatch.chdir(tmp_path)
    before = (folder / "runs" / "a" / "metrics.json").read_bytes()
    # One run without a column of names, and several; the constant is the mean of the training data.
    ts = np.linspace(0, 1, 21)
    pd.DataFrame({"t": ts, "u": 0.0, "x": 3 * np.exp(-DECAY * ts)}).to_csv("monday.csv", index=False)
    (tmp_path / "tuesday.csv").write_text(decays(runs=3))
    code, output = call("evaluate", "monday.csv", "tuesday.csv", "-C", folder, "--out", "m.json")
    assert code == 0, output
    assert "train" not in output
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert all(list(metrics[model]) == ["monday", "tuesday"] for model in ("twin", "pure physics", "constant"))
    assert metrics["twin"]["monday"]["rmse"] < 1e-5
    mean = np.mean(np.concatenate([run.y for run in open_workspace(folder).load_split().train.runs]))
    expected = np.sqrt(np.mean((3 * np.exp(-DECAY * ts) - mean) ** 2))
    np.testing.assert_allclose(metrics["constant"]["monday"]["rmse"], expected, rtol=1e-9)
    assert (folder / "runs" / "a" / "metrics.json").read_bytes() == before
    code, output = call("evaluate", "none.csv", "-C", folder)
    assert (code, "there is no file 'none.csv'" in output) == (2, True)


def test_other_files_may_share_the_names_of_their_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(decays(runs=2))
    config = DataConfig(files=("x.csv",), outputs=("x",), inputs=("u",), run="id", blocks=4)
    parts = read_new_files(config, ["*.csv"])
    assert {name: data.names for name, data in parts.items()} == {"a": ("a: 0", "a: 1"), "b": ("b: 0", "b: 1")}
    assert read_new_files(config, ["b.csv"])["b"].names == ("0", "1")


def test_commands_that_read_a_fit_take_its_configuration(fitted, tmp_path):
    folder = tmp_path / "decay"
    shutil.copytree(fitted[0], folder)
    # What twinfold.toml names now does not even exist.
    changed = TOML.replace('"data/*.csv"', '"data/later.csv"').replace("seeds = 1", "seeds = 4")
    (folder / "twinfold.toml").write_text(changed)
    now = open_workspace(folder)
    stored = now.as_fitted()
    assert (stored.config.data.files, stored.config.fit.seeds) == (("data/*.csv",), 1)
    assert stored.differences(now) == ["data.files", "fit.seeds"]
    assert now.as_fitted(["data.test=0.0"]).config.data.test == 0
    before = json.loads((folder / "runs" / "a" / "metrics.json").read_text())
    code, output = call("evaluate", "-C", folder)
    assert code == 0, output
    assert json.loads((folder / "runs" / "a" / "metrics.json").read_text()) == before
    assert "is that of the fit" in output
    assert "other values of data.files, fit.seeds, which the next fit will use" in output
    code, output = call("evaluate", "-C", fitted[0])
    assert "is that of the fit" not in output


def test_estimates_have_their_errors_in_the_model_file_and_on_the_console(fitted):
    folder, said = fitted
    (k,) = read_info(folder / "runs" / "a" / "model.twin").parameters
    assert k["name"] == "k"
    assert k["value"] == pytest.approx(DECAY, rel=1e-6)
    assert (k["first guess"], k["flag"]) == (1.0, "")
    # The data are exact, so what is left is the error of the integrator.
    assert 0 < k["standard error"] < 1e-6
    line = f"k {k['value']:.5g} {k['standard error']:.2g} 1"
    assert line in said
    for arguments in (("info",), ("fit", "-q")):
        code, output = call(*arguments, "-C", folder)
        assert code == 0
        assert line in output
        assert "FIT % NRMSE RMSE [m] valid time [s]" in output


def test_how_often_the_test_data_were_opened_is_kept(fitted, tmp_path):
    folder = tmp_path / "decay"
    shutil.copytree(fitted[0], folder)
    run = folder / "runs" / "a"
    (run / OPENINGS).write_text("[1, damaged")  # a note, not a condition
    test = open_workspace(folder).load_split().test
    assert count_openings(run, test) == {}
    code, output = call("evaluate", "-C", folder)
    assert code == 0, output
    assert count_openings(run, test) == {"evaluate": 1}
    call("evaluate", folder / "data" / "all.csv", "-C", folder)  # a file is none of the parts
    call("evaluate", "-C", folder, "--set", "data.test=0.0")  # nothing to open
    call("fit", "-q", "-C", folder)  # finished before
    assert count_openings(run, test) == {"evaluate": 1}
    call("evaluate", "-C", folder, "--set", "data.test=0.4")  # other runs
    assert count_openings(run, test) == {"evaluate": 1}
    record_opening(run, "fit", test)
    with claim_run_folder(run, open_workspace(folder).config, ("", ""), force=True):
        assert count_openings(run, test) == {"evaluate": 1, "fit": 1}  # starting over does not make it unseen
    assert count_openings(fitted[0] / "runs" / "a", test)["fit"] == 1


def test_a_report_without_the_file_of_its_seeds_shows_one_seed_and_says_so(fitted, tmp_path):
    folder = tmp_path / "decay"
    shutil.copytree(fitted[0], folder)
    workspace = open_workspace(folder)
    found, seeds = load_fitted(workspace), workspace.run_folder / "seeds.npz"
    all_seeds = _all_seeds(workspace, found)
    assert all_seeds is not None
    assert float(all_seeds.twin.parameters()["k"]) == float(found.twin.parameters()["k"])
    seeds.write_bytes(seeds.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="one seed only") as caught:
        assert _all_seeds(workspace, found) is None
    assert "elete" not in str(caught[0].message)  # the command only reads
    seeds.unlink()
    assert _all_seeds(workspace, found) is None


def test_simulate_follows_the_closed_form(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ts = np.linspace(0, 1, 11)
    pd.DataFrame({"t": ts, "u": 0.0}).to_csv("in.csv", index=False)
    code, output = call("simulate", "in.csv", "-C", fitted[0], "--x0", "2")
    assert code == 0, output
    table = pd.read_csv("simulation.csv")
    assert list(table.columns) == ["run", "t", "u", "x"]
    np.testing.assert_allclose(table["x"], 2 * np.exp(-DECAY * ts), rtol=1e-6)
    assert (tmp_path / "simulation.png").read_bytes().startswith(b"\x89PNG")
    code, output = call("simulate", "in.csv", "-C", fitted[0])
    assert code == 2
    assert "--x0" in output
    pd.DataFrame({"t": ts, "u": 0.0, "x": 3.0}).to_csv("in.csv", index=False)  # the first row says where it starts
    code, _ = call("simulate", "in.csv", "-C", fitted[0], "--no-plot", "--out", "out.parquet")
    assert code == 0
    np.testing.assert_allclose(pd.read_parquet("out.parquet")["x"], 3 * np.exp(-DECAY * ts), rtol=1e-6)


def test_the_export_has_the_names_and_the_range_of_the_data(fitted):
    workspace = open_workspace(fitted[0], ["export.dt=0.01"])
    spec = export_spec(workspace, load_fitted(workspace))
    assert (spec.name, spec.dt, list(spec.inputs), list(spec.w_low)) == ("decay", 0.01, ["u"], [-1.0])


# Commands


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "-C", "nowhere"), "twinfold new NAME"),
        (("fit", "--set", "fit.seds=3"), "Did you mean 'seeds'"),
        (("fit", "--set", "data.files=none.csv"), "there is no file 'none.csv'"),
        (("fit", "--set", "data.outputs=y"), "outputs: there is no column 'y'"),
        (("fit", "--set", "system.file=other.py"), "There is no"),
        (("evaluate", "--set", "run.folder=runs/none"), "twinfold fit"),
        (("info", "system.py"), "not a model file"),
        (("simulate", "data/all.csv", "--out", "x.xls"), ".csv or .parquet"),
        (("simulate", "data/all.csv", "--x0", "1,a"), "separated by commas"),
        (("simulate", "data/all.csv", "--x0", "1,2"), "has 2 values; the twin has 1 states"),
        (("export", "--to", "fmy"), "Did you mean 'fmu'"),
        (("new", "."), "not empty"),
    ],
)
def test_mistakes_end_in_one_message(fitted, arguments, message, monkeypatch):
    monkeypatch.chdir(fitted[0])
    code, output = call(*arguments)
    assert code == 2
    assert message in output
    assert "Internal error" not in output


def test_a_mistake_in_the_physics_is_shown_with_its_line(tmp_path):
    folder = made(tmp_path / "decay")
    (folder / "system.py").write_text(SYSTEM.replace('-p["k"] * x + w', '-p["k"] @ x + w'))
    code, output = call("fit", "-q", "-C", folder)
    assert code == 2
    assert "line 9, in rate" in output
    assert 'return -p["k"] @ x + w' in output


@pytest.mark.parametrize("name", ["new", "check", "fit", "evaluate", "simulate", "report", "export", "info", "monitor"])
def test_help_shows_examples(name):
    code, output = call(name, "--help")
    assert code == 0
    assert f"Examples: twinfold {name}" in output


def test_the_ways_to_start_it():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["twinfold"].partition(":")
    assert getattr(importlib.import_module(module), function) is importlib.import_module("twinfold.__main__").main
    code, output = call("--help")
    assert code == 0
    assert "--install-completion" in output
    assert "twinfold_user_system" not in sys.modules or sys.modules["twinfold_user_system"].__file__


@pytest.mark.slow
def test_a_report_takes_the_settings_of_the_fit(tmp_path):
    """`fit --set` changed them; the report is not given the option again."""
    folder = made(tmp_path / "decay")
    code, output = call("fit", "-q", "-C", folder, "--set", "fit.lm_steps=3", "--set", "fit.seeds=2")
    assert code == 0, output
    code, output = call("report", "-C", folder)
    assert code == 0, output
    assert "2 seeds" in (folder / "runs" / "a" / "report" / "index.html").read_text()


# Earlier versions


def test_a_run_folder_of_version_0_1_is_recognised(fitted, tmp_path):
    """Its settings were in config.toml, under other names, and its fingerprints in versions.json."""
    folder = tmp_path / "decay"
    shutil.copytree(fitted[0], folder)
    run = folder / "runs" / "a"
    settings = json.loads((run / "config.json").read_text())["settings"]
    (run / "config.json").unlink()
    text = (run / "config.toml").read_text()
    for old, new in (("levenberg", "lm_steps"), ("train", "trainable"), ("recompute", "remat")):
        text = text.replace(f"{new} = ", f"{old} = ")
    text = text.replace("constraint_penalty = ", "soft = ")
    (run / "config.toml").write_text(text)
    (run / "versions.json").write_text(
        json.dumps({"twinfold": "0.1.0"} | {name: settings[name] for name in ("system sha256", "data fingerprint")})
    )
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    code, output = call("fit", "-C", folder, "--set", "fit.lm_steps=99")
    assert code == 2
    assert "fit.lm_steps: 12 in the folder, 99 requested" in output
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    code, output = call("fit", "-C", folder)
    assert code == 0, output
    assert "already holds this fit" in output
    assert json.loads((run / "config.json").read_text())["settings"] == settings


def test_an_old_name_is_refused_with_the_new_one(fitted):
    code, output = call("fit", "-C", fitted[0], "--set", "fit.levenberg=3")
    assert code == 2
    assert "fit.levenberg is now called fit.lm_steps" in output
