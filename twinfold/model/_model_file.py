"""Fitted twins in files. A file holds arrays and metadata (see `twinfold.io`); nothing in it is ever executed.

What the twin computes is not in the file: the user's own system.py builds the twin that `load_model` fills.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import Frozen, tree_structure_text
from twinfold._version import __version__
from twinfold.io import ModelInfo
from twinfold.io._model_info import FORMAT, MAGIC, ArrayEntry, ModelHeader, read_model, write_model
from twinfold.model._learned.base import Statistics
from twinfold.model._learned.mlp import MLP
from twinfold.model._learned.region import Region
from twinfold.model._twin import Twin

MAX_DIFFERENCES = 8  # in a message


def save_model(path: str | Path, twin: Twin, *, about: ModelInfo) -> None:
    """Write a fitted twin to a file, atomically.

    **Arguments:** `path`; `twin`; `about`, its metadata: names of states, inputs and outputs, units, ranges.

    **Raises:** `ValueError` for an array that the format cannot hold.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.5, positive=True)})
    tw.save_model("decay.twin", twin, about=tw.ModelInfo(states=["x"], outputs=["x"]))
    ```
    """
    arrays = _arrays(twin)
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":  # a random key, or a float type that numpy does not have
            raise ValueError(f"twin{name} holds {array.dtype}; a model file can hold plain numbers only.")
    header = ModelHeader(
        magic=MAGIC,
        format=FORMAT,
        twinfold=__version__,
        about=about,
        structure=_structure(twin),
        runs=twin.runs,
        groups=twin.groups,
        origins=twin.origins,
        arrays=tuple(ArrayEntry(name=name, shape=a.shape, dtype=str(a.dtype)) for name, a in arrays.items()),
    )
    write_model(Path(path), header, [np.asarray(array) for array in arrays.values()])


def load_model(path: str | Path, twin: Twin) -> Twin:
    """The fitted twin in a file.

    **Arguments:** `path`; `twin`, as system.py builds it, fitted or not.

    **Returns:** that twin with the arrays of the file. **Raises:** `ValueError` that names what does not match.

    **Example:**

    ```python
    def build(k):
        return tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(k, positive=True)})

    tw.save_model("decay.twin", build(0.7), about=tw.ModelInfo(states=["x"], outputs=["x"]))
    tw.load_model("decay.twin", build(0.5)).parameters()["k"]  # 0.7
    ```
    """
    header, stored = read_model(Path(path))
    like = _shapes(twin, header, stored)
    _check_arrays(path, _arrays(like), stored)
    structure = _structure(like)
    if header.twinfold == __version__ and structure != header.structure:
        raise ValueError(
            f"{path}: the arrays match, but the twin in the file is built differently: "
            f"{_first_difference(header.structure, structure)}. Load it with the system.py that it was fitted with."
        )
    paths = jax.tree_util.tree_map_with_path
    return paths(lambda p, leaf: jax.device_put(stored[jax.tree_util.keystr(p)]) if _is_array(leaf) else leaf, like)


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _arrays(twin: Twin) -> dict[str, Any]:
    """Every array of a twin (or its shape and dtype), by its path."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(twin, _is_array))[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _structure(twin: Twin) -> str:
    """A description of a twin without its arrays."""
    return tree_structure_text(eqx.filter(twin, _is_array, inverse=True))


def _shapes(twin: Twin, header: ModelHeader, stored: Collection[str]) -> Twin:
    """The twin with the shape and dtype of each array in its place; no weights are drawn."""
    states, inputs = len(header.about.states), len(header.about.inputs)

    def draw() -> Twin:
        x = jnp.ones(states)
        w = jnp.ones(inputs) if inputs else None
        statistics = Statistics(x, x, x, w, w, jnp.ones(()), jnp.ones(()))
        complete = twin
        if header.runs is not None:
            complete = twin.for_runs(header.runs, header.groups, header.origins)
            if twin.warmup is not None:
                complete = complete.with_starts(jnp.zeros((len(header.runs), states)), jnp.ones(states))
        drawn = complete.initialise(jax.random.key(0), states=states, inputs=inputs, statistics=statistics)
        return _with_stored_parts(drawn, stored)

    return eqx.filter_eval_shape(draw)


def _with_stored_parts(twin: Twin, stored: Collection[str]) -> Twin:
    """The twin with units and regions in those of its residual networks that have them in the file.

    A region is known only after a fit, units only where there were data, and files of earlier versions have no regions.
    """

    def part(path: Any, node: Any) -> Any:
        if not isinstance(node, MLP) or node.network is None:
            return node
        where = jax.tree_util.keystr(path)
        region, units = None, node.units
        if node.outside != "free" and any(name.startswith(f"{where}.region.") for name in stored):
            ends = (jnp.zeros(node.network.in_size) for _ in range(3))
            region = Frozen(Region(*ends))
        if node.scaling == "data" and not any(name.startswith(f"{where}.units.") for name in stored):
            units = None
        return eqx.tree_at(
            lambda mlp: (mlp.region, mlp.units), node, (region, units), is_leaf=lambda node: node is None
        )

    return jax.tree_util.tree_map_with_path(part, twin, is_leaf=lambda node: isinstance(node, MLP))


def _check_arrays(path: str | Path, twin: dict[str, Any], file: dict[str, np.ndarray]) -> None:
    common = [name for name in twin if name in file]
    lines = [f"{name}: not in the file" for name in twin if name not in file]
    lines += [f"{name}: only in the file" for name in file if name not in twin]
    lines += [
        f"{name}: shape {file[name].shape} in the file, {twin[name].shape} in the twin"
        for name in common
        if file[name].shape != twin[name].shape
    ]
    if lines:
        more = f"\n  and {len(lines) - MAX_DIFFERENCES} more" if len(lines) > MAX_DIFFERENCES else ""
        raise ValueError(
            f"{path} holds another twin than the one to fill:\n  " + "\n  ".join(lines[:MAX_DIFFERENCES]) + more + "\n"
            "Load it with the system.py that it was fitted with, or fit again."
        )
    for name in common:
        found, wanted = str(file[name].dtype), str(twin[name].dtype)
        if found != wanted:
            advice = " Call twinfold.enable_x64() first." if found in ("float64", "int64") else ""
            raise ValueError(f"{path}: {name} is {found} in the file, {wanted} in the twin.{advice}")


def _first_difference(file: str, twin: str) -> str:
    lines = zip(file.splitlines(), twin.splitlines(), strict=False)
    return next(
        (f"'{a.strip()}' in the file, '{b.strip()}' in the twin" for a, b in lines if a != b),
        "one of them has more parts",
    )
