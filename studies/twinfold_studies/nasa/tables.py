"""Discharges from CSV and Parquet tables with a row for each sample, recognised by their columns."""

import csv
import dataclasses
import io
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from twinfold_studies.nasa.cells import ambient
from twinfold_studies.nasa.collection import DUPLICATE, Builder
from twinfold_studies.nasa.discharge import Kind
from twinfold_studies.nasa.log import Log
from twinfold_studies.nasa.manifest import Readable
from twinfold_studies.nasa.mat import from_date

CELL, TIME = "battery", "time_s"
MAX_HEADER_BYTES = 1 << 16
Columns = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns of a table; `facts` is the table in the same folder with a row for each discharge."""

    kind: Kind
    index: str
    series: tuple[str, ...]
    sign: int
    facts: str = ""


LAYOUTS = (
    Layout(
        "cycle",
        "discharge_index",
        (TIME, "voltage_measured_V", "current_measured_A", "temperature_measured_C"),
        -1,
        "cycles.csv",
    ),
    Layout(
        "reference",
        "reference_index",
        (TIME, "voltage_V", "current_A", "temperature_C"),
        1,
        "rw_reference_cycles.csv",
    ),
    Layout("walk", "run", (TIME, "voltage_V", "current_A", "temperature_C"), 1),
)


LOOKED_FOR = "NASA's .mat files, or tables with the columns " + ", or ".join(
    ", ".join((CELL, layout.index, *layout.series[:3])) for layout in LAYOUTS
)


class Fact(NamedTuple):
    """The row of a discharge in the table of discharges."""

    ambient: float = np.nan
    published: float = np.nan
    start: datetime | None = None
    cycle: int | None = None


def _parquet(path: Path) -> Any:
    """The reader of Parquet files, which a machine that only reads CSV files does not need."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f"'{path.name}' needs pyarrow: pip install pyarrow, or give a CSV table.") from error
    return parquet


def has_discharges(header: Sequence[str]) -> bool:
    """Whether a table with these columns is one of discharges."""
    return any({CELL, layout.index, *layout.series[:3]} <= set(header) for layout in LAYOUTS)


def csv_header(file: Readable) -> list[str]:
    """The columns of a CSV file, of which only the beginning is read."""
    beginning = file.read(MAX_HEADER_BYTES).decode("utf-8-sig", errors="replace")
    return next(csv.reader(io.StringIO(beginning)), [])


def read_table(path: Path, builder: Builder) -> None:
    """Add the discharges of a table, except those of cells and kinds that were already read.

    A table without times is not a log, and is ignored.
    """
    try:
        header = _header(path)
        if TIME not in header:
            return
        layouts = [layout for layout in LAYOUTS if layout.index in header]
        required = {CELL, *layouts[0].series[:3]} if layouts else {CELL, *(each.index for each in LAYOUTS)}
        if not layouts or not required <= set(header):
            raise ValueError(f"required columns are missing: {', '.join(sorted(required - set(header)))}")
        layout = layouts[0]
        columns = _read(path, [CELL, layout.index, *(name for name in layout.series if name in header)])
        facts = _facts(path.parent / layout.facts, layout.index) if layout.facts else {}
    except (ValueError, OSError, csv.Error) as error:
        builder.refuse(path.name, "", None, f"not readable as a table of discharges: {error}")
        return
    discharges = _discharges(columns[CELL], columns[layout.index])
    duplicates = sorted(cell for cell in {cell for cell, _ in discharges} if builder.has(cell, [layout.kind]))
    for cell in duplicates:
        builder.skip(path.name, cell, None, DUPLICATE)
    for (cell, index), rows in discharges.items():
        if cell in duplicates:
            continue
        fact = facts.get((cell, index), Fact())
        builder.add(
            Log(
                cell=cell,
                index=index,
                kind=layout.kind,
                series={name: columns[name][rows] for name in layout.series if name in columns},
                sign=layout.sign,
                ambient=ambient(cell) if np.isnan(fact.ambient) else fact.ambient,
                published=fact.published,
                start=fact.start,
                file=path.name,
                cycle=fact.cycle,
            )
        )


def _discharges(cells: np.ndarray, indices: np.ndarray) -> dict[tuple[str, int], np.ndarray]:
    """The rows of each discharge, by cell and index."""
    edges = np.flatnonzero((cells[1:] != cells[:-1]) | (indices[1:] != indices[:-1])) + 1
    blocks: dict[tuple[str, int], list[np.ndarray]] = {}
    for rows in np.split(np.arange(len(cells)), edges):
        blocks.setdefault((str(cells[rows[0]]), int(indices[rows[0]])), []).append(rows)
    return {key: np.concatenate(rows) for key, rows in blocks.items()}


def _header(path: Path) -> list[str]:
    if path.suffix.lower() == ".parquet":
        return list(_parquet(path).read_schema(path).names)
    with path.open("rb") as file:
        return csv_header(file)


def _read(path: Path, names: list[str]) -> Columns:
    """Columns of a table as numbers, except the cells; an empty number is NaN."""
    if path.suffix.lower() == ".parquet":
        table = _parquet(path).read_table(path, columns=names)
        columns, places = {name: table.column(name).to_numpy() for name in names}, None
    else:
        rows = _rows(path)
        columns = {name: np.array([row[name] or "nan" for row in rows.values()]) for name in names}
        places = list(rows)
    if not len(columns[CELL]):
        raise ValueError("it has no rows")
    for name in names[1:]:
        columns[name] = _as_floats(columns[name], name)
    for name, empty in ((CELL, columns[CELL] == "nan"), (names[1], ~np.isfinite(columns[names[1]]))):
        if empty.any():
            row = int(empty.argmax())
            raise ValueError(f"column {name} is empty in {f'row {row}' if places is None else f'line {places[row]}'}")
    return columns


def _rows(path: Path) -> dict[int, dict[str, str]]:
    """The rows of a CSV file by the line that they end in."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        rows = dict((reader.line_num, row) for row in reader)  # noqa: C402
    for line, row in rows.items():
        if None in row or None in row.values():
            raise ValueError(f"line {line} and the header have different numbers of fields")
    return rows


def _as_floats(values: np.ndarray, name: str) -> np.ndarray:
    try:
        return values.astype(np.float64)
    except ValueError as error:
        raise ValueError(f"column {name}: {error}") from None


def _facts(path: Path, index: str) -> dict[tuple[str, int], Fact]:
    """The rows of a table of discharges by cell and index; empty if there is no such table."""
    facts = {}
    for line, row in _rows(path).items() if path.is_file() else ():
        try:
            stamp = row.get("start_time")
            facts[row[CELL], int(row[index])] = Fact(
                ambient=float(row.get("ambient_temperature_C") or row.get("nominal_ambient_C") or "nan"),
                # In the table of set #11 it is not published, but an integral.
                published=float(row["capacity_Ah"] or "nan") if "mat_cycle_index" in row else np.nan,
                start=datetime.fromisoformat(stamp) if stamp else from_date(row.get("start_date", "")),
                cycle=int(row["mat_cycle_index"]) if row.get("mat_cycle_index") else None,
            )
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path.name}, line {line}: {error}") from None
    return facts
