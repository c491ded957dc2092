"""A fingerprint of the code that decides the numbers: a stored result is reused only by the code that computed it."""

import ast
import functools
import hashlib
import importlib.resources
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("_core", "numerics", "model", "data", "systems", "train", "metrics")
LIBRARY = Path(str(importlib.resources.files("twinfold")))
STUDIES = Path(__file__).parents[1]
STUDY_SOURCES = (STUDIES / "systems", STUDIES / "bench" / "contenders.py", STUDIES / "bench" / "problems.py")


@functools.cache
def code_fingerprint() -> str:
    """Sixteen digits that change with the code that all studies share, and not with comments and docstrings."""
    return fingerprint_of(*(LIBRARY / room for room in ROOMS), *STUDY_SOURCES)


@functools.cache
def fingerprint_of(*places: Path) -> str:
    """Sixteen digits that change with the code of these files and folders."""
    digest = hashlib.sha256()
    for path in _sources(*places):
        digest.update(path.name.encode())
        digest.update(normalised(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:16]


def _sources(*places: Path) -> Iterator[Path]:
    for place in places:
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place]


def normalised(source: str) -> str:
    """A module without comments, docstrings and blank lines; its syntax tree as text differs between Pythons."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            first, last = node.body[0].lineno, node.body[0].end_lineno or 0
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())
