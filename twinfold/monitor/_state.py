"""Dataclasses as plain JSON and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import numpy as np


def encode(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, and of those inside it, as plain JSON."""
    return dataclasses.asdict(record, dict_factory=lambda fields: {name: _plain(value) for name, value in fields})


def decode(kind: Any, value: Any) -> Any:
    """Return the value that was encoded; `kind` is its type, where a union stands for the member with these fields."""
    if isinstance(value, Mapping):
        for cls in get_args(kind) or (kind,):
            hints = get_type_hints(cls)
            # A field with a default may be newer than the state.
            needed = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
            if needed <= value.keys() <= hints.keys():
                return cls(**{name: decode(hints[name], each) for name, each in value.items()})
        raise ValueError(f"The saved state is damaged (fields {', '.join(value)}): calibrate again.")
    if kind is np.ndarray:
        return np.array(value)
    return tuple(value) if isinstance(value, list) else value


def check_format(state: Mapping[str, Any], wanted: int) -> None:
    """Raise a `ValueError` for a state that was saved in another format."""
    if state.get("format") != wanted:
        raise ValueError(
            f"The saved state has format {state.get('format')!r}, this version reads format {wanted}: calibrate again."
        )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
