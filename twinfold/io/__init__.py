"""Files: atomic writes, tables and JSON, run folders, and the metadata of model files."""

from twinfold.io._atomic import atomic_write
from twinfold.io._model_info import ModelInfo, read_info
from twinfold.io._names import unknown_name
from twinfold.io._run_folder import ConfigurationMismatch, RunFolder, versions
from twinfold.io._writers import json_safe, write_csv, write_json, write_json_lines, write_text

__all__ = [
    "ConfigurationMismatch",
    "ModelInfo",
    "RunFolder",
    "atomic_write",
    "json_safe",
    "read_info",
    "unknown_name",
    "versions",
    "write_csv",
    "write_json",
    "write_json_lines",
    "write_text",
]
