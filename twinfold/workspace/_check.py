"""Check the system and data of a workspace: all that `examine` checks, and whether held-out runs are really new."""

import dataclasses

from twinfold.check import Examination, Finding, examine
from twinfold.check._finding import join_names
from twinfold.data import Dataset
from twinfold.data._duplicates import find_duplicates
from twinfold.workspace._data import DataSplit
from twinfold.workspace._system import System


def examine_workspace(system: System, split: DataSplit, *, plots: bool = False) -> Examination:
    """All checks of a twin and its data; see `twinfold.check.examine`."""
    units = system.units | ({"t": system.units["time"]} if "time" in system.units else {})
    parts, data = split.by_name(), split.joined()
    examination = examine(system.twin, data, states=system.states, units=units, plots=plots)
    return dataclasses.replace(examination, findings=(*examination.findings, *_check_held_out(data, parts)))


def _check_held_out(data: Dataset, parts: dict[str, Dataset]) -> list[Finding]:
    """Runs of different parts that contain the same measurements."""
    part_of = [name for name, part in parts.items() for _ in part.runs]
    copies = [pair for pair in find_duplicates(data) if part_of[pair[0]] != part_of[pair[1]]]
    if not copies:
        return []
    named = [f"'{data.names[a]}' ({part_of[a]}) and '{data.names[b]}' ({part_of[b]})" for a, b in copies]
    message = (
        f"The same measurements are in different parts of the data: {join_names(named)}. Errors on held-out runs will "
        "look better than they are: remove the copies, or keep them in one part (data.valid, data.test)."
    )
    detail = {"pairs": [[data.names[a], data.names[b]] for a, b in copies]}
    return [Finding("held out", "problem", message, detail)]
