"""Files: atomic writes, archives, run folders, tables and JSON."""

from twinfold.io._archive import read_arrays, write_arrays
from twinfold.io._atomic import atomic_write, atomic_write_text
from twinfold.io._names import unknown_name
from twinfold.io._run_folder import (
    CONFIG,
    OtherConfiguration,
    open_folder,
    versions,
    write_csv,
    write_lines,
    write_text,
)
from twinfold.io._schema import build, settle, settle_fields

__all__ = [
    "CONFIG",
    "OtherConfiguration",
    "atomic_write",
    "atomic_write_text",
    "build",
    "open_folder",
    "read_arrays",
    "settle",
    "settle_fields",
    "unknown_name",
    "versions",
    "write_arrays",
    "write_csv",
    "write_lines",
    "write_text",
]
