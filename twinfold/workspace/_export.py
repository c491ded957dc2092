"""A fitted twin where it is used next: exported with the names and the step of its workspace, or watching a plant."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinfold.workspace._fit import Fitted
from twinfold.workspace._workspace import Workspace

if TYPE_CHECKING:
    from twinfold.export import ExportReport, ExportSpec

KINDS = ("c", "fmu", "onnx", "stablehlo")  # what a twin can be exported to


def spec_of(workspace: Workspace, fitted: Fitted, *, run: str | None = None) -> "ExportSpec":
    """Names, step, start values and ranges of the fitted twin of a workspace, for an export.

    **Arguments:** `run`, a run of the training data whose own parameters are exported.
    """
    from twinfold.export import ExportSpec

    info, config = fitted.info, workspace.config.export
    dt = info.dt if config.dt is None else config.dt
    if dt is None:
        raise ValueError("export.dt: the model file knows no step; give one, --set export.dt=0.01.")
    return ExportSpec(
        name=config.name or _identifier(workspace.folder.resolve().name),
        states=info.states,
        inputs=info.inputs,
        outputs=info.outputs,
        dt=dt,
        x0=info.x0_example,
        x_low=info.x_low,
        x_high=info.x_high,
        w_low=info.w_low,
        w_high=info.w_high,
        parameters={} if run is None else fitted.twin.parameters(run),
        units=info.units,
    )


def export_workspace(
    workspace: Workspace, fitted: Fitted, kinds: Sequence[str], folder: Path, *, run: str | None = None
) -> "list[ExportReport]":
    """Export a fitted twin as each of `kinds`, into folders of these names; each is checked against the twin."""
    from twinfold.export import export_twin

    return export_twin(fitted.twin, spec_of(workspace, fitted, run=run), folder, to=kinds)


def _identifier(name: str) -> str:
    """A name with letters, digits and underscores, a letter first."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    return plain if re.match(r"[A-Za-z]", plain) else f"twin_{plain}".rstrip("_")
