"""A sweep finds the settings that predict held-out runs best, resumes, and never looks at the test runs."""

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from twinfold.cli import app
from twinfold.workspace import _sweep as sweep_module
from twinfold.workspace._sweep import Sweep, SweepRow, parse_over, sweep_workspace
from twinfold.workspace._sweep_results import conclusions
from twinfold.workspace._workspace import open_workspace

# The decay is x' = -0.7 x. With a wrong known decay `k` there is nothing to estimate but an offset, which cannot help.
SYSTEM = """
import twinfold as tw


def rate(x, p):
    return -p["k"] * x + p["offset"]


def twin(k=1.5, guess=0.0):
    if k < 0:
        raise RuntimeError("k is negative")
    return tw.Twin(rate, params={"k": k, "offset": tw.Unknown(guess)})
"""
TOML = """
[data]
files = ["all.csv"]
run = "id"
outputs = ["x"]
valid = ["v"]
test = ["t"]

[fit]
seeds = 2
lm_steps = 3
"""


def made(folder: Path, test_value: float = 1.0) -> Path:
    ts, rows = np.linspace(0, 2, 11), ["id,t,x"]
    for run, x0 in (("a", 1.0), ("b", 2.0), ("v", 1.5), ("t", test_value)):
        rows += [f"{run},{t!r},{x0 * math.exp(-0.7 * t)!r}" for t in ts.tolist()]
    folder.mkdir(exist_ok=True)
    (folder / "all.csv").write_text("\n".join(rows) + "\n")
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(TOML)
    return folder


def call(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, re.sub(r"\s+", " ", result.output)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("sweep") / "decay")
    code, output = call("sweep", "-C", folder, "--over", "model.k=[0.7, -1.0]", "--over", "loss.prior=[0]")
    assert code == 0, output
    return folder, output


def test_the_true_value_wins_beside_the_default_and_a_failure(swept):
    folder, output = swept
    rows = json.loads((folder / "runs/sweep/sweep.json").read_text())
    assert [row["model.k"] for row in rows] == [0.7, 1.5, -1.0]
    assert [row["default"] for row in rows] == [False, True, False]
    assert rows[0]["error"] < 1e-3 < rows[1]["error"]
    assert rows[2]["error"] is None
    assert "k is negative" in rows[2]["reason"]
    assert "k is negative" in output
    assert "To use it: twinfold fit --set model.k=0.7 --set loss.prior=0.0" in output
    assert "The next (default settings) has" in output
    with (folder / "runs/sweep/sweep.csv").open() as file:
        assert [row["model.k"] for row in csv.DictReader(file)] == ["0.7", "1.5", "-1.0"]
    assert (folder / "runs/sweep/sweep.png").stat().st_size > 1000


def test_the_same_command_resumes_and_further_values_only_add_fits(swept, monkeypatch):
    folder, _ = swept
    fits = []
    original = sweep_module.run_fit
    monkeypatch.setattr(
        sweep_module,
        "run_fit",
        lambda workspace, *rest, **options: fits.append(workspace.config.model) or original(workspace, *rest),
    )
    workspace = open_workspace(folder)
    over = {"model.k": [0.7, 1.5, 0.8], "loss.prior": [0.0]}
    found = sweep_workspace(workspace, over, progress=False)
    assert fits == [{"k": 0.8}]
    assert [row.settings["model.k"] for row in found.rows] == [0.7, 0.8, 1.5]
    assert sweep_workspace(workspace, over, progress=False).rows == found.rows
    sweep_workspace(workspace, {"model.k": [0.8, 0.7]}, progress=False)  # the same fits, though less is swept
    sweep_workspace(workspace, {"loss.prior": [0.0], "model.k": [0.8]}, progress=False)
    assert len(fits) == 1

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_module, "run_fit", interrupted)
    partly = sweep_workspace(workspace, over | {"model.k": [0.7, 0.9]}, progress=False)
    assert partly.interrupted
    assert [row.settings["model.k"] for row in partly.rows] == [0.7, 1.5]


def test_the_test_runs_are_never_used(swept, tmp_path, monkeypatch):
    """Other test runs: no fit is repeated, no error changes, and none of the data given to a fit has them."""
    folder, _ = swept
    seen = []
    original = sweep_module.held_out_errors
    monkeypatch.setattr(
        sweep_module, "held_out_errors", lambda fit, split: seen.append(split.by_name()) or original(fit, split)
    )
    other = made(tmp_path / "other", test_value=100.0)
    over = {"model.k": [0.7], "loss.prior": [0.0]}
    found = sweep_workspace(open_workspace(other), over, progress=False)
    stored = {row["model.k"]: row for row in json.loads((folder / "runs/sweep/sweep.json").read_text())}
    for row in found.rows:
        assert row.error == stored[row.settings["model.k"]]["error"]
        assert row.folder.name == stored[row.settings["model.k"]]["folder"]
    assert len(seen) == 2
    for parts in seen:
        assert set(parts) == {"train", "valid"}
        assert not any("t" in part.names for part in parts.values())


