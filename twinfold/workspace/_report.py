"""The report of a workspace: everything that `twinfold.report` needs, from the run folder."""

import json
from pathlib import Path
from typing import Any

from twinfold.workspace import _files as files
from twinfold.workspace._files import read_history
from twinfold.workspace._fit import Fitted, refit
from twinfold.workspace._workspace import Parts, Workspace


def report_workspace(
    workspace: Workspace, fitted: Fitted, parts: Parts, *, folder: Path, seeds: bool, command: str
) -> Path:
    """Write the report of a fitted twin into `folder`.

    **Arguments:** `parts`, the data; `seeds`: show the spread over all seeds too (their weights are in the checkpoint
    of the fit); `command`, as typed.

    **Returns:** the page to open.
    """
    from twinfold.report import write_twin_report

    info = fitted.info
    checkpoint = workspace.run_folder / files.CHECKPOINT
    return write_twin_report(
        folder,
        title=workspace.folder.resolve().name,
        twin=fitted.twin,
        fit=refit(workspace, fitted.system, parts) if seeds and checkpoint.exists() else None,
        history=read_history(workspace.run_folder),
        train=parts.train,
        valid=parts.valid,
        test=parts.test,
        metrics=read_metrics(workspace, fitted),
        config=info.config,
        info=info.versions | {"command": command, "training data": info.data_fingerprint},
        states=info.states,
        units=info.units,
    )


def read_metrics(workspace: Workspace, fitted: Fitted) -> dict[str, Any]:
    """The numbers of the last evaluation; those in the model file where there is none."""
    try:
        found = json.loads((workspace.run_folder / files.METRICS).read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else fitted.info.metrics
    except (OSError, ValueError):
        return fitted.info.metrics
