"""One fit with the settings of a workspace, from a checkpoint in its run folder, and the errors of its seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.metrics import predict
from twinfold.model import Twin
from twinfold.train import AbstractMethod, Fit, fit
from twinfold.workspace import _files as files
from twinfold.workspace._data import DataSplit
from twinfold.workspace._workspace import Workspace


def run_fit(
    workspace: Workspace,
    twin: Twin,
    split: DataSplit,
    *,
    checkpoint: str = files.CHECKPOINT,
    methods: Sequence[AbstractMethod] | None = None,
    seeds: int | None = None,
    draw: bool = True,
    progress: bool | Callable[[float, str], None] = False,
    label: str = "",
) -> Fit:
    """Run a fit of a workspace from its checkpoint; a finished fit returns at once, with all its seeds."""
    settings = workspace.config.fit
    return fit(
        twin,
        split.train,
        seeds=settings.seeds if seeds is None else seeds,
        method=settings.methods() if methods is None else methods,
        trainable=settings.trainable,
        remat=settings.remat,
        draw=draw,
        checkpoint=workspace.run_folder / checkpoint,
        progress=progress,
        label=label,
        **shared_options(workspace, split),
    )


def shared_options(workspace: Workspace, split: DataSplit) -> dict[str, Any]:
    """Options that the fits of the twin and of the physics have in common."""
    settings = workspace.config.fit
    return {
        "valid": split.valid,
        "loss": workspace.config.loss.build(),
        "window": settings.window,
        "shooting": settings.shooting,
        "project": settings.project,
    }


def scaled_errors(model: Twin | Fit, data: Dataset, train: Dataset) -> np.ndarray:
    """[S] the root mean square error of each seed, every output divided by its standard deviation in the runs `train`.

    It is infinite for a seed that diverges.
    """
    predictions = predict(model, data)
    y = np.ma.masked_invalid(np.concatenate([run.y for run in train.runs]))
    scale = y.std(axis=0).filled(0.0)
    error = (predictions.predicted - predictions.y) / np.where(scale > 0, scale, 1.0)
    squares = np.where(predictions.mask, error**2, 0.0).sum((1, 2, 3))
    root = np.sqrt(squares / predictions.mask.sum())
    return np.where(np.isfinite(root), root, np.inf)
