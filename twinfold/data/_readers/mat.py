"""MATLAB files to tables: vectors of equal length are columns, each element of a struct array is a run."""

from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data._readers.limits import MAX_COLUMNS, check_column_count, max_unpacked_bytes
from twinfold.data._readers.mat5 import parse_mat
from twinfold.data._readers.table import WITHOUT_TIME, pandas_module
from twinfold.io import unknown_name


def read_mat(path: Path, time: str) -> dict[str, Any]:
    """The tables in a .mat file: one, named "", or one for each element of a struct array.

    Variables and struct fields that have the length of the variable `time` are columns; the columns of a matrix `y` are
    called `y(1)`, `y(2)`, ... If `time` is "", all vectors are, the shorter ones with empty cells at their end.

    A matrix of more than `MAX_COLUMNS` columns is none of measurements, and is left out.

    **Raises:** `ValueError` if the file cannot be read or has no vector `time`.
    """
    try:
        variables = parse_mat(path.read_bytes(), max_unpacked=max_unpacked_bytes(path))
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path}: not a readable MATLAB file: {reason}.") from None
    if not _has_columns(variables, time):
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


def _has_columns(variables: dict[str, Any], time: str) -> bool:
    columns = _columns(variables)
    return time in columns if time else any(len(column) > 1 for column in columns.values())


def _frame(path: Path, variables: dict[str, Any], time: str) -> Any:
    columns = _columns(variables)
    pd = pandas_module()
    if not time:
        columns = {name: pd.Series(column) for name, column in columns.items() if len(column) > 1}
    elif time in columns:
        columns = {name: column for name, column in columns.items() if len(column) == len(columns[time])}
    else:
        raise ValueError(f"{path}: time: there is no vector {unknown_name(time, columns)} {WITHOUT_TIME}")
    check_column_count(len(columns))
    return pd.DataFrame(columns)
