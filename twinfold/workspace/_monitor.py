"""Monitor a plant with the fitted twin of a workspace: a table and a figure of its windows, and a state to resume."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twinfold.data import Dataset
from twinfold.io import write_csv, write_text
from twinfold.monitor import Verdict, watch
from twinfold.plot import save
from twinfold.workspace._data import options_for_files, read_data
from twinfold.workspace._fit import Fitted, seen_split
from twinfold.workspace._health import Health, check_settings, compared, draw_health, typical_errors
from twinfold.workspace._workspace import Workspace

STATE, TABLE, FIGURE = "state.json", "windows.csv", "windows.png"
LIFE_TABLE, LIFE_FIGURE = "life.csv", "life.png"
ROWS, LIFE_ROWS, HEALTH = "table rows", "life rows", "health"  # in the state


def monitor_workspace(
    workspace: Workspace,
    fitted: Fitted,
    new: Sequence[str],
    *,
    healthy: Sequence[str] | None = None,
    folder: Path | None = None,
    resume: bool = False,
    window: int | None = None,
    false_alarm_rate: float = 0.01,
) -> Verdict:
    """Compare new measurements with the twin, with alarm limits from healthy ones.

    **Arguments:** `workspace`; `fitted`; `new`, files relative to the current folder, with the columns of the
    workspace's data; `healthy`, likewise (default: the data of the workspace, preferably those held out from the fit);
    `folder` for table, figure and state (default: `monitor` in the run folder); `resume`: continue from the state in
    it with the rows added since (the table keeps the windows of earlier calls, the figure shows the new ones);
    `window`, samples per window; `false_alarm_rate`, per window.

    With `monitor.health` set, the health of every run, healthy ones first, and the remaining life are in a second table
    and figure.
    """
    folder = workspace.run_folder / "monitor" if folder is None else folder
    state = _read_state(folder) if resume else None
    data = _read_files(workspace, new)
    reference = _healthy_data(workspace, fitted, healthy)
    watched = watch(fitted.twin, reference, data, state=state, window=window, false_alarm_rate=false_alarm_rate)
    # The state comes last, with the length of the table: a call that is killed is repeated from the state before it.
    rows = [*_earlier_rows(folder / TABLE, state, ROWS), *watched.rows]
    write_csv(folder / TABLE, rows)
    if watched.rows:
        save(watched.figure(), folder / FIGURE)
    saved, verdict = watched.state() | {ROWS: len(rows)}, watched.verdict
    if workspace.config.monitor.health:
        message, of_life = _monitor_health(workspace, fitted, reference, data, folder, state)
        verdict, saved = replace(verdict, message=f"{verdict.message}\n{message}"), saved | of_life
    write_text(folder / STATE, json.dumps(saved) + "\n")  # exact: with NaN and infinity as Python writes them
    return verdict


def _monitor_health(
    workspace: Workspace, fitted: Fitted, reference: Dataset, data: Dataset, folder: Path, state: dict | None
) -> tuple[str, dict[str, Any]]:
    """Take the runs; write their table and figure. Returns what to say, and the part of the state."""
    config, by_group = workspace.config.monitor, bool(workspace.config.data.group)
    if state is not None and HEALTH in state:
        health = Health.from_state(config, by_group, state[HEALTH])
    else:
        check_settings(config, fitted)
        health = Health(config, by_group, typical_errors(fitted.twin, compared(reference, config)))
        health.take(fitted, reference, healthy=True)
    health.take(fitted, data)
    rows = [*_earlier_rows(folder / LIFE_TABLE, state, LIFE_ROWS), *health.rows]
    write_csv(folder / LIFE_TABLE, rows)
    thresholds = {unit: life.threshold for unit, life in health.lives.items()}
    save(draw_health(rows, config, thresholds), folder / LIFE_FIGURE)
    return health.message(), {HEALTH: health.state(), LIFE_ROWS: len(rows)}


def _earlier_rows(table: Path, state: dict | None, key: str) -> list[dict[str, Any]]:
    """The rows of a table when the state was written; all of them if it does not say, as in version 0.2."""
    if state is None:
        return []
    count = state.get(key)
    try:
        with table.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))[: count if isinstance(count, int) else None]
    except FileNotFoundError:
        return []


def _read_files(workspace: Workspace, files: Sequence[str]) -> Dataset:
    """All outputs in some files; a column that names the runs may be missing."""
    config = workspace.config.data
    return read_data(
        config, Path(), **options_for_files(config, files, states=[config.x0]) | {"outputs": config.outputs}
    )


def _healthy_data(workspace: Workspace, fitted: Fitted, files: Sequence[str] | None) -> Dataset:
    if files is not None:
        return _read_files(workspace, files)
    split = seen_split(workspace, fitted)
    held_out = [data for data in (split.valid, split.test) if data is not None] or [split.train]
    runs = tuple(run for data in held_out for run in data.runs)
    return Dataset(runs, split.train.output_names, split.train.input_names)


def _read_state(folder: Path) -> dict:
    path = folder / STATE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no {path} to resume from; omit --resume.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); omit --resume to start over.") from None
    if not isinstance(state, dict):
        raise ValueError(f"{path} is not the state of a monitor; omit --resume to start over.")
    return state
