"""Results that belong to no job: computed once, stored as JSON in `analysis/`, and reused under the same settings."""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from twinfold.io import write_text
from twinfold.parallel import report_progress
from twinfold_studies.bench.fingerprint import code_fingerprint
from twinfold_studies.bench.store import Store

OUT_OF_TIME = "out of time; the same command with --resume continues"
ELSEWHERE = "another process computes it"
ALONE = "it measures time, which needs a process without others beside it"


@dataclasses.dataclass
class Skipped(Exception):
    """A result is missing, because its computation failed or the time limit was reached."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def cached(store: Store, name: str, settings: Any, compute: Callable[[], Any], *, timed: bool = False) -> Any:
    """The stored result for this name and these settings, or else that of `compute()`, which is then stored.

    Several processes may share a store: each result is computed by one of them, and none that is `timed`.

    **Raises:** `Skipped` if the computation fails, would start after the time limit, or is under way in another
    process; see `record_skips`.
    """
    path = _path(store, name, settings)
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    if store.deadline is not None and time.monotonic() > store.deadline:
        raise Skipped(name, OUT_OF_TIME)
    if timed and store.shared:
        raise Skipped(name, ALONE)
    with _claimed(path, name):
        if path.exists():  # finished by another process in the meantime
            return json.loads(path.read_text(encoding="utf-8"))
        report_progress(0.0, name)  # where whoever started this process can stop it
        try:
            result = compute()
        except Exception as error:
            reason = str(error).splitlines()
            raise Skipped(name, f"{type(error).__name__}: {reason[0] if reason else ''}") from error
        # Not `write_json`: it replaces non-finite numbers by null, and they have to come back as they were.
        write_text(path, json.dumps(result) + "\n")
    return result


@contextlib.contextmanager
def _claimed(path: Path, name: str) -> Iterator[None]:
    """Hold the lock of a result, which the system releases if the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            yield
    except Timeout:
        raise Skipped(name, ELSEWHERE) from None


def stored(store: Store, name: str, settings: Any) -> Any:
    """What `cached` stored for this name and these settings, here or on a machine whose files were copied; or None."""
    path = _path(store, name, settings)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _path(store: Store, name: str, settings: Any) -> Path:
    content = json.dumps([settings, code_fingerprint()], sort_keys=True, default=str)
    return store.folder / "analysis" / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}.json"


@contextlib.contextmanager
def record_skips(store: Store) -> Iterator[None]:
    """Leave the block at the first result that is `Skipped`, and record it for the report."""
    try:
        yield
    except Skipped as error:
        store.skipped.append((error.name, error.reason))
