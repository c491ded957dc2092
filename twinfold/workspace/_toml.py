"""TOML beyond what the standard library has: tables written out, and single settings replaced by `a.b=value`."""

import json
import tomllib
from collections.abc import Mapping
from typing import Any

BEGINS = "[{\"'"  # of a value that is meant as TOML: not taken as a bare word


def as_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of plain values as the text of a TOML file."""
    sections = (
        "\n".join([f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in table.items())])
        for name, table in tables.items()
    )
    return "\n\n".join(sections) + "\n"


def override(tables: dict[str, Any], text: str) -> None:
    """Set one value in nested tables: `a.b=value`, the value in TOML, or a bare word, which is a text.

    **Raises:** `ValueError` that shows the text and what it should look like.
    """
    key, equals, typed = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {text}: write it as section.name=value, for example --set fit.seeds=5.")
    path = _path(key.strip(), text)
    table = tables
    for name in path[:-1]:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ValueError(f"--set {text}: '{name}' is a value, not a section.")
    table[path[-1]] = _parsed(typed.strip(), text)


def _path(key: str, text: str) -> list[str]:
    """The names in a dotted key, each of which may be quoted."""
    node: Any = _loaded(f"{key} = 0")
    path = []
    while isinstance(node, dict):
        if len(node) != 1:
            raise ValueError(f"--set {text}: '{key}' is not the name of a setting.")
        name, node = next(iter(node.items()))
        path.append(name)
    if len(path) < 2:
        raise ValueError(f"--set {text}: '{key}' has no section; write section.name=value, as in fit.seeds=5.")
    return path


def _parsed(typed: str, text: str) -> Any:
    loaded = _loaded(f"value = {typed}")
    if loaded is not None and list(loaded) == ["value"]:
        return loaded["value"]
    if typed and (typed[0] in BEGINS or "\n" in typed):
        raise ValueError(f'--set {text}: the value is not valid TOML; a list is written [1, 2], a text "like this".')
    return typed


def _loaded(document: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(document)
    except (ValueError, RecursionError):
        return None


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _text(name)


def _text(value: str) -> str:
    # JSON's escapes are TOML's; only that it leaves the delete character as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(name)} = {_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)
