"""The fleet of a workspace: its fitted twin for many assets, whose columns are those of [data]."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twinfold.fleet import FleetFit, fit_fleet
from twinfold.workspace._fit import Fitted
from twinfold.workspace._workspace import Workspace

COLUMNS = ("columns", "scale", "offset", "missing", "fill", "x0", "dt", "taps")  # of [data], as for any other file


def fit_workspace_fleet(
    workspace: Workspace,
    fitted: Fitted,
    source: str,
    out: Path,
    *,
    parameters: Sequence[str] | None = None,
    **options: Any,
) -> FleetFit:
    """Estimate scalars of the fitted twin for every asset in a folder; `options` of `fit_fleet`."""
    data = workspace.config.data
    layout = {name: value for name in COLUMNS if (value := getattr(data, name))}
    return fit_fleet(
        fitted.twin,
        source,
        out,
        outputs=data.outputs,
        inputs=data.inputs,
        time=data.time,
        parameters=parameters,
        layout=layout,
        **options,
    )
