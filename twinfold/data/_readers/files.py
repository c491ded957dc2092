"""Files to pandas tables: CSV, Parquet and MATLAB."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from twinfold.data._readers.csv_file import csv_place, read_csv
from twinfold.data._readers.mat import read_mat
from twinfold.data._readers.parquet_file import read_parquet
from twinfold.data._readers.table import Place, row_place
from twinfold.io import check_regular_file

ENDINGS = {".csv": "csv", ".csv.gz": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".mat": "mat"}
Format = Literal["auto", "csv", "parquet", "mat"]


def read_file(path: Path, format: Format, *, time: str, text_columns: Sequence[str]) -> tuple[dict[str, Any], Place]:
    """The tables in a file: one, named "", or one for each element of a MATLAB struct array; and the place of a row.

    **Arguments:** `path`; `format`, `"auto"` for that of the file's ending; `time`, the column of times;
    `text_columns`, which are read as text.

    **Raises:** `ValueError` that names the file.
    """
    if path.is_dir():
        raise ValueError(f"files: {path} is a folder; name the files in it, as in '{path}/*.csv'.")
    check_regular_file(path, f"files: {path}")
    kind = format
    if kind == "auto":
        kind = next((kind for ending, kind in ENDINGS.items() if path.name.lower().endswith(ending)), "")
    if kind == "csv":
        return {"": read_csv(path, time=time, text_columns=text_columns)}, partial(csv_place, path)
    if kind == "parquet":
        return {"": read_parquet(path)}, row_place
    if kind == "mat":
        return read_mat(path, time), row_place
    raise ValueError(
        f'files: the ending of {path} is not one of {", ".join(ENDINGS)}; give the format, as in format="csv".'
    )
