"""`evaluate` and the report on runs inside and outside of the training data."""

import numpy as np
import pytest
from typer.testing import CliRunner

from twinfold.cli import app

pytest.importorskip("pandas")
pytestmark = pytest.mark.slow

SYSTEM = """
import twinfold as tw


def twin():
    part = tw.MLP(states=[0], adds_to=[0], width=4, depth=1, zero_last=True)
    return tw.Twin(tw.GreyBox(lambda x: -x, part), integrator=tw.RK4(4))
"""
TOML = """
[data]
files = ["a.csv"]
run = "id"
outputs = ["x"]
valid = 0.0
test = ["far"]

[fit]
seeds = 1
lm_steps = 20
"""
TS = 0.1 * np.arange(31)


def decay(start, seed):
    """x' = -x - x^3, exactly, with noise."""
    x = 1 / np.sqrt((1 + start**-2) * np.exp(2 * TS) - 1)
    return x + 1e-3 * np.random.default_rng(seed).normal(size=len(TS))


def call(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == (arguments[0] == "fit"), result.output  # a fit that is worse than a constant says so
    return " ".join(result.output.split())


def test_an_error_outside_of_the_training_data_is_named_and_one_inside_is_not(tmp_path):
    (tmp_path / "system.py").write_text(SYSTEM)
    (tmp_path / "twinfold.toml").write_text(TOML)
    starts = {"a": 1.0, "b": 0.7, "c": 0.9, "far": 6.0}
    lines = [
        f"{name},{t!r},{x!r}"
        for seed, (name, start) in enumerate(starts.items())
        for t, x in zip(TS.tolist(), decay(start, seed).tolist(), strict=True)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["id,t,x", *lines]))
    near = [f"{t!r},{x!r}" for t, x in zip(TS.tolist(), decay(0.8, 9).tolist(), strict=True)]
    (tmp_path / "near.csv").write_text("\n".join(["t,x", *near]))
    call("fit", "-q", "-C", tmp_path)
    said = call("evaluate", "-C", tmp_path)
    assert "The error of the test runs is mostly extrapolation" in said
    assert "(run 'far')" in said
    assert "extrapolation" not in call("evaluate", tmp_path / "near.csv", "-C", tmp_path)
    call("report", "-C", tmp_path, "--out", tmp_path / "page")
    assert "The error of the test runs is mostly extrapolation" in (tmp_path / "page/index.html").read_text()
