"""The format of model files and their metadata. Reading a file needs no JAX and executes nothing.

A model file is a .npz archive, uncompressed and without pickles: `header` (JSON: format, names, configuration,
versions, metrics, and the path, shape and dtype of every array of the twin), `checksum` (SHA-256 of everything else)
and the arrays.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, Strict

from twinfold._version import __version__
from twinfold.io._archive import read_arrays, write_arrays
from twinfold.io._settings import Name, Names, Numbers, OptionalName, Settings, validate
from twinfold.io._writers import json_safe

MAGIC, FORMAT = "twinfold model", 2
OLDEST_FORMAT = 1
# How the paths of arrays changed after a format: (pattern, replacement), applied in order.
PATH_CHANGES = {
    1: (
        (r"^(?=\.(field|algebraic|constraint|projection|integrator)\b)", ".cell"),
        (r"^(\.cell\.algebraic|\.params\[.*\]|\.initial)\.start\b", r"\1.guess"),
        (r"^(\.cell\.projection)\.root\b", r"\1.metric.root"),
    )
}


class ModelInfo(Settings):
    """The metadata of a fitted twin in a model file.

    **Arguments:** names of `states`, `inputs`, `outputs`, and their `units`; `dt`, the usual step of the data;
    `x0_example`, an initial state; `x_low` to `w_high`, the ranges of states and inputs in the training data; `config`,
    the configuration of the fit; `system_source_sha256`, of the file that builds the twin; `data_fingerprint`, of the
    training data; `versions`; `metrics`; `parameters`, the estimates: for each a table with name, value, standard
    error (None if not computed), first guess and flag; `trained_on`, a sentence if it is more than the training runs.

    **Example:**

    ```python
    info = tw.ModelInfo(states=["x", "v"], outputs=["x"], units={"x": "m"}, dt=0.01)
    info.states  # ("x", "v")
    ```
    """

    states: Names = ()
    inputs: Names = ()
    outputs: Names = ()
    units: dict[Name, OptionalName] = Field(default_factory=dict)
    dt: float | None = None
    x0_example: Numbers = ()
    x_low: Numbers = ()
    x_high: Numbers = ()
    w_low: Numbers = ()
    w_high: Numbers = ()
    config: dict[str, Any] = Field(default_factory=dict)
    system_source_sha256: str = ""
    data_fingerprint: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    metrics: dict[str, Any] = Field(default_factory=dict)
    parameters: Annotated[tuple[dict[str, Any], ...], Strict(False)] = ()
    trained_on: str = ""


class ArrayEntry(Settings):
    """An array of the twin: its path in the tree, its shape and its dtype."""

    name: str
    shape: Annotated[tuple[int, ...], Strict(False)]
    dtype: str


class ModelHeader(Settings):
    """The header of a model file; `structure` describes the twin without its arrays."""

    magic: str
    format: int
    twinfold: str
    about: ModelInfo
    structure: str
    runs: Names | None
    groups: Names | None
    origins: Names | None = None  # absent from files of earlier versions
    arrays: Annotated[tuple[ArrayEntry, ...], Strict(False)]


def read_info(path: str | Path) -> ModelInfo:
    """Read the metadata of a model file. The arrays are verified; nothing is imported or executed.

    **Raises:** `ValueError` for a file that is damaged, foreign, or of an unknown format; `FileNotFoundError`.

    **Example:**

    ```python
    tw.save_model("decay.twin", tw.Twin(lambda x: -x), about=tw.ModelInfo(states=["x"], dt=0.1))
    tw.read_info("decay.twin").dt  # 0.1
    ```
    """
    return read_model(Path(path))[0].about


def write_model(path: Path, header: ModelHeader, arrays: list[np.ndarray]) -> None:
    """Write a model file; `arrays` in the order of the header's entries."""
    text = json.dumps(json_safe(header.model_dump()), allow_nan=False).encode()
    stored = {"header": np.frombuffer(text, np.uint8)} | {f"array{i}": array for i, array in enumerate(arrays)}
    write_arrays(path, {"checksum": checksum(stored)} | stored)


def read_model(path: Path) -> tuple[ModelHeader, dict[str, np.ndarray]]:
    """The header of a model file and its arrays by path, both as the current format has them."""
    try:
        stored = read_arrays(path)
        expected, table = stored.pop("checksum"), json.loads(stored["header"].tobytes())
        if table["magic"] != MAGIC or not isinstance(table["format"], int):
            raise ValueError("unknown header")
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no model file {path}; `twinfold fit` writes one.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise ValueError(f"{path} is not a model file of twinfold, or is damaged: {reason}.") from None
    if not OLDEST_FORMAT <= table["format"] <= FORMAT:
        raise ValueError(
            f"{path} has format {table['format']}, written by twinfold {table.get('twinfold', '(unknown)')}; twinfold "
            f"{__version__} reads formats {OLDEST_FORMAT} to {FORMAT}. Load it with that version, or fit again."
        )
    if not np.array_equal(checksum(stored), expected):
        raise ValueError(f"{path} was changed after it was written: checksum mismatch. Fit again.")
    del stored["header"]
    try:
        header = validate(ModelHeader, table, "header")
        contents = {name: (array.shape, str(array.dtype)) for name, array in stored.items()}
        if {f"array{i}": (entry.shape, entry.dtype) for i, entry in enumerate(header.arrays)} != contents:
            raise ValueError("the header lists other arrays than the file contains")
        if (header.runs is None) != (header.groups is None):
            raise ValueError("the header lists runs without groups, or groups without runs")
        if header.origins is not None and len(header.origins) != len(header.runs or ()):
            raise ValueError("the header lists other origins than runs")
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path} is not a model file of twinfold, or is damaged: {reason}.") from None
    header = _migrate(header)
    return header, {entry.name: stored[f"array{i}"] for i, entry in enumerate(header.arrays)}


def checksum(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of names, dtypes, shapes and contents."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def _migrate(header: ModelHeader) -> ModelHeader:
    """The header with the array paths of the current format."""
    changes = [change for format in range(header.format, FORMAT) for change in PATH_CHANGES[format]]

    def current(name: str) -> str:
        for pattern, replacement in changes:
            name = re.sub(pattern, replacement, name)
        return name

    entries = tuple(entry.model_copy(update={"name": current(entry.name)}) for entry in header.arrays)
    return header.model_copy(update={"arrays": entries})
