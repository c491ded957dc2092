"""One way in for all forms of the data: a folder of NASA's files or of tables, or one of these files."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from twinfold_studies.nasa.collection import Collection, OnError, Tray
from twinfold_studies.nasa.discharge import Discharge
from twinfold_studies.nasa.find import COMMAND, find
from twinfold_studies.nasa.manifest import differences
from twinfold_studies.nasa.mat import read_mat
from twinfold_studies.nasa.tables import read_table

# Of these the first that a folder has holds what is in the others.
NESTED = ("discharge_all.parquet", "discharge_selected.csv", "discharge_first2.csv")
READERS = {".parquet": read_table, ".mat": read_mat, ".csv": read_table}  # the fullest and exact first
KIND_ORDER = ("cycle", "reference", "walk")


def load(
    where: str | os.PathLike[str] | None = None,
    *,
    cells: Sequence[str] | None = None,
    on_error: OnError = "skip",
    repair: bool = True,
    verify: bool = False,
) -> Collection:
    """The discharges in a folder, with all folders below it, or in one file.

    A cell that several files have is read from the fullest: Parquet, then .mat, then CSV.

    **Arguments:**

    - `where`: the folder, or a .mat, .parquet or .csv file; what `find()` finds when left out.
    - `cells`: only these.
    - `on_error`: `"skip"` what cannot be used and record it in `.skipped`, or `"raise"`.
    - `repair`: turn a current of the wrong sign, convert kelvin and drop rows of the same time, with a note in the
      discharge; when False these count as errors.
    - `verify`: compare the SHA-256 of every file with that in the folder's manifest (its size is always compared).

    **Raises:** `FileNotFoundError` where there is nothing to read; `ValueError` as `on_error` says, naming file, cell
    and cycle.
    """
    place = find(where)
    tray = Tray(on_error, repair)
    broken = _compare(place, tray, verify) if place.is_dir() else set()
    files = [path for path in _files(place) if path not in broken]
    if not files and not broken:
        raise FileNotFoundError(
            f"'{place}' holds no .mat, .parquet or .csv file. Get NASA's with `{COMMAND}`, or give another folder."
        )
    for path in files:
        READERS[path.suffix.lower()](path, tray)
    _report_idle_cells(tray)
    discharges = sorted(tray.discharges, key=_order)
    collection = Collection(tuple(discharges), tuple(tray.skipped))
    return collection if cells is None else collection.select(cells=cells)


def _files(place: Path) -> list[Path]:
    """What there is to read, in the order of `READERS`."""
    if not place.is_dir():
        if place.suffix.lower() not in READERS:
            raise ValueError(f"'{place}' is neither a folder nor a {', '.join(READERS)} file.")
        return [place]
    found = sorted(path for path in place.rglob("*") if path.suffix.lower() in READERS and path.is_file())
    fullest = {}
    for path in found:
        if path.name in NESTED:
            best = fullest.setdefault(path.parent, path)
            fullest[path.parent] = min(best, path, key=lambda each: NESTED.index(each.name))
    kept = [path for path in found if path.name not in NESTED or fullest[path.parent] == path]
    return sorted(kept, key=lambda path: list(READERS).index(path.suffix.lower()))


def _compare(folder: Path, tray: Tray, verify: bool) -> set[Path]:
    changed = differences(folder, contents=verify)
    for name, reason in changed.items():
        tray.refuse(name, "", None, f"{reason}; get it again with `{COMMAND}`")
    return {folder / name for name in changed}


def _report_idle_cells(tray: Tray) -> None:
    loaded = {each.cell for each in tray.discharges if each.carries_load}
    idle = {each.cell: each for each in tray.discharges if each.cell not in loaded}
    for cell, discharge in idle.items():
        count = sum(each.cell == cell for each in tray.discharges)
        tray.refuse(discharge.file, cell, None, f"the cell never discharges: no load in any of {count} logs")


def _order(discharge: Discharge) -> tuple:
    # RW9 before RW10.
    parts = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", discharge.cell)]
    return parts, KIND_ORDER.index(discharge.kind), discharge.index
