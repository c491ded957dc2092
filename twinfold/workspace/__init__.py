"""A user's folder: configuration, run folder, and what the commands do."""

from twinfold.workspace._baselines import judge
from twinfold.workspace._config import setting_names
from twinfold.workspace._export import KINDS, export_workspace
from twinfold.workspace._files import plain, write_metrics
from twinfold.workspace._fit import fit_workspace, load_fitted
from twinfold.workspace._info import show_info, show_metrics
from twinfold.workspace._monitor import watch_workspace
from twinfold.workspace._new import new_project
from twinfold.workspace._report import report_workspace
from twinfold.workspace._samples import SAMPLES
from twinfold.workspace._simulate import picture, rows_of, simulate_workspace, write_table
from twinfold.workspace._workspace import Workspace, in_user_code, open_workspace

__all__ = [
    "KINDS",
    "SAMPLES",
    "Workspace",
    "export_workspace",
    "fit_workspace",
    "in_user_code",
    "judge",
    "load_fitted",
    "new_project",
    "open_workspace",
    "picture",
    "plain",
    "report_workspace",
    "rows_of",
    "setting_names",
    "show_info",
    "show_metrics",
    "simulate_workspace",
    "watch_workspace",
    "write_metrics",
    "write_table",
]
