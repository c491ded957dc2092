"""The files of an export: their fixed text, from the templates in `templates`, and writing them."""

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from twinfold.io import atomic_write

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("twinfold.export", "templates"),
    autoescape=lambda name: name is not None and name.endswith(".xml.j2"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(template: str, **values: Any) -> str:
    """The text of a template."""
    return _ENVIRONMENT.get_template(template).render(values)


def c_helpers(names: Iterable[str], prefix: str) -> list[str]:
    """The C functions of these names in `helpers.c.in`, in alphabetical order."""
    text = resources.files("twinfold.export").joinpath("templates", "helpers.c.in").read_text()
    found = {match[1]: block for block in text.strip().split("\n\n") if (match := re.search(r"@(\w+)\(", block))}
    return [found[name].replace("@", prefix) for name in sorted(names)]


def write_files(folder: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write files by name into a folder, which is created if necessary; their paths."""
    paths = [folder / name for name in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        with atomic_write(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
    return paths
