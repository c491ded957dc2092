"""Lines of a stream, read in a thread of their own, so that a step does not wait for a slow pipe.

A line that is too long is cut where it is, and the rest of it is thrown away: nothing that a stream contains takes more
memory than `MAX_LINE` and `MAX_WAITING` blocks.
"""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

MAX_LINE = 2**16  # bytes
MAX_WAITING = 64  # blocks that were read and not yet used; a writer then waits
BLOCK = 2**16  # bytes that are read at a time
MAX_AT_ONCE = 4096  # lines that are used together


@runtime_checkable
class BinaryFile(Protocol):
    """A binary file or stream, of any kind."""

    def read(self, size: int = -1, /) -> bytes: ...

    def write(self, content: Any, /) -> int: ...

    def flush(self) -> None: ...

    def tell(self) -> int: ...


class Line(NamedTuple):
    """A line without its end: its number, counted from 1, and whether it was too long."""

    number: int
    content: bytes
    too_long: bool


def split_lines(blocks: Iterator[bytes]) -> Iterator[list[Line]]:
    """The complete lines in each block; after the last one, a line without an end."""
    number, rest, too_long = 0, b"", False
    for block in blocks:
        *complete, tail = block.split(b"\n")
        found = []
        for part in complete:
            number += 1
            content = rest + part
            found.append(Line(number, content[:MAX_LINE].rstrip(b"\r"), too_long or len(content) > MAX_LINE))
            rest, too_long = b"", False
        rest += tail
        if len(rest) > MAX_LINE:
            rest, too_long = rest[:MAX_LINE], True
        yield found
    if rest:
        yield [Line(number + 1, rest.rstrip(b"\r"), too_long)]


class LineReader:
    """The lines of a binary file, in the order of the file: `take` returns those that have arrived.

    **Arguments:** `file`, unbuffered or not: whatever its `read1` or `read` returns is used at once.
    """

    def __init__(self, file: BinaryFile):
        self._read = getattr(file, "read1", file.read)
        self._queue: queue.Queue[list[Line] | None] = queue.Queue(MAX_WAITING)
        self.error: OSError | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for lines in split_lines(iter(lambda: self._read(BLOCK), b"")):
                if lines:
                    self._queue.put(lines)
        except (OSError, ValueError) as error:  # ValueError: the file was closed
            self.error = error if isinstance(error, OSError) else None
        self._queue.put(None)

    def take(self, timeout: float, linger: float = 0.0) -> list[Line] | None:
        """The lines that have arrived, perhaps none within `timeout`; None after the last one.

        **Arguments:** `linger`: wait this long for others after the first.
        """
        try:
            found = self._queue.get(timeout=timeout)
        except queue.Empty:
            return []
        if found is None:
            return None
        lines = list(found)
        if linger:
            time.sleep(linger)
        while len(lines) < MAX_AT_ONCE:
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._queue.put(None)  # for the next call
                break
            lines += more
        return lines
