"""Files that are replaced as a whole: whoever reads one, or dies while writing it, finds the old one or the new one."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` once it is complete and on the disk."""
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


@contextlib.contextmanager
def atomic_write_text(path: Path) -> Iterator[TextIO]:
    """The same for text in UTF-8, with line ends as they are written."""
    with atomic_write(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield text
        finally:
            text.detach()  # writes what is left; the file is closed by whom it was opened
