"""A lock on a folder, held by one process at a time. The system releases it when the process ends, however it ends."""

import contextlib
import json
import os
import platform
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from twinfold.io._writers import write_json

LOCK, OWNER = ".lock", ".owner.json"
LOCK_FILES = (LOCK, OWNER, f"{OWNER}.*.part")


class FolderInUse(BlockingIOError):
    """Another process holds the folder. Nothing in it was changed.

    **Example:**

    ```python
    from pathlib import Path

    try:
        with tw.io.RunFolder(Path("runs/a")).claim({"seeds": 3}):
            pass  # the work
    except tw.io.FolderInUse as error:
        print(error)  # runs/a is in use by process 4711 on plant-pc since ...
    ```
    """


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, which is created if necessary. **Raises:** `FolderInUse`, without waiting."""
    folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(folder / LOCK), folder / OWNER
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise FolderInUse(
            f"{folder} is in use by {_describe(owner)}. Wait until it ends, or choose another folder with --out."
        ) from None
    except NotImplementedError:
        warnings.warn(f"The file system of {folder} has no locks: start no second run in this folder.", stacklevel=3)
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(owner, {"process": os.getpid(), "host": platform.node(), "since": since})
        yield
        owner.unlink(missing_ok=True)
    finally:
        lock.release()


def _describe(owner: Path) -> str:
    try:
        found = json.loads(owner.read_text(encoding="utf-8"))
        return f"process {found['process']} on {found['host']} since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has the lock, but has not written its name yet
        return "another process"
