"""Fingerprints of what a stored result depends on: the code of a model, and the files of a data set."""

import ast
import functools
import hashlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twinfold_studies.bench.fingerprint import normalised

# The frame decides which results there are, not their values; so do the figures.
ROOT, FRAME = "twinfold_studies.real.", ("task", "sources", "figures")


def function_fingerprint(function: Callable[..., Any]) -> str:
    """A fingerprint of the module that defines a function and of all modules of the study that it imports."""
    while isinstance(function, functools.partial):
        function = function.func
    return _module_fingerprint(function.__module__)


@functools.cache
def _module_fingerprint(module: str) -> str:
    digest = hashlib.sha256()
    for name in sorted(_imported(module, set())):
        digest.update(name.encode())
        digest.update(normalised(_source(name)).encode())
    return digest.hexdigest()[:16]


@functools.cache
def folder_fingerprint(folder: Path) -> str:
    """A fingerprint of the names and contents of all files of a data set, without its README."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stem != "README":
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _imported(name: str, known: set[str]) -> set[str]:
    """The module and those of the study that it imports, directly or not."""
    if name not in known:
        known.add(name)
        for each in _imports(_source(name)):
            if each.startswith(ROOT) and not each.removeprefix(ROOT).startswith(FRAME):
                _imported(each, known)
    return known


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            for each in node.names:  # a name of the module, or a module of the package
                inside = f"{node.module}.{each.name}"
                if node.module.startswith(ROOT.rstrip(".")) and importlib.util.find_spec(node.module) is not None:
                    yield from [inside] if _is_module(inside) else []


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is a module, not a package
        return False


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
