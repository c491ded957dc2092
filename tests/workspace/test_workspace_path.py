"""From an empty folder to an FMU, as a user goes: every command in a process of its own, one fit killed on the way."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from twinfold.model._twin import Twin
from twinfold.train._estimate import Estimate
from twinfold.train._fit import Fit
from twinfold.workspace._config import Config, DataConfig
from twinfold.workspace._trackers import flatten_metrics, tracker

METRICS = {"twin": {"test": {"rmse": 0.25, "violation": None, "rmse x[m]": 0.5}}}


def finished() -> Fit:
    """A fit of two seeds and three epochs, of which one value is not a number."""
    loss = np.array([[4.0, 5.0], [2.0, np.nan], [1.0, 3.0]])
    history = {"loss": loss, "score": 2 * loss, "rate": 0 * loss}
    twin = Twin(lambda x: -x)
    return Fit((0, 7), loss[-1], {}, history, 1.0, False, 1, twin, Estimate(twin, None))


def config() -> Config:
    return Config(data=DataConfig(files=("a.csv",), outputs=("x",)))


def test_tensorboard_gets_every_finite_point(tmp_path):
    pytest.importorskip("tensorboardX")
    assert flatten_metrics(METRICS) == {"test/twin/rmse": 0.25, "test/twin/rmse x[m]": 0.5}
    tracker("tensorboard", tmp_path)(finished(), METRICS, config())
    points = []
    for path in (tmp_path / "tensorboard").iterdir():
        for record in _records(path):
            points += [(value.tag, record.step, value.simple_value) for value in record.summary.value]
    assert ("loss/seed_0", 3, 1.0) in points
    assert ("loss/seed_7", 3, 3.0) in points
    assert not [point for point in points if point[:2] == ("loss/seed_7", 2)]
    assert ("test/twin/rmse", 3, 0.25) in points


def _records(path) -> list:
    content, at, found = path.read_bytes(), 0, []
    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    while at < len(content):
        size = int.from_bytes(content[at : at + 8], "little")
        found.append(event.FromString(content[at + 12 : at + 12 + size]))
        at += 16 + size
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's own reading of its store
def test_mlflow_keeps_metrics_and_settings_in_the_run_folder(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    tracker("mlflow", tmp_path)(finished(), METRICS, config())
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("twinfold")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.metrics["test/twin/rmse"] == 0.25
    assert run.data.metrics["test/twin/rmse x_m_"] == 0.5
    assert run.data.params["fit.seeds"] == "3"
    curve = client.get_metric_history(run.info.run_id, "loss/seed 0")
    assert [(point.step, point.value) for point in curve] == [(1, 4.0), (2, 2.0), (3, 1.0)]
    assert not (tmp_path / "mlruns").exists()


def twinfold(folder, *arguments, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "twinfold", *arguments], cwd=folder, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("template", "noise"), [("pendulum", 3e-3), ("motor", 2e-2), ("tank", 2e-3)])
def test_from_an_empty_folder_to_an_fmu(template, noise, tmp_path):
    twinfold(tmp_path, "new", "plant", "--template", template)
    folder = tmp_path / "plant"
    twinfold(folder, "check", "--no-plots")
    twinfold(folder, "fit", "--quiet")
    metrics = json.loads((folder / "runs" / "first" / "metrics.json").read_text())
    error = metrics["twin"]["test"]["rmse"]
    assert error < 2 * noise  # what is left is little more than the noise of the measurements
    for rival in ("constant", "pure physics", "fitted physics"):
        assert metrics[rival]["test"]["rmse"] > 3 * error, rival
    assert "differs from the twin" in twinfold(folder, "export", "--to", "fmu")
    assert (folder / "runs" / "first" / "export" / "fmu" / "plant.fmu").exists()
    if template != "pendulum":  # what follows depends little on the template
        return
    assert metrics["twin"]["test"]["relative_violation_max"] < 1e-12
    assert "twin" in twinfold(folder, "evaluate")
    twinfold(folder, "report")
    assert (folder / "runs" / "first" / "report" / "index.html").stat().st_size > 10_000
    twinfold(folder, "simulate", "data/sample.csv", "--no-plot", "--out", "out.csv")
    assert len((folder / "out.csv").read_text().splitlines()) == 1 + 810


@pytest.mark.slow
def test_a_fit_that_is_killed_goes_on_with_the_same_command(tmp_path):
    twinfold(tmp_path, "new", "drive", "--template", "motor")
    folder = tmp_path / "drive"
    # Estimated weights of the loss need a stage of Levenberg-Marquardt.
    settings = ("fit.adam_epochs=15000", "fit.lm_steps=0", "loss.l2=0", "loss.correlation=0")
    command = ["fit", "--quiet", *(part for each in settings for part in ("--set", each))]
    running = subprocess.Popen([sys.executable, "-m", "twinfold", *command], cwd=folder, stdout=subprocess.DEVNULL)
    checkpoint = folder / "runs" / "first" / "fit.npz"
    limit = time.monotonic() + 600
    while not checkpoint.exists() and time.monotonic() < limit and running.poll() is None:
        time.sleep(0.2)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert checkpoint.exists()
    assert not (folder / "runs" / "first" / "model.twin").exists()
    assert "Resuming the fit" in twinfold(folder, *command)
    assert (folder / "runs" / "first" / "model.twin").exists()
