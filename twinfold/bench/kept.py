"""Results that are not cells: computed once, kept as JSON beside them, found again under the same settings."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from twinfold._version import __version__
from twinfold.bench.folder import write_text
from twinfold.bench.store import Store


def kept(store: Store, name: str, settings: Any, compute: Callable[[], Any]) -> Any:
    """`compute()`, or what it gave when it was last called under this name with these settings."""
    described = json.dumps([settings, __version__], sort_keys=True, default=str)
    path = store.folder / "analysis" / f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:8]}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    found = compute()
    write_text(path, json.dumps(found) + "\n")
    return found
