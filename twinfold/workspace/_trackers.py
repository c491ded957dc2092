"""Experiment trackers beside the plain files of a run: TensorBoard and MLflow, stored in the run folder."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.train import Fit
from twinfold.workspace._config import Config

Track = Callable[[Fit, dict[str, Any], Config], None]
CURVES = ("loss", "score", "rate")


def tracker(name: str, folder: Path) -> Track:
    """A function that records a finished fit, its metrics and its configuration with the tracker `name` ("" for none).

    **Raises:** `ImportError` that names the extra.
    """
    if name == "tensorboard":
        return _tensorboard(folder)
    if name == "mlflow":
        return _mlflow(folder)
    return lambda fit, metrics, config: None


def flatten_metrics(metrics: dict[str, Any]) -> dict[str, float]:
    """`part/model/metric` -> number, without the metrics that are None."""
    return {
        f"{part}/{model}/{name}": value
        for model, parts in metrics.items()
        for part, numbers in parts.items()
        for name, value in numbers.items()
        if value is not None
    }


def _curves(fit: Fit) -> list[tuple[str, int, int, float]]:
    """Name, seed, epoch and value of every finite point of the history."""
    return [
        (name, seed, epoch, float(value))
        for name in CURVES
        for index, seed in enumerate(fit.seeds)
        for epoch, value in enumerate(fit.history[name][:, index])
        if np.isfinite(value)
    ]


def _tensorboard(folder: Path) -> Track:
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise ImportError('run.track = "tensorboard" needs tensorboardX: pip install twinfold[tensorboard].') from None

    def track(fit: Fit, metrics: dict[str, Any], config: Config) -> None:
        with SummaryWriter(str(folder / "tensorboard")) as writer:
            for name, seed, epoch, value in _curves(fit):
                writer.add_scalar(f"{name}/seed {seed}", value, epoch + 1)
            for name, value in flatten_metrics(metrics).items():
                writer.add_scalar(name, value, len(fit.history["loss"]))
            writer.add_text("configuration", f"```\n{config.toml()}```")

    return track


def _mlflow(folder: Path) -> Track:
    try:
        import sqlalchemy  # noqa: F401  MLflow's sqlite store needs it, but imports it late
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
    except ImportError:
        raise ImportError('run.track = "mlflow" needs MLflow: pip install twinfold[mlflow].') from None

    def track(fit: Fit, metrics: dict[str, Any], config: Config) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's deprecated calls of its database library
            record(fit, metrics, config)

    def record(fit: Fit, metrics: dict[str, Any], config: Config) -> None:
        client = MlflowClient(tracking_uri=f"sqlite:///{(folder / 'mlflow.db').resolve()}")
        existing = client.get_experiment_by_name("twinfold")
        uri = (folder / "mlflow").resolve().as_uri()
        experiment = existing.experiment_id if existing else client.create_experiment("twinfold", artifact_location=uri)
        run = client.create_run(experiment, run_name=folder.name).info.run_id
        settings = [Param(name, str(value)[:500]) for name, value in config.flat().items()]
        points = [Metric(f"{name}/seed {seed}", value, 0, epoch + 1) for name, seed, epoch, value in _curves(fit)]
        points += [Metric(_allowed(name), value, 0, 0) for name, value in flatten_metrics(metrics).items()]
        for start in range(0, len(points), 1000):  # the limit of a batch
            client.log_batch(run, metrics=points[start : start + 1000])
        client.log_batch(run, params=settings[:100])
        client.set_terminated(run)

    return track


def _allowed(name: str) -> str:
    """A metric name that MLflow accepts: letters, digits and a few other characters."""
    return re.sub(r"[^A-Za-z0-9_\-./ ]", "_", name)
