"""The state of a fleet in a file: written while the fleet goes on, complete or not at all, and read bit for bit."""

import datetime
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.io._archive import read_arrays, write_arrays

MAGIC, FORMAT = "twinfold follow", 1
HEADER = "header"


def write_state(path: Path, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a state atomically."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    text = json.dumps({"magic": MAGIC, "format": FORMAT, "saved": now, **about}).encode()
    write_arrays(path, {HEADER: np.frombuffer(text, np.uint8), **arrays})


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """What `write_state` has written; None if there is no such file.

    **Raises:** `ValueError` for a file that is damaged or something else.
    """
    try:
        arrays = read_arrays(path)
        about = json.loads(arrays.pop(HEADER).tobytes())
        if about["magic"] != MAGIC or about["format"] != FORMAT:
            raise ValueError(f"it is {about['magic']!r}, format {about['format']!r}")
        return about, arrays
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a state of `twinfold follow` that this version reads, or it is damaged ({error}). Remove "
            "it to start over, or give --state another name."
        ) from None


class StateWriter:
    """Writes the latest state in a thread of its own; `offer` returns at once.

    **Arguments:** `path`; `failed`, called with the error of a write, which is tried again with the next state.
    """

    def __init__(self, path: Path, failed: Callable[[OSError], None]):
        self.path, self._failed = path, failed
        self._next: tuple[dict[str, Any], dict[str, np.ndarray]] | None = None
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def offer(self, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write this state next, instead of one that still waits."""
        with self._changed:
            self._next = (about, arrays)
            self._changed.notify()

    def close(self) -> None:
        """Return when the last state is on the disk."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._next is None and not self._closed:
                    self._changed.wait()
                waiting, self._next = self._next, None
            if waiting is None:
                return
            try:
                write_state(self.path, *waiting)
            except OSError as error:
                self._failed(error)
