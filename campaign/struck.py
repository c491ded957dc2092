"""A command that sends itself a signal at an exact point of one of its atomic writes.

    python -P struck.py SIGNAL MOMENT FILE OCCURRENCE ARGUMENTS...

The moments of a write: "opened" (the unfinished file is empty), "half" (half of it is on the disk), "before" and
"after" it replaces the file; and "unlink", before a file is deleted. ARGUMENTS are those of twinfold, or a script.
The line "ready" says that Python has started: until then an interrupt is answered by Python, not by the command.
"""

import io
import os
import runpy
import signal
import sys
from typing import Any

PART = ".part"


class Aim:
    """The point at which the signal is sent."""

    def __init__(self, name: str, moment: str, file: str, occurrence: str):
        self.signal, self.moment, self.file, self.remaining = signal.Signals[name], moment, file, int(occurrence)
        self.unfinished = ""

    def hit(self, moment: str, path: str) -> bool:
        """Whether this is the point."""
        name = os.path.basename(path)
        if name.endswith(PART):
            name = name.rsplit(".", 3)[0]  # NAME.HOST.PROCESS.part
        if (moment, name) != (self.moment, self.file):
            return False
        self.remaining -= 1
        return self.remaining == -1

    def reach(self, moment: str, path: str) -> None:
        """Send the signal if this is the point."""
        if self.hit(moment, path):
            os.kill(os.getpid(), self.signal)


def patch(aim: Aim) -> None:
    """Replace the functions that an atomic write calls."""
    plain_open, plain_sync, plain_replace, plain_unlink = io.open, os.fsync, os.replace, os.unlink

    def open_file(file: Any, *rest: Any, **named: Any) -> Any:
        opened = plain_open(file, *rest, **named)
        if not isinstance(file, int) and os.fspath(file).endswith(PART):
            aim.unfinished = os.fspath(file)
            if "twinfold.train._run" in sys.modules:  # a checkpoint after every few epochs
                sys.modules["twinfold.train._run"].__dict__["SAVE_EVERY"] = 0.0
            aim.reach("opened", aim.unfinished)
        return opened

    def sync(file: int) -> None:
        plain_sync(file)
        if aim.hit("half", aim.unfinished):
            os.truncate(file, os.fstat(file).st_size // 2)
            os.kill(os.getpid(), aim.signal)

    def replace(source: Any, target: Any, **named: Any) -> None:
        aim.reach("before", os.fspath(source))
        plain_replace(source, target, **named)
        aim.reach("after", os.fspath(source))

    def unlink(path: Any, **named: Any) -> None:
        aim.reach("unlink", os.fspath(path))
        plain_unlink(path, **named)

    io.open, os.fsync, os.replace, os.unlink = open_file, sync, replace, unlink  # type: ignore[assignment]


def main() -> None:
    """Run the command."""
    patch(Aim(*sys.argv[1:5]))
    arguments = sys.argv[5:]
    script = arguments[0].endswith(".py")
    sys.argv = arguments if script else ["twinfold", *arguments]
    print("ready", flush=True)
    if script:
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        from twinfold.__main__ import main as twinfold

        twinfold()


if __name__ == "__main__":
    main()
