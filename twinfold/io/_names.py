"""A name that is not known: what it may have meant, and what there is."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(name: str, known: Iterable[str]) -> str:
    """`name`, the known names and the nearest of them, to end a message with."""
    known = list(known)
    near = get_close_matches(name.replace("-", "_").replace(" ", "_"), known, n=1)
    near = near or get_close_matches(name.lower().replace("-", "_").replace(" ", "_"), known, n=1, cutoff=0.4)
    guess = f" Did you mean '{near[0]}'?" if near else ""
    return f"'{name}'; there are: {', '.join(known) or 'none'}.{guess}"
