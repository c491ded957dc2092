"""Write the report of a workspace from its run folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinfold.report import write_twin_report
from twinfold.workspace import _files as files
from twinfold.workspace._fit import Fitted, refit
from twinfold.workspace._workspace import Workspace


def report_workspace(
    workspace: Workspace, fitted: Fitted, *, folder: Path | None = None, seeds: bool = True, command: str = ""
) -> Path:
    """Write the report of a fitted twin.

    **Arguments:** `workspace`; `fitted`; `folder` (default: `report` in the run folder); `seeds`: show the spread over
    all seeds (their weights are in the checkpoint of the fit); `command`, as typed.

    **Returns:** the page to open in a browser.
    """
    info, split = fitted.info, workspace.load_split()
    checkpoint = workspace.run_folder / files.CHECKPOINT
    return write_twin_report(
        workspace.run_folder / "report" if folder is None else folder,
        title=workspace.folder.resolve().name,
        twin=fitted.twin,
        fit=refit(_as_fitted(workspace), fitted.system, split) if seeds and checkpoint.exists() else None,
        history=files.read_history(workspace.run_folder),
        train=split.train,
        valid=split.valid,
        test=split.test,
        metrics=read_metrics(workspace, fitted),
        config=info.config,
        info=info.versions | {"command": command, "training data": info.data_fingerprint},
        states=info.states,
        units=info.units,
    )


def _as_fitted(workspace: Workspace) -> Workspace:
    """The workspace with the settings of its fit, which may have had options (`--set`) that a report is not given."""
    used = files.read_fit_config(workspace.run_folder)
    return replace(workspace, config=workspace.config.model_copy(update={"fit": used.fit, "loss": used.loss}))


def read_metrics(workspace: Workspace, fitted: Fitted) -> dict[str, Any]:
    """The metrics of the last evaluation; those in the model file if there is no readable metrics.json."""
    try:
        metrics = json.loads((workspace.run_folder / files.METRICS).read_text(encoding="utf-8"))
        return {name: parts for name, parts in metrics.items() if isinstance(parts, dict)}
    except (OSError, ValueError, AttributeError):
        return fitted.info.metrics
