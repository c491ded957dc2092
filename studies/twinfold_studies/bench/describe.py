"""A system in words, taken from where its equations are written down: the docstring of its file."""

import inspect
import re

from twinfold_studies.systems.registry import SYSTEMS


def describe(name: str) -> tuple[str, list[str]]:
    """What is known, unknown and kept of a system in one sentence, and its equations line by line."""
    text = inspect.getdoc(SYSTEMS[name]) or ""
    lines = text.splitlines()
    equations = [" ".join(line.split()) for line in lines if line.startswith("    ")]
    # What depends on an argument of the factory is not part of the system with its default settings.
    known = re.sub(r"\s*\([^)]*`[^)]*\)", "", lines[0]) if lines else ""
    return known, equations
