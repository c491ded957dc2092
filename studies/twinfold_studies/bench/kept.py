"""Results that are not cells: computed once, kept as JSON beside them, found again under the same settings."""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from twinfold._version import __version__
from twinfold.io import write_text
from twinfold_studies.bench.store import Store

LATE = "the time was up: the same command with --resume goes on"


@dataclasses.dataclass
class Left(Exception):
    """A result that is not there, because it failed or the time was up."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def kept(store: Store, name: str, settings: Any, compute: Callable[[], Any]) -> Any:
    """`compute()`, or what it gave when it was last called under this name with these settings.

    **Raises:** `Left`, where it fails or is begun too late; see `unless_left`.
    """
    described = json.dumps([settings, __version__], sort_keys=True, default=str)
    path = store.folder / "analysis" / f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:8]}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    if store.until is not None and time.monotonic() > store.until:
        raise Left(name, LATE)
    try:
        found = compute()
    except Exception as error:
        reason = str(error).splitlines()
        raise Left(name, f"{type(error).__name__}: {reason[0] if reason else ''}") from error
    write_text(path, json.dumps(found) + "\n")
    return found


@contextlib.contextmanager
def unless_left(store: Store) -> Iterator[None]:
    """What needs a result that is `Left` is left out, and said so in the report; the rest goes on."""
    try:
        yield
    except Left as error:
        store.left.append((error.name, error.reason))
