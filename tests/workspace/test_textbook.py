"""A system from a textbook that the library does not know, from a CSV file to an FMU, with nothing but the commands.

The cart with a pole (Barto, Sutton and Anderson, 1983): a force pushes a cart that carries a pole. Position and angle
are measured, their rates are hidden; the friction of the track is unknown, and so is the mass of the cart.
"""

import json
import textwrap

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from typer.testing import CliRunner

from twinfold.cli import app

MASS, POLE, LENGTH, GRAVITY = 1.0, 0.1, 0.5, 9.81
STEP, SAMPLES, RUNS, NOISE = 0.02, 120, 10, 1e-3
SYSTEM = """
import jax.numpy as jnp

import twinfold as tw

STATES = ["position", "angle", "speed", "rate"]
UNITS = {"position": "m", "angle": "rad", "force": "N", "time": "s"}


def physics(x, w, p):
    _, angle, speed, rate = x
    total, pole, length = p["mass"] + 0.1, 0.1, 0.5
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (w[0] + pole * length * rate**2 * sine) / total
    turn = (9.81 * sine - cosine * push) / (length * (4 / 3 - pole * cosine**2 / total))
    return jnp.stack([speed, rate, push - pole * length * turn * cosine / total, turn])


def twin():
    scaling = tw.Scaling(center=jnp.zeros(1), spread=jnp.ones(1), output=jnp.ones(1))
    friction = tw.MLP(states=[2], adds_to=[2], width=8, depth=1, zero_last=True, scaling=scaling)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=friction),
        params={"mass": tw.Unknown(0.8, positive=True)},
        observe=lambda x: x[:2],
        initial=lambda y: jnp.concatenate([y, jnp.zeros(2)]),
    )
"""
CONFIG = """
[data]
files = ["cart.csv"]
run = "run"
inputs = ["force"]
outputs = ["position", "angle"]

[fit]
seeds = 1
lm_steps = 40
"""


def friction(speed):
    return 0.6 * np.tanh(8 * speed) + 0.3 * speed


def truth(t, x, force):
    _, angle, speed, rate = x
    total, sine, cosine = MASS + POLE, np.sin(angle), np.cos(angle)
    push = (force + POLE * LENGTH * rate**2 * sine) / total
    turn = (GRAVITY * sine - cosine * push) / (LENGTH * (4 / 3 - POLE * cosine**2 / total))
    return [speed, rate, push - POLE * LENGTH * turn * cosine / total - friction(speed), turn]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("cart")
    lines = ["t,run,force,position,angle"]
    for run in range(RUNS):
        force = np.repeat(random.uniform(-6, 6, SAMPLES // 10 + 1), 10)[:SAMPLES]
        # The pole hangs: upright it would fall, and a small error with it.
        x, path = np.array([0.0, np.pi + random.uniform(-0.3, 0.3), 0.0, 0.0]), []
        for now in force:
            path.append(x)
            x = solve_ivp(truth, (0, STEP), x, args=(now,), rtol=1e-9, atol=1e-10).y[:, -1]
        seen = np.array(path)[:, :2] + NOISE * random.standard_normal((SAMPLES, 2))
        lines += [f"{STEP * k:.2f},{run},{force[k]:.6f},{y[0]:.6f},{y[1]:.6f}" for k, y in enumerate(seen)]
    (folder / "cart.csv").write_text("\n".join(lines) + "\n")
    (folder / "system.py").write_text(textwrap.dedent(SYSTEM))
    (folder / "twinfold.toml").write_text(CONFIG)
    return folder


def command(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_from_a_csv_to_an_fmu(folder):
    command("check", "-C", folder, "--no-plots")
    command("fit", "-C", folder, "-q")
    run = folder / "runs" / "first"
    metrics = json.loads((run / "metrics.json").read_text())
    error = {name: metrics[name]["test"]["mae"] for name in ("twin", "pure physics", "fitted physics", "constant")}
    error = {name: value["mean"] if isinstance(value, dict) else value for name, value in error.items()}
    # Measurement noise alone gives 0.8e-3; the friction is found, which physics without it cannot make up for.
    assert error["twin"] < 2.5e-3
    assert error["twin"] < 0.2 * min(error["fitted physics"], error["pure physics"], error["constant"])
    command("evaluate", "-C", folder)
    page = command("report", "-C", folder)
    assert "index.html" in page
    said = command("export", "-C", folder, "--to", "fmu", "--to", "c")
    assert list((run / "export").rglob("*.fmu"))
    assert said.count("differs") >= 2  # each was compared with the twin


@pytest.mark.slow
def test_no_bad_setting_harms_a_run_that_exists(folder):
    if not (folder / "runs").exists():
        command("fit", "-C", folder, "-q", "--set", "fit.lm_steps=2")
    before = {path: path.read_bytes() for path in (folder / "runs").rglob("*") if path.is_file()}
    assert before
    for bad in (
        "fit.seeds=0", "fit.lm_steps=-1", "data.files=[]", 'data.files=["none.csv"]', 'data.outputs=["angel"]',
        'data.time="run"', "data.valid=2", 'system.file="other.py"', "fit.sedes=3", "fit.adam_epochs=nan",
        "loss.huber=0", 'data.inputs=["position"]', "fit.lm_steps=41", "data.test=0.5",
        'run.track="cloud"', "x", "fit=1",
    ):  # fmt: skip
        done = CliRunner().invoke(app, ["fit", "-C", str(folder), "-q", "--set", bad])
        assert done.exit_code == 2, (bad, done.output)
        assert isinstance(done.exception, SystemExit), (bad, done.exception)
    after = {path: path.read_bytes() for path in (folder / "runs").rglob("*") if path.is_file()}
    assert after == before
