"""The reference (docs/api) has every public name exactly once, under its public path."""

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest
from support.rooms import ROOMS

import twinfold as tw

DOCS = Path(__file__).parents[2] / "docs"
API = DOCS / "api"
PAGES = sorted(API.glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
DIRECTIVE = re.compile(r"^#* *::: *(\S+)", re.M)


def public_paths() -> set[str]:
    """`twinfold.room.name` for every name of every room, `twinfold.name` for the names that no room has."""
    paths = {f"twinfold.{room}.{name}" for room in ROOMS for name in _names(room)}
    of_rooms = {path.rpartition(".")[2] for path in paths}
    return paths | {f"twinfold.{name}" for name in dir(tw) if name not in ROOMS and name not in of_rooms}


def _names(room: str) -> list[str]:
    return importlib.import_module(f"twinfold.{room}").__all__


def documented() -> Counter[str]:
    return Counter(path for page in PAGES for path in DIRECTIVE.findall(page.read_text()))


def test_every_room_has_public_names():
    assert len(ROOMS) >= 15
    for room in ROOMS:
        assert _names(room), room


def test_every_public_name_is_on_exactly_one_page():
    paths, count = public_paths(), documented()
    assert sorted(paths - count.keys()) == [], "not in docs/api"
    assert [path for path, times in count.items() if times > 1] == [], "more than once in docs/api"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_directive_names_a_public_path(page):
    assert sorted(set(DIRECTIVE.findall(page.read_text())) - public_paths()) == []


def test_a_name_of_the_top_level_is_the_one_of_its_room():
    for path in public_paths():
        _, _, name = path.rpartition(".")
        if name in dir(tw) and name not in ROOMS:
            *module, name = path.split(".")
            assert getattr(importlib.import_module(".".join(module)), name) is getattr(tw, name), path


def test_every_name_of_the_top_level_is_used_on_a_page():
    """The code on the pages is run by test_docs.py."""
    code = "".join("".join(BLOCK.findall(page.read_text())) for page in DOCS.rglob("*.md"))
    unused = [name for name in dir(tw) if name not in ROOMS and not re.search(rf"\btw\.{name}\b", code)]
    assert unused == []


def test_the_index_lists_every_room_and_page():
    index = (API / "index.md").read_text()
    for room in ROOMS:
        assert f"| `twinfold.{room}` |" in index, room
    for page in PAGES:
        assert page.stem == "index" or f"]({page.name})" in index, page.name
