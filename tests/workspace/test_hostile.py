"""2,000 hostile inputs: each gives a clear error or a correct result; none executes anything."""

import csv
import io
import traceback
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from support import hostile

import twinfold
from twinfold.data._load import load_dataset
from twinfold.io import ModelInfo, read_info
from twinfold.model._fields import GreyBox
from twinfold.model._learned.mlp import MLP
from twinfold.model._model_file import load_model, save_model
from twinfold.model._twin import Twin
from twinfold.workspace._config import Config, parse_config, read_config

PACKAGE = str(Path(twinfold.__file__).parent)
MEANT = (ValueError, FileNotFoundError)  # what a user may be told


def tried(attempt):
    """What `attempt` gives, or None after an error that is the library's own and says something."""
    try:
        return attempt()
    except MEANT as error:
        told = error
    last = traceback.extract_tb(told.__traceback__)[-1].filename
    assert last.startswith(PACKAGE), f"the error comes from {last}: {told}"
    assert len(str(told)) > 20, told
    return None


def read_plainly(raw):
    """The table by Python's own reader, where it is a table without doubt, else None: what a result must equal."""
    try:
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig")), strict=True))
        head, body = rows[0], [row for row in rows[1:] if row]
        if len(set(head)) < len(head) or any(len(row) != len(head) for row in body):
            return None
        return {
            name: [row[k].strip() if name == "run" else float(row[k]) if row[k].strip() else np.nan for row in body]
            for k, name in enumerate(head)
        }
    except (ValueError, IndexError, csv.Error):
        return None


def check_table(data, raw):
    for run in data.runs:
        assert np.isfinite(run.ts).all()
        assert (np.diff(run.ts) > 0).all()
        assert np.isfinite(run.w).all()
        assert not np.isinf(run.y).any()
    plain = read_plainly(raw)
    if plain is None or "t" not in plain:
        return
    for run in data.runs:
        rows = [k for k, name in enumerate(plain["run"]) if name == run.name]
        assert [plain["t"][k] for k in rows] == run.ts.tolist()
        for column, name in enumerate(("x", "v")):
            np.testing.assert_array_equal(run.y[:, column], [plain[name][k] for k in rows])


def test_tables(tmp_path):
    path, read = tmp_path / "log.csv", 0
    for seed in range(900):
        raw = hostile.csv(np.random.default_rng(seed))
        path.write_bytes(raw)
        data = tried(lambda: load_dataset(path, run="run", inputs=["u"], outputs=["x", "v"]))
        if data is not None:
            check_table(data, raw)
            read += 1
    assert 100 < read < 800  # harmless changes are read, others are not


def test_configurations(tmp_path):
    path, read = tmp_path / "twinfold.toml", 0
    for seed in range(500):
        path.write_bytes(hostile.toml(np.random.default_rng(seed)))
        config = tried(lambda: read_config(path))
        if config is not None:
            assert isinstance(config, Config)
            # Nothing was guessed: what was understood can be written down and understood again.
            assert parse_config(config.toml()) == config
            read += 1
    assert 30 < read < 400


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.twin"
    twin = Twin(GreyBox(lambda x: -x, MLP(width=3, depth=1))).initialise(jax.random.key(0), states=2)
    save_model(path, twin, about=ModelInfo(states=("x", "v"), outputs=("x", "v")))
    return path.read_bytes(), twin


def test_model_files(saved, tmp_path):
    good, twin = saved
    path, marker, read = tmp_path / "model.twin", tmp_path / "executed", 0
    for seed in range(600):
        path.write_bytes(hostile.model(good, np.random.default_rng(seed), str(marker)))
        about = tried(lambda: read_info(path))
        back = tried(lambda: load_model(path, twin))
        assert not marker.exists(), f"seed {seed} was executed"
        if back is not None:
            # Only what leaves the content as it was (bytes behind the end) may be read.
            assert about is not None
            assert about.states == ("x", "v")
            assert eqx.tree_equal(back, twin)
            read += 1
    assert read < 200
