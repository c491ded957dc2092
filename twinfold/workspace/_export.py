"""Export the fitted twin of a workspace, with its names, its step and the ranges of its data."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from twinfold.export import ExportReport, ExportSpec, export_follower, export_twin
from twinfold.workspace._fit import Fitted
from twinfold.workspace._follow_estimator import prepare
from twinfold.workspace._workspace import Workspace


def export_workspace(
    workspace: Workspace,
    fitted: Fitted,
    to: Sequence[str],
    *,
    folder: Path | None = None,
    run: str | None = None,
    follower: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> list[ExportReport]:
    """Export a fitted twin and compare each export with the twin.

    **Arguments:** `workspace`; `fitted`; `to`, targets: "c", "fmu", "onnx", "stablehlo"; `folder`, with a
    subfolder for each target (default: `export` in the run folder); `run`, a run of the training data whose own
    parameters are exported; `follower`: export one sample of the follower that [follow] describes, "c" or "fmu"; `log`
    for messages.
    """
    folder = workspace.run_folder / "export" if folder is None else folder
    if follower:
        prepared = prepare(workspace, fitted, workspace.run_folder, run=run, log=log)
        return export_follower(
            prepared.fleet.estimator,
            export_spec(workspace, fitted),
            folder,
            std=prepared.std,
            parameters=workspace.config.follow.spread,
            to=to,
        )
    return export_twin(fitted.twin, export_spec(workspace, fitted, run=run), folder, to=to)


def export_spec(workspace: Workspace, fitted: Fitted, *, run: str | None = None) -> ExportSpec:
    """Names, step, initial state and ranges of the fitted twin of a workspace."""
    info, config = fitted.info, workspace.config.export
    dt = info.dt if config.dt is None else config.dt
    if dt is None:
        raise ValueError("export.dt is not set, and the model file has no step; set one: --set export.dt=0.01.")
    return ExportSpec(
        name=config.name or _identifier(workspace.folder.resolve().name),
        dt=dt,
        x0=info.x0_example,
        parameters={} if run is None else fitted.twin.parameters(run),
        **{
            name: getattr(info, name)
            for name in ("states", "inputs", "outputs", "units", "x_low", "x_high", "w_low", "w_high")
        },
    )


def _identifier(name: str) -> str:
    """A name of letters, digits and underscores that starts with a letter."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    return plain if re.match(r"[A-Za-z]", plain) else f"twin_{plain}".rstrip("_")
