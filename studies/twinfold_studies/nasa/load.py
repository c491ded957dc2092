"""Load discharges from a folder of NASA's files or tables, or from one of these files."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from twinfold.io import check_regular_file
from twinfold_studies.nasa.collection import Builder, Collection, OnError
from twinfold_studies.nasa.discharge import Discharge
from twinfold_studies.nasa.location import COMMAND, find_data
from twinfold_studies.nasa.manifest import differences
from twinfold_studies.nasa.mat import read_mat
from twinfold_studies.nasa.tables import LOOKED_FOR, read_table

# The first of these in a folder contains the others.
NESTED = ("discharge_all.parquet", "discharge_selected.csv", "discharge_first2.csv")
READERS = {".parquet": read_table, ".mat": read_mat, ".csv": read_table}  # the most complete first
KIND_ORDER = ("cycle", "reference", "walk")


def load(
    where: str | os.PathLike[str] | None = None,
    *,
    cells: Sequence[str] | None = None,
    on_error: OnError = "skip",
    repair: bool = True,
    verify: bool = False,
) -> Collection:
    """The discharges in a folder and its subfolders, or in one file.

    A cell in several files is read from the most complete one: Parquet, then .mat, then CSV.

    **Arguments:**

    - `where`: the folder, or a .mat, .parquet or .csv file; default: see `find_data`.
    - `cells`: only these.
    - `on_error`: `"skip"` unusable input and record it in `.skipped`, or `"raise"`.
    - `repair`: reverse a current of the wrong sign, convert kelvin, and drop rows of the same time, with a note in the
      discharge; if False, these are errors.
    - `verify`: compare the SHA-256 of every file with the manifest of the folder (sizes are always compared).

    **Raises:** `FileNotFoundError` if there is nothing to read; `ValueError` if no file is one of discharges, or (see
    `on_error`) that names file, cell and cycle.
    """
    place = find_data(where)
    builder = Builder(on_error, repair)
    broken = _compare(place, builder, verify) if place.is_dir() else set()
    files = [path for path in _files(place) if path not in broken]
    if not files and not broken:
        raise FileNotFoundError(
            f"'{place}' contains no .mat, .parquet or .csv file. Get NASA's with `{COMMAND}`, or choose another folder."
        )
    for path in files:
        READERS[path.suffix.lower()](path, builder)
    _skip_idle_cells(builder)
    if not builder.discharges and not builder.skipped:
        raise ValueError(f"'{place}' has no discharges: none of its {len(files)} files is one of {LOOKED_FOR}.")
    discharges = sorted(builder.discharges, key=_order)
    collection = Collection(tuple(discharges), tuple(builder.skipped))
    return collection if cells is None else collection.select(cells=cells)


def _files(place: Path) -> list[Path]:
    """The files to read, in the order of `READERS`."""
    if not place.is_dir():
        if place.suffix.lower() not in READERS:
            raise ValueError(f"'{place}' is neither a folder nor a {', '.join(READERS)} file.")
        check_regular_file(place)
        return [place]
    found = sorted(path for path in place.rglob("*") if path.suffix.lower() in READERS and path.is_file())
    preferred = {}
    for path in found:
        if path.name in NESTED:
            best = preferred.setdefault(path.parent, path)
            preferred[path.parent] = min(best, path, key=lambda each: NESTED.index(each.name))
    used = [path for path in found if path.name not in NESTED or preferred[path.parent] == path]
    return sorted(used, key=lambda path: list(READERS).index(path.suffix.lower()))


def _compare(folder: Path, builder: Builder, verify: bool) -> set[Path]:
    changed = differences(folder, contents=verify)
    for name, reason in changed.items():
        builder.refuse(name, "", None, f"{reason}; get it again with `{COMMAND}`")
    return {folder / name for name in changed}


def _skip_idle_cells(builder: Builder) -> None:
    loaded = {each.cell for each in builder.discharges if each.carries_load}
    idle = {each.cell: each for each in builder.discharges if each.cell not in loaded}
    for cell, discharge in idle.items():
        count = sum(each.cell == cell for each in builder.discharges)
        builder.refuse(discharge.file, cell, None, f"the cell is never discharged: no load in any of {count} logs")


def _order(discharge: Discharge) -> tuple:
    # RW9 before RW10.
    parts = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", discharge.cell)]
    return parts, KIND_ORDER.index(discharge.kind), discharge.index
