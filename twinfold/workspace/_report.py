"""Write the report of a workspace from its run folder."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

from twinfold.report import write_twin_report
from twinfold.train import Fit
from twinfold.workspace import _files as files
from twinfold.workspace._data import DataSplit
from twinfold.workspace._fit import Fitted, seen_split
from twinfold.workspace._refit import read_choice, run_refit
from twinfold.workspace._run_fit import run_fit
from twinfold.workspace._workspace import Workspace


def report_workspace(
    workspace: Workspace, fitted: Fitted, *, folder: Path | None = None, seeds: bool = True, command: str = ""
) -> Path:
    """Write the report of a fitted twin.

    **Arguments:** `workspace`; `fitted`; `folder` (default: `report` in the run folder); `seeds`: show the spread over
    all seeds (their weights are in the checkpoint of the fit); `command`, as typed.

    **Returns:** the page to open in a browser.
    """
    info, split = fitted.info, seen_split(workspace, fitted)
    files.record_opening(workspace.run_folder, "report", split.test)
    return write_twin_report(
        workspace.run_folder / "report" if folder is None else folder,
        title=workspace.folder.resolve().name,
        twin=fitted.twin,
        fit=_all_seeds(workspace, fitted, split) if seeds else None,
        history=files.read_history(workspace.run_folder),
        train=split.train,
        valid=split.valid,
        test=split.test,
        metrics=read_metrics(workspace, fitted),
        config=info.config,
        info=info.versions | {"command": command, "training data": info.data_fingerprint},
        states=info.states,
        units=info.units,
        notes=[info.trained_on] if info.trained_on else [],
        test_openings=files.count_openings(workspace.run_folder, split.test),
    )


def _all_seeds(workspace: Workspace, fitted: Fitted, split: DataSplit) -> Fit | None:
    """The fit with all its seeds; None if its checkpoint is gone or belongs to other data."""
    if not fitted.info.trained_on:
        checkpoint, resume = files.CHECKPOINT, partial(run_fit, workspace, fitted.system.twin, split)
    else:
        choice = read_choice(workspace)
        if choice is None:
            return None
        checkpoint = files.REFIT_CHECKPOINT if choice.start is None else files.CONTINUED_CHECKPOINT
        resume = partial(run_refit, workspace, fitted.system, workspace.load_folds(), choice)
    path = workspace.run_folder / checkpoint
    if not path.exists():
        return None
    try:
        return resume()
    except ValueError:
        # Of the checkpoint, which would tell how to start over.
        warnings.warn(
            f"The report shows one seed only: {path} is damaged, or belongs to other data or settings.",
            stacklevel=2,
        )
        return None


def read_metrics(workspace: Workspace, fitted: Fitted) -> dict[str, Any]:
    """The metrics of the last evaluation; those in the model file if there is no readable metrics.json."""
    found = files.read_metrics(workspace.run_folder)
    return fitted.info.metrics if found is None else found
