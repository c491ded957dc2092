"""MATLAB files (version 5 to 7) as tables: vectors of one length are columns, an array of structs is one run each."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data._readers.mat5 import parse_mat
from twinfold.data._readers.table import pandas_module
from twinfold.io import unknown_name


def read_mat(path: str | os.PathLike[str], time: str) -> dict[str, Any]:
    """The tables in a .mat file: one, named "", or one for each element of an array of structs.

    The variables, and the fields of structs, whose length is that of the variable `time` are columns; the columns of a
    matrix `y` are called `y(1)`, `y(2)`, ...

    **Raises:** `ValueError` for a file that cannot be read, or in which there is no vector `time`.
    """
    variables = _loaded(path)
    several = {name: value for name, value in variables.items() if _structs(value)}
    if time not in _columns(variables) and several:
        name, elements = next(iter(several.items()))
        return {f"{name}({index + 1})": _frame(path, each, time) for index, each in enumerate(elements)}
    return {"": _frame(path, variables, time)}


def _loaded(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return parse_mat(Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not a readable MATLAB file: {error}.") from None


def _structs(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(each, dict) for each in value)


def _columns(variables: dict[str, Any]) -> dict[str, np.ndarray]:
    """Every vector by its name, also those inside structs (by the field, or struct.field where that is taken)."""
    found: dict[str, np.ndarray] = {}
    for name, value in variables.items():
        if isinstance(value, dict):
            for field, inner in _columns(value).items():
                found[field if field not in found and field not in variables else f"{name}.{field}"] = inner
            continue
        if isinstance(value, np.ndarray) and value.ndim == 1:
            found[name] = value
        elif isinstance(value, np.ndarray) and value.ndim == 2:
            found |= {f"{name}({index + 1})": column for index, column in enumerate(value.T)}
    return found


def _frame(path: str | os.PathLike[str], variables: dict[str, Any], time: str) -> Any:
    columns = _columns(variables)
    if time not in columns:
        raise ValueError(f"{path}: time: there is no vector {unknown_name(time, columns)}")
    rows = len(columns[time])
    return pandas_module().DataFrame({name: column for name, column in columns.items() if len(column) == rows})
