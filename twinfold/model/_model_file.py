"""A fitted twin in one file: its arrays and what is to be known of it. Nothing in the file is ever executed.

The file is a .npz archive, uncompressed and without pickles: `header` (JSON: format, names, configuration, versions,
metrics, and the name, shape and dtype of every array), `checksum` (SHA-256 of all the rest) and the arrays. What the
twin computes is not in it: that is the user's own system.py, which builds the twin that `load_model` fills.
"""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import tree_structure_text
from twinfold._version import __version__
from twinfold.io import build, read_arrays, settle_fields, write_arrays
from twinfold.model._learned.base import Statistics
from twinfold.model._twin import Twin

MAGIC, FORMAT = "twinfold model", 1
OLDEST = 1  # format that this version still reads


@dataclass(frozen=True)
class ModelInfo:
    """What is to be known of a fitted twin beside its arrays.

    **Arguments:** names of `states`, `inputs`, `outputs`, and their `units`; `dt`, the usual step of the data;
    `x0_example`, a state to start from; `x_low` to `w_high`, the ranges of states and inputs in the training data;
    `config`, the configuration it was fitted with; `system_source_sha256`, of the file that builds the twin;
    `data_fingerprint`, of the training data; `versions`; `metrics`.
    """

    states: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)
    dt: float | None = None
    x0_example: tuple[float, ...] = ()
    x_low: tuple[float, ...] = ()
    x_high: tuple[float, ...] = ()
    w_low: tuple[float, ...] = ()
    w_high: tuple[float, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    system_source_sha256: str = ""
    data_fingerprint: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        settle_fields(self, "about")


@dataclass(frozen=True)
class _Entry:
    """Where an array belongs in the twin, and of what kind it is."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self):
        settle_fields(self, "array")


@dataclass(frozen=True)
class _Header:
    magic: str
    format: int
    twinfold: str
    about: dict[str, Any]
    structure: str
    runs: tuple[str, ...] | None
    groups: tuple[str, ...] | None
    arrays: tuple[dict[str, Any], ...]

    def __post_init__(self):
        settle_fields(self, "header")

    @property
    def entries(self) -> list[_Entry]:
        return [build(_Entry, each, "array") for each in self.arrays]


def save_model(path: str | Path, twin: Twin, *, about: ModelInfo) -> None:
    """Write a fitted twin to `path`; the file is the old one or the new one, never half of either.

    **Raises:** `ValueError` for an array that the format has no place for.
    """
    arrays = _arrays(twin)
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":  # a random key, or a float that numpy does not know
            raise ValueError(f"twin{name} holds {array.dtype}; a model file has room for plain numbers only.")
    header = _Header(
        MAGIC,
        FORMAT,
        __version__,
        dataclasses.asdict(about),
        _structure(twin),
        twin.runs,
        twin.groups,
        tuple(dataclasses.asdict(entry) for entry in _entries(arrays)),
    )
    text = np.frombuffer(json.dumps(_finite(dataclasses.asdict(header)), allow_nan=False).encode(), np.uint8)
    stored = {"header": text} | {f"array{index}": np.asarray(array) for index, array in enumerate(arrays.values())}
    write_arrays(Path(path), {"checksum": _checksum(stored)} | stored)


def read_info(path: str | Path) -> ModelInfo:
    """What a model file says of its twin. The arrays are checked; nothing is imported, nothing executed.

    **Raises:** `ValueError` for a file that is damaged, foreign, or of a format that this version does not know.
    """
    return _opened(Path(path))[0]


def load_model(path: str | Path, twin: Twin) -> Twin:
    """The fitted twin of a file.

    **Arguments:** `path`; `twin`, as system.py builds it, before it was fitted (or after).

    **Returns:** that twin with the arrays of the file. **Raises:** `ValueError` that names what does not fit.
    """
    about, header, stored = _opened(Path(path))
    like = _shapes(twin, about, header)
    _check_structure(Path(path), _entries(_arrays(like)), header.entries)
    here = _structure(like)
    if header.twinfold == __version__ and here != header.structure:
        raise ValueError(
            f"{path}: the twin has the arrays of the file, but is not built like the one that was saved: "
            f"{_difference(header.structure, here)}. Load it with the system.py that it was fitted with."
        )
    values = iter([jnp.asarray(stored[f"array{index}"]) for index in range(len(header.arrays))])
    return jax.tree.map(lambda leaf: next(values) if _is_array(leaf) else leaf, like)


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _arrays(twin: Twin) -> dict[str, Any]:
    """Every array of a twin, or what stands for it, by its place."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(twin, _is_array))[0]
    return {jax.tree_util.keystr(place): leaf for place, leaf in leaves}


def _entries(arrays: dict[str, Any]) -> list[_Entry]:
    return [_Entry(name, array.shape, str(array.dtype)) for name, array in arrays.items()]


def _structure(twin: Twin) -> str:
    """All of a twin but its arrays, in words."""
    return tree_structure_text(eqx.filter(twin, _is_array, inverse=True))


def _finite(value: Any) -> Any:
    """JSON has no infinity: such a number is null."""
    if isinstance(value, dict):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _checksum(arrays: dict[str, np.ndarray]) -> np.ndarray:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), np.uint8)


