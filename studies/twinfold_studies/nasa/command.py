"""The command `twinfold data nasa-battery`: get the files, and print tables of cells, flags and skipped input."""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.io import write_csv
from twinfold_studies.nasa.collection import Collection
from twinfold_studies.nasa.discharge import Discharge
from twinfold_studies.nasa.fetch import fetch
from twinfold_studies.nasa.load import load
from twinfold_studies.nasa.tables import LOOKED_FOR


@dataclasses.dataclass(frozen=True)
class CommandOptions:
    """The options of the command; `source` is --from."""

    source: str = ""
    out: Path | None = None
    cells: tuple[str, ...] = ()
    flags: bool = False
    table: Path | None = None
    verify: bool = False
    strict: bool = False
    force: bool = False


def run(options: CommandOptions, console: Any) -> Collection:
    """Run the command. **Returns:** the collection that it printed. **Raises:** `ValueError` if that is empty."""
    on_error = "raise" if options.strict else "skip"
    place = options.out
    if options.source:
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("download", total=None, visible=False)

            def update(received: int, size: int | None) -> None:
                progress.update(task, completed=received, total=size, visible=True)

            fetched = fetch(options.source, place, on_error=on_error, force=options.force, progress=update)
        place = fetched.folder
        for skipped in fetched.skipped:
            console.print(f"skipped  {skipped}", markup=False, soft_wrap=True)
        counts = f"{len(fetched.written)} files written, {len(fetched.unchanged)} unchanged"
        console.print(f"{place}: {counts}\n", markup=False, soft_wrap=True)
    collection = load(place, cells=options.cells or None, on_error=on_error, verify=options.verify)
    print_collection(collection, console, each=options.flags)
    if not len(collection):
        raise ValueError(f"No discharge was found. Looked for: {LOOKED_FOR}.")
    if options.table is not None:
        write_csv(options.table, collection.table())
    return collection


def print_collection(collection: Collection, console: Any, *, each: bool = False) -> None:
    """Print a row for each cell and kind, a row for each flag, repairs and skipped input.

    **Arguments:** `collection`; `console`, of rich; `each`: also print every flagged discharge with its reasons.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("cell", "kind", "discharges", "clean", "A", "deg C", "Ah first", "Ah last"):
        table.add_column(name, justify="left" if name in ("cell", "kind") else "right")
    groups: dict[tuple[str, str], list[Discharge]] = {}
    for discharge in collection:
        groups.setdefault((discharge.cell, discharge.kind), []).append(discharge)
    for (cell, kind), group in groups.items():
        table.add_row(
            cell,
            kind,
            str(len(group)),
            str(sum(discharge.clean for discharge in group)),
            _range([discharge.load_current for discharge in group], ".1f"),
            _range([discharge.ambient for discharge in group], ".0f"),
            f"{group[0].capacity:.3f}",
            f"{group[-1].capacity:.3f}",
        )
    console.print(table)
    clean = sum(discharge.clean for discharge in collection)
    console.print(f"\n{len(collection.cells)} cells, {len(collection)} discharges, {clean} without a flag\n")
    _print_flags(collection, console)
    if each:
        _print_flagged(collection, console)
    _print_notes(collection, console)
    for skipped in collection.skipped:
        console.print(f"skipped  {skipped}", markup=False, soft_wrap=True)


def _print_flags(collection: Collection, console: Any) -> None:
    from rich.table import Table

    cells: dict[str, Counter] = {}
    for discharge in collection:
        for flag in discharge.flags:
            if not flag.remark:
                cells.setdefault(flag.name, Counter())[discharge.cell] += 1
    table = Table("flag", "discharges", "cells", box=None, pad_edge=False)
    for name, counts in cells.items():
        table.add_row(name, str(counts.total()), ", ".join(f"{cell} {count}" for cell, count in counts.items()))
    if cells:
        console.print(table)
        console.print()


def _print_flagged(collection: Collection, console: Any) -> None:
    for discharge in collection:
        for flag in discharge.flags:
            if not flag.remark:
                console.print(f"{discharge.name}  {flag.name}: {flag.reason}", markup=False, soft_wrap=True)


def _print_notes(collection: Collection, console: Any) -> None:
    noted: dict[str, list[Discharge]] = {}
    for discharge in collection:
        for note in discharge.notes:
            noted.setdefault(note, []).append(discharge)
    for note, group in noted.items():
        cells = ", ".join(dict.fromkeys(discharge.cell for discharge in group))
        where = group[0].where if len(group) == 1 else f"{len(group)} discharges of {cells}"
        console.print(f"note  {where}: {note}", markup=False, soft_wrap=True)


def _range(values: list[float], form: str) -> str:
    known = np.array(values)[~np.isnan(values)]
    if not len(known):
        return ""
    low, high = f"{known.min():{form}}", f"{known.max():{form}}"
    return low if low == high else f"{low}-{high}"
