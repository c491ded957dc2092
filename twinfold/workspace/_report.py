"""Write the report of a workspace from its run folder."""

import warnings
from pathlib import Path
from typing import Any

from twinfold.report import write_twin_report
from twinfold.train import Fit
from twinfold.train._stored_fit import load_fit
from twinfold.workspace import _files as files
from twinfold.workspace._bands import bands_around, kept_bands
from twinfold.workspace._data import DataSplit
from twinfold.workspace._fit import Fitted, seen_split
from twinfold.workspace._workspace import Workspace


def report_workspace(
    workspace: Workspace, fitted: Fitted, *, folder: Path | None = None, seeds: bool = True, command: str = ""
) -> Path:
    """Write the report of a fitted twin.

    **Arguments:** `workspace`; `fitted`; `folder` (default: `report` in the run folder); `seeds`: show the spread over
    all seeds; `command`, as typed.

    **Returns:** the page to open in a browser.
    """
    info, split = fitted.info, seen_split(workspace, fitted)
    files.record_opening(workspace.run_folder, "report", split.test)
    notes = [info.trained_on] if info.trained_on else []
    bands = _drawn_bands(workspace, fitted, split, notes)
    return write_twin_report(
        workspace.run_folder / "report" if folder is None else folder,
        title=workspace.folder.resolve().name,
        twin=fitted.twin,
        fit=_all_seeds(workspace, fitted) if seeds else None,
        history=files.read_history(workspace.run_folder),
        train=split.train,
        valid=split.valid,
        test=split.test,
        metrics=read_metrics(workspace, fitted),
        config=info.config,
        info=info.versions | {"command": command, "training data": info.data_fingerprint},
        states=info.states,
        units=info.units,
        notes=notes,
        test_openings=files.count_openings(workspace.run_folder, split.test),
        bands=bands,
        probability=workspace.config.follow.band,
    )


def _drawn_bands(workspace: Workspace, fitted: Fitted, split: DataSplit, notes: list[str]) -> dict[str, Any] | None:
    """The bands of the first runs of each part, if an earlier command has estimated them; `notes`: what is missing."""
    try:
        bands = kept_bands(workspace, fitted, log=notes.append)
        return (
            None
            if bands is None
            else {name: bands_around(fitted, bands, data) for name, data in split.by_name().items()}
        )
    except ValueError as error:
        notes.append(f"The bands could not be computed: {error}")
        return None


def _all_seeds(workspace: Workspace, fitted: Fitted) -> Fit | None:
    """The fit with all its seeds; None if there is no file of them, or if it is damaged or of another model."""
    path = workspace.run_folder / files.SEEDS
    if not path.exists():
        return None
    try:
        return load_fit(path, fitted.twin)
    except (OSError, ValueError) as error:
        warnings.warn(f"The report shows one seed only: {path}: {error}.", stacklevel=3)
        return None


def read_metrics(workspace: Workspace, fitted: Fitted) -> dict[str, Any]:
    """The metrics of the last evaluation; those in the model file if there is no readable metrics.json."""
    found = files.read_metrics(workspace.run_folder)
    return fitted.info.metrics if found is None else found
