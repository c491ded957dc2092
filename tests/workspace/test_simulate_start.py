"""Simulation of measured runs whose first sample is incomplete."""

import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.data import Dataset
from twinfold.io import ModelInfo, write_csv
from twinfold.model import Twin
from twinfold.workspace import open_workspace
from twinfold.workspace._fit import Fitted
from twinfold.workspace._simulate import extrapolation_notes, simulate_workspace
from twinfold.workspace._system import System

TS = np.linspace(0.0, 1.0, 5)


def test_an_incomplete_first_sample_is_named_before_anything_is_simulated(tmp_path, monkeypatch):
    ys = np.exp(-np.stack([TS, TS]))[..., None]
    ys[1, 0] = np.nan
    data = Dataset.from_arrays(TS, ys, names=["a", "b"], output_names=["level"])
    twin = Twin(lambda x: -x, initial=lambda y: jnp.atleast_1d(y[0]))
    info = ModelInfo(states=("x",), outputs=("level",))
    fitted = Fitted(System(tmp_path / "system.py", "", twin, info.states, {}), twin, info, None)
    (tmp_path / "twinfold.toml").write_text('[data]\nfiles = "a.csv"\nrun = "run"\noutputs = "level"\n')
    workspace = open_workspace(tmp_path)
    rows = [(t, run.name, "" if np.isnan(y) else y) for run in data.runs for t, y in zip(TS, run.y[:, 0], strict=True)]
    write_csv(tmp_path / "a.csv", rows, ["t", "run", "level"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError, match=r"^files: the initial state of run 'b' cannot be formed: .* no value of 'level'"
    ):
        simulate_workspace(workspace, fitted, ["a.csv"])
    runs = simulate_workspace(workspace, fitted, ["a.csv"], x0=[1.0])
    assert [run.failed for run in runs] == [False, False]


def test_a_load_outside_of_the_training_data_is_named():
    info = ModelInfo(
        states=("x",), inputs=("u", "v"), x_low=(0.0,), x_high=(1.0,), w_low=(0.0, -1.0), w_high=(2.0, 1.0)
    )
    inside, xs = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([[0.5], [1.001]])
    assert extrapolation_notes(info, inside, xs) == []
    load, state = extrapolation_notes(info, inside + np.array([0.0, 0.5]), 2 * xs)
    assert load.startswith("the input v is outside of the training data (-1 to 1) in 50% of the samples (-0.5 to 1.5).")
    assert state.startswith("the predicted state x is outside of the training data (0 to 1) in 50% of the samples")
    assert extrapolation_notes(info, None, xs) == []
