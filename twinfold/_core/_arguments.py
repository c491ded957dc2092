"""Calling user functions: a function takes the quantities it names, in any order, and leaves out the rest."""

import inspect
from collections.abc import Callable
from typing import Any


def named_arguments(fn: Callable, allowed: tuple[str, ...], role: str) -> tuple[str, ...]:
    """Names among `allowed` that `fn` takes; a `ValueError` that names the argument if it wants any other."""
    parameters = inspect.signature(fn).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return allowed
    taken = []
    for parameter in parameters:
        if parameter.name in allowed and parameter.kind is not parameter.POSITIONAL_ONLY:
            taken.append(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise ValueError(
                f"{role}: argument '{parameter.name}' is not one of {', '.join(allowed)}. "
                "Arguments are matched by name; rename it or give it a default."
            )
    return tuple(taken)


def select_arguments(fn: Callable, role: str, /, **quantities: Any) -> dict[str, Any]:
    """Those of `quantities` that `fn` names."""
    return {name: quantities[name] for name in named_arguments(fn, tuple(quantities), role)}


def call_by_name(fn: Callable, role: str, /, **quantities: Any) -> Any:
    """`fn` called with those of `quantities` that it names."""
    return fn(**select_arguments(fn, role, **quantities))
