"""Parquet files to pandas tables. A few bytes can declare billions of rows, so the metadata are checked first."""

import importlib
from pathlib import Path
from typing import Any

from twinfold.data._readers.limits import TooLarge, check_column_count, max_unpacked_bytes

NUMBER_BYTES = 8
MAX_FIXED_LENGTH = 16  # bytes of a decimal number
TEXTS = ("STRING", "ENUM", "NONE")  # logical types of bytes


def read_parquet(path: Path) -> Any:
    """The table in a Parquet file: its columns of numbers, times and texts, without nested ones."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError("Parquet files are read with pyarrow: pip install 'twinfold[parquet]'.") from None
    try:
        with parquet.ParquetFile(path) as file:
            check_column_count(file.metadata.num_columns)
            columns = [file.schema.column(index) for index in range(file.metadata.num_columns)]
            rows = file.metadata.num_rows
        flat = [column for column in columns if _is_flat(column)]
        limit = max_unpacked_bytes(path)
        if rows * len(flat) * NUMBER_BYTES > limit:
            raise TooLarge(limit)
        # A text that many rows share is stored once; so it is read, and its length is checked.
        texts = [column.path for column in flat if column.physical_type == "BYTE_ARRAY"]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            table = file.read([column.path for column in flat])
        if sum(_text_bytes(table.column(name)) for name in texts) > limit:
            raise TooLarge(limit)
        # Without pandas' metadata: an index is a column like the others.
        frame = table.to_pandas(ignore_metadata=True)
    # A damaged file can raise any exception of the reader.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: not a readable Parquet file: {reason}") from None
    return frame.astype({name: object for name, dtype in frame.dtypes.items() if dtype == "category"})


def _is_flat(column: Any) -> bool:
    """Whether it has one number, time or text in a row."""
    if column.max_repetition_level or column.path != column.name or column.length > MAX_FIXED_LENGTH:
        return False
    return column.physical_type != "BYTE_ARRAY" or column.logical_type.type in TEXTS


def _text_bytes(column: Any) -> int:
    """The bytes of all cells of a column of texts."""
    compute = importlib.import_module("pyarrow.compute")
    lengths = (compute.take(compute.binary_length(chunk.dictionary), chunk.indices) for chunk in column.chunks)
    return sum(compute.sum(each).as_py() or 0 for each in lengths)
