"""Atomic writes: a reader, or a crash while writing, meets the complete old file or the complete new one."""

import contextlib
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

# An unfinished file is named NAME.HOST.PROCESS.part.
HOST = re.sub(r"\W", "-", platform.node())[:40] or "-"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[BinaryIO]:
    """Open a binary file that replaces `path` once it is complete and on the disk; folders are created.

    **Raises:** `OSError` that names the file, such as for a full disk; the old file is left as it was.

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
    remove_stale_parts(path.parent, path.name)
    unfinished = path.with_name(f"{path.name}.{HOST}.{os.getpid()}.part")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        reason = f"{error.strerror}, so the file was not written"
        raise type(error)(error.errno, reason, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)


def remove_stale_parts(folder: Path, name: str = "") -> None:
    """Delete the unfinished files that processes of this machine left in a folder when they were killed.

    **Arguments:** `folder`; `name` of the file whose unfinished versions are meant; "" for every file.
    """
    pattern = re.compile(rf"{re.escape(name) or '.+'}\.{re.escape(HOST)}\.(\d+)\.part")
    for file in folder.iterdir():
        found = pattern.fullmatch(file.name)
        if found and not _is_running(int(found[1])):
            with contextlib.suppress(OSError):  # Windows refuses to delete a file that is open
                file.unlink()


def _is_running(process: int) -> bool:
    if os.name == "nt":  # where signal 0 would end the process
        return process == os.getpid()
    try:
        os.kill(process, 0)
    except OSError as error:  # also if it runs under another user
        return not isinstance(error, ProcessLookupError)
    return True
