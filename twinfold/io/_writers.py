"""Plain files, written atomically: text, CSV, JSON, JSON lines. JSON has neither infinity nor NaN: both become null."""

import csv
import gzip
import io
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.io._atomic import atomic_write


def json_safe(value: Any) -> Any:
    """A value as JSON can hold it: lists for tuples, sets and arrays, strings for keys, null for non-finite numbers.

    **Example:**

    ```python
    tw.io.json_safe({"rmse": np.array([0.5, np.nan])})  # {"rmse": [0.5, None]}
    ```
    """
    if isinstance(value, Mapping):
        return {str(name): json_safe(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return json_safe(value.tolist())
    if isinstance(value, list | tuple | set):
        return [json_safe(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write a text file in UTF-8.

    **Example:**

    ```python
    tw.io.write_text("notes/run.md", "# First run\\n")
    ```
    """
    with atomic_write(path) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a value as indented JSON; see `json_safe`.

    **Example:**

    ```python
    from pathlib import Path

    tw.io.write_json("metrics.json", {"rmse": np.float64(0.25), "valid_time": np.inf})
    Path("metrics.json").read_text()  # {"rmse": 0.25, "valid_time": null}, over four lines
    ```
    """
    write_text(path, json.dumps(json_safe(value), indent=2, allow_nan=False) + "\n")


def write_json_lines(path: str | os.PathLike, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line; see `json_safe`. The file is compressed if its name ends in .gz.

    **Example:**

    ```python
    from pathlib import Path

    tw.io.write_json_lines("history.jsonl", ({"epoch": i, "loss": 1 / i} for i in (1, 2)))
    Path("history.jsonl").read_text().splitlines()[1]  # {"epoch": 2, "loss": 0.5}
    ```
    """
    with atomic_write(path) as file:
        lines = (
            gzip.GzipFile(fileobj=file, mode="wb", compresslevel=4, mtime=0)
            if os.fspath(path).endswith(".gz")
            else file
        )
        for row in rows:
            lines.write((json.dumps(json_safe(row), allow_nan=False) + "\n").encode())
        if lines is not file:
            lines.close()


def write_csv(
    path: str | os.PathLike, rows: Iterable[Mapping[str, Any] | Sequence[Any]], columns: Sequence[str] = ()
) -> None:
    """Write a table with a header; numbers keep all their digits.

    **Arguments:** `path`; `rows`, mappings with the same keys, or sequences of values; `columns`, the header: required
    for sequences, the keys of the first mapping otherwise.

    **Example:**

    ```python
    tw.io.write_csv("errors.csv", [{"model": "twin", "rmse": 0.1}, {"model": "physics", "rmse": 0.4}])
    tw.io.write_csv("samples.csv", zip([0.0, 0.1], [1.0, 0.9]), columns=["t", "x"])
    ```
    """
    remaining = iter(rows)
    first = [] if columns else list(itertools.islice(remaining, 1))
    columns = columns or [name for row in first for name in row]
    with atomic_write(path) as file:
        table = io.TextIOWrapper(file, encoding="utf-8", newline="")
        plain, named = csv.writer(table), csv.DictWriter(table, columns)
        named.writeheader()
        for row in itertools.chain(first, remaining):
            if isinstance(row, Mapping):
                named.writerow(row)
            else:
                plain.writerow(row)
        table.detach()  # flushes; `atomic_write` closes the file