def _opened(path: Path) -> tuple[ModelInfo, _Header, dict[str, np.ndarray]]:
    try:
        stored = read_arrays(path)
        checksum, table = stored.pop("checksum"), json.loads(stored["header"].tobytes())
        if table["magic"] != MAGIC or not isinstance(table["format"], int):
            raise ValueError("its header is another one")
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no model file {path}; `twinfold fit` writes one.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path} is not a model file of twinfold, or is damaged: {reason}.") from None
    if not OLDEST <= table["format"] <= FORMAT:
        raise ValueError(
            f"{path} has format {table['format']}, written by twinfold {table.get('twinfold', '(unknown)')}; this is "
            f"twinfold {__version__}, which reads {OLDEST} to {FORMAT}. Load it with that version, or fit again."
        )
    if not np.array_equal(_checksum(stored), checksum):
        raise ValueError(f"{path} was changed after it was written: its checksum is another one. Fit again.")
    try:
        header = build(_Header, table, "header")
        if len(header.entries) != len(stored) - 1 or (header.runs is None) != (header.groups is None):
            raise ValueError("the header lists other arrays or runs")
        return build(ModelInfo, header.about, "about"), header, stored
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a model file of twinfold, or is damaged: {error}.") from None


def _shapes(twin: Twin, about: ModelInfo, header: _Header) -> Twin:
    """The twin with the shape and dtype of an array in place of each; no weights are drawn."""
    states, inputs = len(about.states), len(about.inputs)

    def draw() -> Twin:
        x = jnp.ones(states) if twin.observe is None else None
        w = jnp.ones(inputs) if inputs else None
        statistics = Statistics(x, x, x, w, w, jnp.ones(()), jnp.ones(()))
        whole = twin if header.runs is None else twin.for_runs(header.runs, header.groups)
        return whole.initialise(jax.random.key(0), states=states, inputs=inputs, statistics=statistics)

    return eqx.filter_eval_shape(draw)


def _check_structure(path: Path, wanted: list[_Entry], found: list[_Entry]) -> None:
    here, there = ({entry.name: entry for entry in entries} for entries in (wanted, found))
    both = [(here[name], there[name]) for name in here if name in there]
    lines = [f"{name}: not in the file" for name in here if name not in there]
    lines += [f"{name}: in the file alone" for name in there if name not in here]
    lines += [f"{a.name}: shape {b.shape} in the file, {a.shape} here" for a, b in both if a.shape != b.shape]
    other = next((pair for pair in both if pair[0].dtype != pair[1].dtype), None)
    if other is not None and not lines:
        asked = " Call twinfold.enable_x64() first." if other[1].dtype in ("float64", "int64") else ""
        raise ValueError(f"{path}: {other[0].name} is {other[1].dtype} in the file, {other[0].dtype} here.{asked}")
    if lines:
        more = f"\n  and {len(lines) - 8} more" if len(lines) > 8 else ""
        raise ValueError(
            f"{path} holds another twin than the one to fill:\n  " + "\n  ".join(lines[:8]) + more + "\n"
            "Load it with the system.py that it was fitted with, or fit again."
        )


def _difference(there: str, here: str) -> str:
    lines = zip(there.splitlines(), here.splitlines(), strict=False)
    return next((f"'{a.strip()}' there, '{b.strip()}' here" for a, b in lines if a != b), "one has more parts")
