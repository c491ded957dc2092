"""Hold-out by name beside blocks, and the warm-up of the configuration in a sweep."""

from pathlib import Path

import numpy as np
import pytest

from twinfold.workspace._sweep import sweep_workspace
from twinfold.workspace._workspace import Workspace, open_workspace

SYSTEM = """
import jax.numpy as jnp

import twinfold as tw


def swing(x, p):
    return jnp.stack([x[1], -p["k"] * x[0]])


def position(x):
    return x[:1]


def at_rest(y):
    return jnp.append(y, 0.0)


def twin(guess: float = 0.9) -> tw.Twin:
    return tw.Twin(
        swing, params={"k": tw.Unknown(guess, positive=True)}, observe=position, initial=at_rest, integrator=tw.RK4(2)
    )
"""
TOML = """
[data]
files = ["train.csv", "test.csv"]
outputs = ["y"]
blocks = 4
test = ["test"]

[fit]
seeds = 1
lm_steps = 15
"""


def made(folder: Path, *overrides: str) -> Workspace:
    """Two records of a swing in motion, x = cos(t + phase), whose speed is hidden."""
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(TOML)
    ts = 0.1 * np.arange(120)
    for name, phase in (("train", 1.2), ("test", 2.0)):
        lines = [f"{t!r},{np.cos(t + phase):.12f}" for t in ts.tolist()]
        (folder / f"{name}.csv").write_text("\n".join(["t,y", *lines]))
    return open_workspace(folder, overrides)


def test_a_record_that_is_held_out_by_its_name_is_not_cut(tmp_path):
    split = made(tmp_path).load_split()
    assert split.test is not None
    assert split.valid is not None
    assert split.test.names == ("test",)
    assert len(split.test.runs[0].ts) == 120
    assert (split.valid.names, split.train.names) == (("train[2]",), ("train[0-1]", "train[3]"))


def test_blocks_are_still_held_out_by_their_names(tmp_path):
    split = made(tmp_path, 'data.test=["test[3]"]', 'data.valid=["train"]').load_split()
    assert split.valid is not None
    assert split.test is not None
    assert (split.valid.names, split.test.names) == (("train",), ("test[3]",))
    assert split.train.names == ("test[0-2]",)


@pytest.mark.slow
def test_a_sweep_estimates_the_starts_as_the_fit_does(tmp_path):
    """Blocks do not start at rest: without the warm-up of the configuration, no frequency predicts them."""
    swept = sweep_workspace(
        made(tmp_path, 'data.valid=["train[2]"]', "data.warmup=12"), {"model.guess": [0.9, 1.1]}, progress=False
    )
    assert [row.reason for row in swept.rows] == ["", ""]
    assert max(row.error for row in swept.rows) < 1e-3
    at_rest = made(tmp_path, 'data.valid=["train[2]"]')
    unaware = sweep_workspace(at_rest, {"model.guess": [0.9]}, folder="other", progress=False)
    assert unaware.rows[0].error > 0.1
