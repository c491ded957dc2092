"""Values from outside (TOML, JSON, the command line) as typed fields of a dataclass, or a message that names the key.

Lists become tuples, whole numbers become floats where a number is wanted, and one text is a list of one.
"""

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from twinfold.io._names import unknown_name

Record = TypeVar("Record")
LARGEST = 2**63  # whole numbers beyond it fit nowhere
WORDS = {str: "a text", bool: "true or false", int: "a whole number", float: "a number", types.NoneType: "nothing"}
PLURALS = {str: "texts", int: "whole numbers", float: "numbers"}


def build(cls: type[Record], table: Any, key: str) -> Record:
    """An object of the dataclass `cls` from a table.

    **Arguments:** `cls`; `table`, its fields by name; `key`, what the table is called in messages.

    **Raises:** `ValueError` that names an unknown key with the nearest known one, or a value of the wrong type.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"{key} is {_shown(table)}; it must be a table.")
    kinds = _kinds(cls)
    for name in table:
        if name not in kinds:
            raise ValueError(f"{key}: there is no setting {unknown_name(str(name), kinds)}")
    values = {name: settle(value, kinds[name], f"{key}.{name}") for name, value in table.items()}
    return cls(**values)


def settle_fields(record: Any, key: str) -> None:
    """Give every field of a frozen dataclass the type that it is declared with; for use in `__post_init__`."""
    for name, kind in _kinds(type(record)).items():
        object.__setattr__(record, name, settle(getattr(record, name), kind, f"{key}.{name}"))


def settle(value: Any, kind: Any, key: str) -> Any:
    """`value` as `kind`, or a `ValueError` that says what `key` must be."""
    found = _settled(value, kind)
    if found is _WRONG:
        raise ValueError(f"{key} is {_shown(value)}; it must be {_words(kind)}.")
    return found


class _Wrong:
    """What `_settled` returns for a value that is not of the kind."""


_WRONG = _Wrong()


def _kinds(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}  # type: ignore[arg-type]


def _settled(value: Any, kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or (dataclasses.is_dataclass(kind) and isinstance(kind, type) and isinstance(value, kind)):
        return value
    if origin is Literal:
        return value if isinstance(value, str) and value in arguments else _WRONG
    if origin in (Union, types.UnionType):
        settled = (_settled(value, each) for each in arguments)
        return next((each for each in settled if each is not _WRONG), _WRONG)
    if origin is tuple:
        return _tuple(value, arguments[0])
    if origin is dict:
        return _table(value, arguments[1])
    return _single(value, kind)


def _single(value: Any, kind: Any) -> Any:
    if kind is types.NoneType:
        return None if value is None else _WRONG
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < LARGEST or (isinstance(value, float) and math.isfinite(value)) else _WRONG
    if kind is int and (isinstance(value, bool) or not isinstance(value, int) or abs(value) >= LARGEST):
        return _WRONG
    return value if isinstance(kind, type) and isinstance(value, kind) else _WRONG


def _tuple(value: Any, kind: Any) -> Any:
    if isinstance(value, str) and _settled(value, kind) is not _WRONG:
        return (value,)
    if not isinstance(value, list | tuple):
        return _WRONG
    settled = tuple(_settled(each, kind) for each in value)
    return _WRONG if any(each is _WRONG for each in settled) else settled


def _table(value: Any, kind: Any) -> Any:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        return _WRONG
    settled = {name: _settled(each, kind) for name, each in value.items()}
    return _WRONG if any(each is _WRONG for each in settled.values()) else settled


def _words(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(f'"{each}"' for each in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(each) for each in arguments if each is not types.NoneType)
    if origin is tuple:
        return f"a list of {_plural(arguments[0])}"
    if origin is dict:
        return f"a table of {_plural(arguments[1])}, name = value"
    return WORDS.get(kind, "a table")


def _plural(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_plural(each) for each in get_args(kind))
    return PLURALS.get(kind, "lists")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
