"""MATLAB files to tables: vectors of equal length are columns, each element of a struct array is a run."""

from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data._readers.limits import MAX_COLUMNS, check_column_count, max_unpacked_bytes
from twinfold.data._readers.mat5 import parse_mat
from twinfold.data._readers.table import pandas_module
from twinfold.io import unknown_name


def read_mat(path: Path, time: str) -> dict[str, Any]:
    """The tables in a .mat file: one, named "", or one for each element of a struct array.

    Variables and struct fields that have the length of the variable `time` are columns; the columns of a matrix `y` are
    called `y(1)`, `y(2)`, ...

    A matrix of more than `MAX_COLUMNS` columns is none of measurements, and is left out.

    **Raises:** `ValueError` if the file cannot be read or has no vector `time`.
    """
    try:
        variables = parse_mat(path.read_bytes(), max_unpacked=max_unpacked_bytes(path))
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path}: not a readable MATLAB file: {reason}.") from None
    if time not in _columns(variables):
        for name, value in variables.items():
            if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
                return {f"{name}({index + 1})": _frame(path, each, time) for index, each in enumerate(value)}
    return {"": _frame(path, variables, time)}


def _columns(variables: dict[str, Any]) -> dict[str, np.ndarray]:
    """All vectors by name, those inside structs too (by field, or struct.field if the name is taken)."""
    columns: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        if isinstance(value, dict):
            for field, inner in _columns(value).items():
                columns[field if field not in columns and field not in variables else f"{name}.{field}"] = inner
        elif isinstance(value, np.ndarray) and value.ndim == 1:
            columns[name] = value
        elif isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] <= MAX_COLUMNS:
            columns |= {f"{name}({index + 1})": column for index, column in enumerate(value.T)}
    return columns


def _frame(path: Path, variables: dict[str, Any], time: str) -> Any:
    columns = _columns(variables)
    if time not in columns:
        raise ValueError(f"{path}: time: there is no vector {unknown_name(time, columns)}")
    rows = len(columns[time])
    columns = {name: column for name, column in columns.items() if len(column) == rows}
    check_column_count(len(columns))
    return pandas_module().DataFrame(columns)
