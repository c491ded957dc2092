"""Watch a plant with the fitted twin of a workspace: a table of judged windows, a picture, a state to go on from."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinfold.data import Dataset
from twinfold.io import write_csv, write_text
from twinfold.workspace._fit import Fitted
from twinfold.workspace._workspace import Workspace, read_data

if TYPE_CHECKING:
    from twinfold.monitor import Verdict

STATE, TABLE, PICTURE = "state.json", "windows.csv", "windows.png"


def watch_workspace(
    workspace: Workspace,
    fitted: Fitted,
    new: Sequence[str],
    *,
    healthy: Sequence[str] | None = None,
    folder: Path,
    resume: bool = False,
    window: int | None = None,
    rate: float = 0.01,
) -> "Verdict":
    """Judge new measurements by what the twin says, with limits from healthy ones.

    **Arguments:** `new`, files in the current folder, with the columns of the workspace's data; `healthy`, likewise
    (when left out, the workspace's own data: best those that were held back from the fit); `folder` to write table,
    picture and state to; `resume`: go on from the state in it with the rows that have been added since (the table
    keeps the windows of earlier calls, the picture shows the new ones); `window`,
    `rate`: see `twinfold.monitor.watch.calibrate`.
    """
    from twinfold.monitor import watch
    from twinfold.plot import save

    state = _state(folder) if resume else None
    data = read_data(workspace.config.data, Path(), source=list(new))
    found = watch(fitted.twin, _healthy(workspace, healthy), data, state=state, window=window, rate=rate)
    write_csv(folder / TABLE, [*(_judged_before(folder) if resume else []), *found.rows])
    write_text(folder / STATE, json.dumps(found.state()) + "\n")
    if found.rows:
        save(found.figure(), folder / PICTURE)
    return found.verdict


def _judged_before(folder: Path) -> list[dict[str, str]]:
    """The windows of earlier calls, which a call that goes on keeps in the table."""
    try:
        with (folder / TABLE).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError:
        return []


def _healthy(workspace: Workspace, files: Sequence[str] | None) -> Dataset:
    if files is not None:
        return read_data(workspace.config.data, Path(), source=list(files))
    parts = workspace.load_parts()
    held = [data for data in (parts.valid, parts.test) if data is not None] or [parts.train]
    runs = tuple(run for data in held for run in data.runs)
    return Dataset(runs, parts.train.output_names, parts.train.input_names)


def _state(folder: Path) -> dict:
    path = folder / STATE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no {path} to go on from; leave out --resume.") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged ({error}); leave out --resume to start over.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not the state of a watch; leave out --resume to start over.")
    return found
