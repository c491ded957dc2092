"""A system in words, taken from where its equations are written down: the docstring of its file."""

import inspect

from twinfold.systems.registry import SYSTEMS


def describe(name: str) -> tuple[str, list[str]]:
    """What is known, unknown and kept of a system in one sentence, and its equations line by line."""
    text = inspect.getdoc(SYSTEMS[name]) or ""
    lines = text.splitlines()
    equations = [" ".join(line.split()) for line in lines if line.startswith("    ")]
    return (lines[0].replace("`", "") if lines else ""), equations
