"""Files to pandas tables: CSV, Parquet and MATLAB."""

import gzip
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from twinfold.data._readers.mat import read_mat
from twinfold.data._readers.table import pandas_module

ENDINGS = {".csv": "csv", ".csv.gz": "csv", ".txt": "csv", ".parquet": "parquet", ".pq": "parquet", ".mat": "mat"}
Format = Literal["auto", "csv", "parquet", "mat"]


def read_file(path: Path, format: Format, *, time: str, text_columns: Sequence[str]) -> dict[str, Any]:
    """The tables in a file: one, named "", or one for each element of a MATLAB struct array.

    **Arguments:** `path`; `format`, `"auto"` for that of the file's ending; `time`, the column of times;
    `text_columns`, which are read as text.

    **Raises:** `ValueError` that names the file.
    """
    if not path.is_file():
        raise ValueError(f"files: {path} is a folder; name the files in it, as in '{path}/*.csv'.")
    kind = format
    if kind == "auto":
        kind = next((kind for ending, kind in ENDINGS.items() if path.name.lower().endswith(ending)), "")
    if kind == "csv":
        return {"": _read_csv(path, text_columns)}
    if kind == "parquet":
        return {"": _read_parquet(path)}
    if kind == "mat":
        return read_mat(path, time)
    raise ValueError(
        f'files: the ending of {path} is not one of {", ".join(ENDINGS)}; give the format, as in format="csv".'
    )


def _read_csv(path: Path, text_columns: Sequence[str]) -> Any:
    header = _parse_csv(path, nrows=0).columns
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in str(header[0]):
            raise ValueError(
                f"{path}: the columns are separated by {name}; write the file with commas between the columns and "
                "points in the numbers."
            )
    return _parse_csv(path, dtype=dict.fromkeys(text_columns, str))


def _parse_csv(path: Path, **options: Any) -> Any:
    pd = pandas_module()
    # Up to 3.0, pandas may miss the last bit of a number unless asked; from 3.1 on the option is deprecated.
    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    if version < (3, 1):
        options["float_precision"] = "round_trip"
    try:
        with warnings.catch_warnings():
            # pandas only warns when it drops cells of a row that is longer than the header.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(path, index_col=False, skipinitialspace=True, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: the file is empty; it must have a header and rows.") from None
    # The other errors: damaged compressed files; OverflowError for a number of thousands of digits.
    except (ValueError, OverflowError, EOFError, zlib.error, gzip.BadGzipFile, pd.errors.ParserWarning) as error:
        raise ValueError(f"{path}: the file is not a comma-separated table: {str(error).strip()}") from None


def _read_parquet(path: Path) -> Any:
    try:
        return pandas_module().read_parquet(path)
    except ImportError:
        raise ImportError("Parquet files are read with pyarrow: pip install 'twinfold[parquet]'.") from None
    # A damaged file can raise any exception of the reader.
    except Exception as error:
        raise ValueError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]}).") from None
