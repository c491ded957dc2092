"""Single settings replaced by `section.name=value`, the option `--set` of the commands, and `--over` of a sweep."""

import tomllib
from collections.abc import Sequence
from typing import Any

OPENING = "[{\"'"  # of a list, table or string: such a value is never taken as a bare word


def override(tables: dict[str, Any], text: str) -> None:
    """Set one value in nested tables; the value is written as in TOML, and a bare word is a string.

    **Raises:** `ValueError` that shows the text and the correct form.
    """
    names, value = parse_override(text, "--set")
    set_value(tables, names, value)


def parse_override(text: str, option: str) -> tuple[tuple[str, ...], Any]:
    """The names and the value in `section.name=value`; messages call it `option`. **Raises:** `ValueError`."""
    key, equals, value = text.partition("=")
    text = f"{option} {text}"
    if not equals or not key.strip():
        raise ValueError(f"{text}: write section.name=value, for example --set fit.seeds=5.")
    return _names(key.strip(), text), _parse_value(value.strip(), text)


def set_value(tables: dict[str, Any], names: Sequence[str], value: Any) -> None:
    """Set the value at dotted `names` in nested tables. **Raises:** `ValueError` if a value is on the way."""
    *parents, name = names
    table = tables
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise ValueError(f"{'.'.join(names)}: '{parent}' is a value, not a section.")
    table[name] = value


def _names(key: str, text: str) -> tuple[str, ...]:
    """The names in a dotted key, each of which may be quoted."""
    node: Any = _parse(f"{key} = 0")
    names = []
    while isinstance(node, dict):
        if len(node) != 1:
            raise ValueError(f"{text}: '{key}' is not the name of a setting.")
        name, node = next(iter(node.items()))
        names.append(name)
    if len(names) < 2:
        raise ValueError(f"{text}: '{key}' has no section; write section.name=value, as in fit.seeds=5.")
    return tuple(names)


def _parse_value(value: str, text: str) -> Any:
    parsed = _parse(f"value = {value}")
    if parsed is not None and list(parsed) == ["value"]:
        return parsed["value"]
    if value and (value[0] in OPENING or "\n" in value):
        raise ValueError(f'{text}: the value is not valid TOML; write a list as [1, 2], a string as "text".')
    return value


def _parse(document: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(document)
    except (ValueError, RecursionError):
        return None
