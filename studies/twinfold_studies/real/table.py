"""What every loader returns, and how it is read: columns of numbers by name, for each record by name."""

import csv
import gzip
import io
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

Record: TypeAlias = dict[str, Float[np.ndarray, " T"]]
Records: TypeAlias = dict[str, Record]


def read_columns(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file, perhaps compressed, as text; a byte-order mark is skipped."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    header, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig")))
    return {name.strip(): [row[index] for row in rows] for index, name in enumerate(header)}


def numbers(columns: dict[str, list[str]], name: str) -> Float[np.ndarray, " T"]:
    """A column of numbers."""
    return np.array(columns[name], float)


def write_records(records: Records, folder: Path) -> list[Path]:
    """Write each record to a CSV file named after it, and return the files."""
    paths = []
    for name, record in records.items():
        path = folder / f"{name}.csv"
        table = np.stack(list(record.values()), axis=1)
        lines = [",".join(record), *(",".join(f"{value:.10g}" for value in row) for row in table)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        paths.append(path)
    return paths
