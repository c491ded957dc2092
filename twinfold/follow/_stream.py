"""The loop: lines in, rows out, the state on the disk at least once a second, until the lines end.

A batch is what has arrived since the last one. Whatever a line contains, it is reported and the loop goes on. The state
has the length of the output: after `kill -9`, a restart cuts the output to that length and continues from there, so
that a log, which can be read again, loses nothing; of standard input, what was read after the last state is missing,
less than a second of it.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinfold.follow._following import Following
from twinfold.follow._lines import BinaryFile, LineReader
from twinfold.follow._samples import Sample, SampleReader
from twinfold.follow._state_file import StateWriter, read_state

SAVE_EVERY = 0.4  # seconds; with the time of a batch and of the disk, less than one
LINGER = 0.005  # seconds that the first line of a batch waits for others, in a stream
WAIT = 0.1  # seconds to wait for a line, before the state or a signal is looked after
MAX_REPORTED = 1000  # lines that are complained about one by one


@dataclass
class Counts:
    """What a loop has done: lines read, complained about and left out, and whether a signal has ended it."""

    lines: int = 0
    complaints: int = 0
    left_out: int = 0
    interrupted: bool = False


class Loop:
    """One pass over the lines of a log or of a stream.

    **Arguments:** the `following`; the `reader` of its samples; the `file` of lines; `sink`, which writes rows;
    `output`, the file behind it, whose length the state has; `state`, its path, or None; `source`, the name of a log
    that can be read again, or ""; `skip`, its lines that were read before; `log` for messages; `often`, called between
    batches.
    """

    def __init__(
        self,
        following: Following,
        reader: SampleReader,
        file: BinaryFile,
        sink: Any,
        *,
        output: BinaryFile | None = None,
        state: Path | None = None,
        source: str = "",
        skip: int = 0,
        log: Callable[[str], None] = lambda line: None,
        often: Callable[[], None] = lambda: None,
    ):
        self._following, self._reader, self._lines, self._sink = following, reader, LineReader(file), sink
        self._output, self._source, self._skip, self._log, self._often = output, source, skip, log, often
        self._writer = None if state is None else StateWriter(state, self._not_saved)
        self._saved, self._dirty = time.monotonic(), False
        self.counts = Counts()

    def run(self) -> Counts:
        """Read all lines."""
        counts, linger = self.counts, 0.0 if self._source else LINGER
        with _signals(counts):
            try:
                while not counts.interrupted:
                    lines = self._lines.take(WAIT, linger)
                    if lines is None:
                        break
                    samples = [sample for line in lines if (sample := self._sample(line)) is not None]
                    for rows in self._following.take(samples):
                        self._sink.write(rows)
                        self._dirty = True
                        self._save_if_due()
                    self._dirty = self._dirty or bool(lines)
                    self._save_if_due()
                    self._often()
            except BrokenPipeError:
                self._log("The reader of the output has gone: stopped.")
            finally:
                self._sink.close()
                if self._writer is not None:
                    self._save()
                    self._writer.close()
        if self._lines.error is not None:
            raise self._lines.error
        return counts

    def _sample(self, line: Any) -> Sample | None:
        self.counts.lines = line.number
        if not self._reader.begun:
            complaint = self._reader.begin(line)
            sample = None
            if self._reader.begun and line.content.lstrip().startswith(b"{") and line.number > self._skip:
                sample, complaint = self._reader.read(line)
        elif line.number <= self._skip:
            return None
        else:
            sample, complaint = self._reader.read(line)
        if complaint:
            self.counts.left_out += sample is None
            self._complain(f"line {line.number}: {complaint}.")
        for note in self._reader.notes:
            self._log(note)
        self._reader.notes.clear()
        return sample

    def _complain(self, text: str) -> None:
        self.counts.complaints += 1
        if self.counts.complaints <= MAX_REPORTED:
            self._log(text)
        if self.counts.complaints == MAX_REPORTED:
            self._log("Further lines of this kind are only counted.")

    def _save_if_due(self) -> None:
        if self._writer is not None and self._dirty and time.monotonic() - self._saved >= SAVE_EVERY:
            self._save()

    def _save(self) -> None:
        assert self._writer is not None
        about, arrays = self._following.state()
        length = None if self._output is None else self._output.tell()
        self._writer.offer(about | {"output": length, "source": self._source, "lines": self.counts.lines}, arrays)
        self._saved, self._dirty = time.monotonic(), False

    def _not_saved(self, error: OSError) -> None:
        self._log(f"The state was not saved: {error}")


@contextmanager
def _signals(counts: Counts) -> Iterator[None]:
    """Let Ctrl-C and the polite signal to end finish the batch and save the state."""

    def stop(*_: Any) -> None:
        counts.interrupted = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def resume(following: Following, path: Path | None, source: str, log: Callable[[str], None]) -> dict[str, Any] | None:
    """Restore the state in a file, if there is one, and say so; what the file says beside it."""
    found = None if path is None else read_state(path)
    if found is None:
        return None
    about, arrays = found
    try:
        following.restore(about, arrays)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: {error}. Remove the file to start over, or give --state another name.") from None
    missing = (
        f"Continuing after line {about['lines']}."
        if source and source == about["source"]
        else "What came between then and the end of that process, less than a second of it, is missing."
    )
    log(
        f"Resumed from {path}, saved {about['saved']}: {len(following.fleet)} assets, {following.samples} samples. "
        f"{missing}"
    )
    return about
