"""`data.taps` from the command line: a plant with a pure delay, from check to export."""

import csv
import json

import numpy as np
import pytest
from support.exports import needs_compiler
from typer.testing import CliRunner

from twinfold.cli import app

pytest.importorskip("pandas")
pytestmark = pytest.mark.slow

SYSTEM = """
import twinfold as tw


def twin():
    return tw.Twin(
        lambda x, w, p: p["a"] * (w[1] - x),
        params={"a": tw.Unknown(1.0, positive=True)},
        integrator=tw.RK4(4),
    )
"""
TOML = """
[data]
files = ["a.csv"]
run = "id"
inputs = ["u"]
outputs = ["x"]
taps = {u = [0.6]}

[fit]
seeds = 1
"""


def call(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


def rows(seed, samples=100, dt=0.2):
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.normal(size=samples // 4), 4)
    x = [0.0]
    for value in u[np.maximum(np.arange(samples - 1) - 3, 0)]:
        x.append(value + (x[-1] - value) * np.exp(-2 * dt))
    x = np.array(x) + 1e-3 * rng.normal(size=samples)
    return [f"{dt * k:.9g},{u[k]:.9f},{x[k]:.9f}" for k in range(samples)]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(TOML)
    lines = [f"{run},{row}" for run in range(5) for row in rows(run)]
    (folder / "a.csv").write_text("\n".join(["id,t,u,x", *lines]))
    (folder / "new.csv").write_text("\n".join(["t,u,x", *rows(9)]))
    inputs = [row.rsplit(",", 1)[0] for row in rows(9)]
    (folder / "inputs.csv").write_text("\n".join(["t,u", *inputs]))
    return folder, call("fit", "-q", "-C", folder)


def test_the_fit_finds_the_rate(project):
    folder, output = project
    assert "FIT" in output
    metrics = json.loads((folder / "runs/first/metrics.json").read_text())
    assert metrics["twin"]["test"]["fit_percent"] > 99


def test_new_files_get_their_taps_from_the_stored_configuration(project, tmp_path, monkeypatch):
    """The file has no such column, and `twinfold.toml` no longer says so."""
    folder, _ = project
    monkeypatch.chdir(tmp_path)
    (folder / "twinfold.toml").write_text(TOML.replace("taps = {u = [0.6]}\n", ""))
    try:
        assert "99" in call("evaluate", folder / "new.csv", "-C", folder)
        call("simulate", folder / "inputs.csv", "-C", folder, "--no-plot", "--x0", "0.0")
        assert "No alarm" in call("monitor", folder / "new.csv", "-C", folder, "--out", tmp_path / "monitor")
    finally:
        (folder / "twinfold.toml").write_text(TOML)
    with (tmp_path / "simulation.csv").open() as file:
        table = list(csv.DictReader(file))
    u, late = (np.array([float(row[name]) for row in table]) for name in ("u", "u(t-0.6)"))
    np.testing.assert_allclose(late[3:], u[:-3], atol=1e-9)
    np.testing.assert_allclose(late[:3], u[0], atol=1e-9)
    measured = [float(row.rsplit(",", 1)[1]) for row in rows(9)]
    np.testing.assert_allclose([float(row["x"]) for row in table], measured, atol=0.02)


def test_check_and_report_name_the_tap(project, tmp_path):
    folder, _ = project
    assert "The twin uses every input" in call("check", "-C", folder)  # u by its tap
    call("report", "-C", folder, "--out", tmp_path)
    assert "u(t-0.6)" in "".join(path.read_text() for path in tmp_path.rglob("*.html"))


@needs_compiler
def test_an_export_has_the_tap_as_an_input(project, tmp_path):
    folder, _ = project
    call("export", "-C", folder, "--to", "c", "--out", tmp_path)
    assert '"u", "u(t-0.6)"' in "".join(path.read_text() for path in tmp_path.rglob("*.c"))
