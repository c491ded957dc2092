"""Results of a fleet on disk: one Parquet file for each partition, replaced as a whole, with what it was made from."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinfold.io import atomic_write

if TYPE_CHECKING:
    import pandas as pd

META = b"twinfold"  # the key of our entry in the metadata of a Parquet file


def write_table(
    path: Path, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], columns: Sequence[str]
) -> None:
    """Write rows with these columns, and plain data `about` them, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = {"asset", "digest", "reason", "changed", "note"}
    arrays = {name: pa.array([row[name] for row in rows], pa.string() if name in texts else None) for name in columns}
    table = pa.table(arrays).replace_schema_metadata({META: json.dumps(dict(about)).encode()})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    with atomic_write(path) as file:
        file.write(buffer.getbuffer())


def read_about(path: Path) -> dict[str, Any] | None:
    """What a file was made from; None if it is not there, or not ours."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return json.loads((pq.read_schema(path).metadata or {})[META])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def read_table(path: Path) -> "pd.DataFrame":
    """The rows of a file."""
    import pandas as pd

    return pd.read_parquet(path)
