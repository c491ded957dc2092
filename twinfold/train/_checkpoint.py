"""Checkpoints, from which a killed fit resumes: arrays and plain metadata in one file, never pickled."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from twinfold._core import tree_structure_text
from twinfold._version import __version__
from twinfold.io._archive import write_arrays


def fit_identity(
    twin: PyTree, seeds: Sequence[int], methods: Sequence[PyTree], loss: PyTree, project: str
) -> dict[str, Any]:
    """What a fit is, apart from its arrays: a checkpoint is of use to the same fit only."""
    return {
        "twinfold": __version__,
        "jax": jax.__version__,
        "seeds": list(seeds),
        "method": [tree_structure_text(method) for method in methods],
        "loss": tree_structure_text(loss),
        "project": project,
        "twin": tree_structure_text(twin),
    }


def array_fingerprint(tree: PyTree) -> str:
    """sha256 over all arrays of a tree."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array)):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def save(path: Path, identity: dict[str, Any], progress: dict[str, Any], trees: dict[str, PyTree]) -> None:
    """Write a checkpoint; the file at `path` is the old one or the new one, never a part of either."""
    arrays: dict[str, Any] = {
        f"{name}.{index}": np.asarray(leaf)
        for name, tree in trees.items()
        for index, leaf in enumerate(jax.tree.leaves(tree))
    }
    header = json.dumps({"identity": identity, "progress": progress})
    write_arrays(path, {"header": np.array(header)} | arrays)


def _change(old: Any, new: Any) -> str:
    """`old -> new` as text; long ones are cut to the part around the first difference."""
    texts = str(old), str(new)
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, same - 40) if max(map(len, texts)) > 200 else 0
    return " -> ".join(("..." if start else "") + text[start : start + 200] for text in texts)


class Checkpoint:
    """A checkpoint that was read; its trees are rebuilt with `tree`."""

    def __init__(self, path: Path, identity: dict[str, Any]):
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                self._arrays = {name: stored[name] for name in stored.files}
            header = json.loads(str(self._arrays.pop("header")))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise ValueError(f"checkpoint={str(path)!r} cannot be read ({error}). Delete it to start over.") from error
        stored = header["identity"]
        different = [key for key in identity if stored.get(key) != identity[key]]
        if different:
            lines = "".join(f"\n  {key}: {_change(stored.get(key), identity[key])}" for key in different)
            raise ValueError(
                f"checkpoint={str(path)!r} belongs to another fit; it was not touched. What differs:{lines}\n"
                "Give another path, or delete the file to start over."
            )
        self.progress: dict[str, Any] = header["progress"]

    def tree(self, name: str, like: PyTree) -> PyTree:
        """The tree saved under `name`, in the structure of `like`."""
        leaves, structure = jax.tree.flatten(like)
        stored = [self._arrays[f"{name}.{index}"] for index in range(len(leaves))]
        return jax.tree.unflatten(structure, [jax.device_put(leaf) for leaf in stored])