def test_a_changed_system_or_other_data_start_new_fits(swept, tmp_path):
    folder, _ = swept
    loader = sweep_module._Loader

    def folders(place: Path, *overrides: str) -> set[str]:
        tasks = sweep_module.plan(open_workspace(place, overrides), {"model.k": [0.7]}, Path("runs"), loader())
        return {task.workspace.run_folder.name for task in tasks}

    same = folders(folder)
    assert folders(made(tmp_path / "same")) == same == folders(folder, "model.k=1.5", "run.folder=x")
    changed = made(tmp_path / "changed")
    (changed / "system.py").write_text(f"{SYSTEM}\n# changed\n")
    assert not folders(changed) & same
    assert not folders(folder, "fit.seeds=3") & same
    assert not folders(folder, 'data.valid=["b"]') & same


def test_a_random_part_of_the_grid_grows():
    over = {"loss.l2": list(range(5)), "model.k": list(range(4))}

    def drawn(count: int | None) -> set[tuple]:
        return {tuple(each.values()) for each in sweep_module._combinations(over, count)}

    assert len(drawn(None)) == 20
    assert drawn(4) == drawn(4) < drawn(9) < drawn(None) == drawn(50)
    assert len(drawn(4)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--over", "model.k=3"], "give a list of values"),
        (["--over", "model.k=[]"], "give a list of values"),
        (["--over", "model.k=[1]", "--over", "model.k=[2]"], "model.k is there twice"),
        (["--over", "model.kk=[1]"], "model.kk is set, but twin() has no argument 'kk'"),
        (["--over", "loss.l3=[1]"], "loss: there is no setting 'l3'"),
        (["--over", "run.folder=[1]"], "a fit does not depend on this setting"),
        (["--over", 'data.valid=[["a"], ["b"]]'], "other measurements are held out"),
        (["--over", "model.k=[1]", "--set", "data.valid=0"], "No run is held out"),
    ],
)
def test_mistakes_are_named_before_anything_is_fitted(options, message, tmp_path):
    code, output = call("sweep", "-C", made(tmp_path / "decay"), *options)
    assert code == 2
    assert message in output
    assert not (tmp_path / "decay" / "runs").exists()


def test_values_are_read_as_in_toml():
    assert parse_over(["loss.l2=[1e-5, 1]", 'fit.project=["late"]']) == {"loss.l2": [1e-5, 1], "fit.project": ["late"]}


def row(k: float, *errors: float, is_default: bool = False) -> SweepRow:
    return SweepRow({"model.k": k}, errors, 1.0, "", is_default, Path("x"))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([row(1, 1.0, 1.1), row(2, 1.9, 2.1)], "The next (model.k=2) has 2: the difference is larger than the spread"),
        ([row(1, 1.0, 1.6), row(2, 1.2, 2.0)], "The next (model.k=2) has 1.6: the difference is not larger than"),
        ([row(1, 1.0, 1.0), row(2, 1.001, 1.001)], "The next (model.k=2) has 1: the difference is less than 1%"),
        ([row(1, 1.0), row(2, 2.0)], "With one seed the spread over seeds is unknown"),
        (
            [row(1, 1.0, 1.1), row(2, 2.0, 2.0), row(3, 3.0, 3.0, is_default=True)],
            "The default (default settings) has 3: the",
        ),
        ([row(1, 1.0, is_default=True), row(2, 2.0)], "Best: model.k=1 (default settings), held-out error 1."),
        ([row(1, math.inf, math.inf)], "No fit succeeded"),
        ([row(1, 1.0), row(2, 2.0)], "To use it: twinfold fit --set 'data.valid=[\"a\"]' --set model.k=1"),
        ([row(1, 1.0, is_default=True), row(2, 2.0)], "To use it: twinfold fit --set 'data.valid=[\"a\"]'"),
    ],
)
def test_conclusions(rows, sentence):
    lines = conclusions(Sweep(Path("x"), tuple(rows), False), ['data.valid=["a"]'])
    assert sum(line.startswith(sentence) or sentence in line for line in lines) == 1, lines


@pytest.mark.slow
def test_two_workers_find_what_one_process_finds(swept, tmp_path):
    """Every row, to the last bit: the fits are the same program on the same data."""
    folder = made(tmp_path / "plant")
    over = ["--over", "model.k=[0.7, 1.0, -1.0]", "-C", folder, "-q"]
    codes = [call("sweep", *over, "--workers", workers, "--out", folder / f"w{workers}")[0] for workers in (1, 2)]
    assert codes == [0, 0]
    rows = [
        sweep_workspace(
            open_workspace(folder), {"model.k": [0.7, 1.0, -1.0]}, folder=folder / name, progress=False
        ).rows
        for name in ("w1", "w2")
    ]
    assert len(rows[0]) == 4
    one, two = ({row.settings["model.k"]: (row.errors, row.reason) for row in each} for each in rows)
    assert one == two
    assert one[0.7][0][0] < 1e-6
    assert "k is negative" in one[-1.0][1]
