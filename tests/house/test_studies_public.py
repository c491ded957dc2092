"""The studies use only the public names of the library: names in `__all__` of `twinfold` and of its rooms."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rooms import ROOMS

STUDIES = Path(__file__).parents[2] / "studies"
FILES = sorted(STUDIES.rglob("*.py"))


def public(module: str) -> set[str]:
    """The public names of `twinfold` or of one of its rooms."""
    names = set(importlib.import_module(module).__all__)
    return names | {*ROOMS, "__version__"} if module == "twinfold" else names


def violations(source: str) -> Iterator[str]:
    """Every use of a name of the library that is not public; imports inside functions count too."""
    tree = ast.parse(source)
    aliases: dict[str, str] = {}  # local names of `twinfold` and of its rooms
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == "twinfold":
                    yield from _module_violations(each.name, node.lineno)
                    aliases[each.asname or "twinfold"] = each.name if each.asname else "twinfold"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "twinfold" and not node.level:
            module = node.module or ""
            problems = list(_module_violations(module, node.lineno))
            yield from problems
            for each in node.names:
                if not problems and each.name not in public(module):
                    yield f"line {node.lineno}: from {module} import {each.name}"
                if module == "twinfold" and each.name in ROOMS:
                    aliases[each.asname or each.name] = f"twinfold.{each.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            module = aliases[node.value.id]
            if node.attr not in public(module):
                yield f"line {node.lineno}: {module}.{node.attr}"


def _module_violations(module: str, line: int) -> Iterator[str]:
    if module != "twinfold" and module not in {f"twinfold.{room}" for room in ROOMS}:
        yield f"line {line}: {module} is neither twinfold nor one of its rooms"


@pytest.mark.parametrize("path", FILES, ids=[path.relative_to(STUDIES).as_posix() for path in FILES])
def test_studies_use_public_names_only(path):
    assert list(violations(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "from twinfold._core import RESULTS",
        "def f():\n    from twinfold.model._twin import Twin",
        "import twinfold.numerics._project.kkt",
        "from twinfold.numerics import SaddleMatrix",
        "from twinfold import _version",
        "from twinfold import model as m\nm._twin",
        "import twinfold as tw\ntw.cell",
        "import twinfold.cli",
    ],
)
def test_a_private_name_is_found(source):
    assert len(list(violations(source))) == 1


def test_public_names_are_allowed():
    source = "import twinfold as tw\nfrom twinfold import RESULTS, __version__, model\ntw.Twin, tw.io, model.MLP"
    assert list(violations(source)) == []
    assert len(FILES) > 50
