"""`data.warmup` from the command line: a hidden speed, in runs that start anywhere."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from twinfold.cli import app

pytest.importorskip("pandas")
pytestmark = pytest.mark.slow

SYSTEM = """
import jax.numpy as jnp

import twinfold as tw


def twin():
    return tw.Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
        params={"k": tw.Unknown(0.8, positive=True)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
        integrator=tw.RK4(2),
    )
"""
TOML = """
[data]
files = ["a.csv"]
run = "id"
outputs = ["y"]
warmup = 15
valid = 0.2
test = 0.2

[fit]
seeds = 1
lm_steps = 12
"""
TS = 0.1 * np.arange(60)


def call(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("swing"), np.random.default_rng(0)
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(TOML)
    lines = ["id,t,y"]
    for run, phase in enumerate(rng.uniform(0, 6, 6)):
        lines += [f"{run},{t!r},{np.cos(t + phase) + 0.02 * rng.normal():.9f}" for t in TS.tolist()]
    (folder / "a.csv").write_text("\n".join(lines))
    lines = [f"{t!r},{np.cos(t + 2) + 0.02 * rng.normal():.9f}" for t in TS.tolist()]
    (folder / "new.csv").write_text("\n".join(["t,y", *lines]))
    return folder, call("fit", "-q", "-C", folder)


def test_a_fit_lists_the_parameters_of_the_system_only(project):
    _, output = project
    table = output.partition("parameters")[2]
    assert "k " in table
    assert "initial" not in table


def test_held_out_runs_are_predicted_from_their_own_start(project):
    """From rest, as `initial` guesses, the error would be about one."""
    _, output = project
    row = next(line for line in output.partition("test")[2].splitlines() if line.startswith("twin"))
    assert float(row.split()[3]) < 0.05  # RMSE


def test_a_new_file_is_simulated_from_its_first_samples(project, tmp_path, monkeypatch):
    folder, _ = project
    monkeypatch.chdir(tmp_path)
    call("simulate", folder / "new.csv", "-C", folder, "--no-plot")
    with (tmp_path / "simulation.csv").open() as file:
        first = next(csv.DictReader(file))
    np.testing.assert_allclose([float(first["x0"]), float(first["x1"])], [np.cos(2), -np.sin(2)], atol=0.05)
    assert "No alarm" in call("monitor", folder / "new.csv", "-C", folder, "--out", tmp_path / "monitor")


def test_bands_around_estimated_starts_contain_what_they_say(project, tmp_path, monkeypatch):
    """The model is right, so the bands are those of the sensor and of a start that 15 samples tell."""
    folder, _ = project
    own = ("-C", folder, "--set", "data.valid=0", "--set", "run.folder=runs/second")
    call("fit", "-q", *own)
    call("evaluate", *own, "--band", "0.9")
    metrics = json.loads((folder / "runs/second/metrics.json").read_text())
    shares = [metrics["twin"][part]["coverage"] for part in ("train", "test")]
    assert 0.85 < np.average(shares, weights=[5, 1]) < 0.95  # of 360 values
    kept = json.loads((folder / "runs/second/bands.json").read_text())
    assert max(kept["std"]) < 0.02  # and not a tenth of the range, 0.2
    assert kept["measurement"][0] == pytest.approx(0.02, rel=0.25)
    call("report", *own, "--out", folder / "page")
    page = (folder / "page/index.html").read_text(encoding="utf-8")
    assert "contains a measurement with a probability of 90 %." in page
    assert '"upper residual"' in page
    # Runs of the fit and a run that it has not seen, in one file.
    monkeypatch.chdir(tmp_path)
    call("simulate", folder / "a.csv", *own, "--no-plot")
    with (tmp_path / "simulation.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "a.csv").open() as file:
        measured = [float(row["y"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose([float(row["y"]) for row in rows], measured, atol=5 * 0.02)
