"""Atomic writes: a reader, or a crash while writing, meets the complete old file or the complete new one."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` once it is complete and on the disk; folders are created.

    **Example:**

    ```python
    from pathlib import Path

    with tw.io.atomic_write("results/weights.bin") as file:
        file.write(b"1234")
    Path("results/weights.bin").read_bytes()  # b"1234"
    ```
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
