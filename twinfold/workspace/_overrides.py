"""Single settings replaced by `section.name=value`, the option `--set` of the commands."""

import tomllib
from typing import Any

OPENING = "[{\"'"  # of a list, table or string: such a value is never taken as a bare word


def override(tables: dict[str, Any], text: str) -> None:
    """Set one value in nested tables; the value is written as in TOML, and a bare word is a string.

    **Raises:** `ValueError` that shows the text and the correct form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"--set {text}: write section.name=value, for example --set fit.seeds=5.")
    *parents, name = _names(key.strip(), text)
    table = tables
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ValueError(f"--set {text}: '{parent}' is a value, not a section.")
    table[name] = _parse_value(value.strip(), text)


def _names(key: str, text: str) -> list[str]:
    """The names in a dotted key, each of which may be quoted."""
    node: Any = _parse(f"{key} = 0")
    names = []
    while isinstance(node, dict):
        if len(node) != 1:
            raise ValueError(f"--set {text}: '{key}' is not the name of a setting.")
        name, node = next(iter(node.items()))
        names.append(name)
    if len(names) < 2:
        raise ValueError(f"--set {text}: '{key}' has no section; write section.name=value, as in fit.seeds=5.")
    return names


def _parse_value(value: str, text: str) -> Any:
    parsed = _parse(f"value = {value}")
    if parsed is not None and list(parsed) == ["value"]:
        return parsed["value"]
    if value and (value[0] in OPENING or "\n" in value):
        raise ValueError(f'--set {text}: the value is not valid TOML; write a list as [1, 2], a string as "text".')
    return value


def _parse(document: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(document)
    except (ValueError, RecursionError):
        return None
