"""The fit of a design, and its errors on the validation and the test record."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import twinfold as tw
from twinfold.workspace import Workspace
from twinfold_studies.first.project import Project


def fit_design(
    project: Project, folder: Path, design: str, system: Any, *, refit: bool = False, quick: bool = False
) -> dict[str, Any]:
    """Fit as `twinfold fit` does, and predict what was held out.

    **Arguments:** `project`, written to `folder`; `design`; `system` of the project as its workspace loads it, which
    all designs share, so that what is compiled is reused; `refit`: after the fit, see `fit.refit`; `quick`: one seed
    and fewer steps.

    **Returns:** errors `valid` and `test_before` of the fit to the training runs, and `test` of the refit, if there is
    one: root mean squares over the samples after the warm-up, each output divided by its standard deviation in the
    training record; `seconds` on this machine; the number of `weights`.
    """
    quickly = ["fit.seeds=1", "fit.lm_steps=120", *(["fit.folds=2"] if refit else [])] if quick else []
    changes = [f"fit.refit={json.dumps(refit)}", "run.folder=" + json.dumps(f"runs/{design}"), *quickly]
    workspace = project.open(folder, design, changes)
    config, folds = workspace.config, workspace.load_folds()
    split = folds.given
    assert split.valid is not None
    assert split.test is not None
    began = time.perf_counter()
    system = system.rebuild(config.model).with_warmup(config.data.warmup)
    trained = tw.workspace.train_workspace(workspace, system, folds)
    seconds = time.perf_counter() - began
    scale = np.nanstd(np.concatenate([run.y for run in split.train.runs]), axis=0)
    return {
        "valid": error(trained.judged.twin, split.valid, scale, project.warmup),
        "test": error(trained.fit.twin, split.test, scale, project.warmup),
        "test_before": error(trained.judged.twin, split.test, scale, project.warmup),
        "scale": scale.tolist(),
        "seconds": seconds,
        "weights": trained.fit.parameters,
    }


def error(twin: tw.Twin, data: tw.Dataset, scale: np.ndarray, warmup: int) -> float:
    """The error of a twin on some runs, without the first `warmup` samples of each; infinite where it diverges."""
    found = tw.predict(twin, data)
    counted = found.mask & (np.arange(found.mask.shape[-2]) >= warmup)[:, None]
    squares = np.where(counted, ((found.predicted - found.y) / scale) ** 2, 0.0)
    root = float(np.sqrt(squares.sum() / np.sum(np.broadcast_to(counted, squares.shape))))
    return root if np.isfinite(root) else float("inf")


def split_names(workspace: Workspace) -> dict[str, tuple[str, ...]]:
    """The runs of each part."""
    return {name: part.names for name, part in workspace.load_split().by_name().items()}
