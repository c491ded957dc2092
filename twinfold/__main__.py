"""The command `twinfold`, also as `python -m twinfold`."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run the command. Before it begins and after it ends, Ctrl-C ends the process at once, without a traceback."""

    def leave(*_: object) -> None:
        os.write(sys.stderr.fileno(), b"Interrupted.\n")
        os._exit(130)

    def on_interrupt(handler: Any) -> None:
        if interruptible:
            signal.signal(signal.SIGINT, handler)

    # Not if the shell has it ignored, as for a job in the background.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    on_interrupt(leave)
    from twinfold.cli import app, when_a_command_begins

    when_a_command_begins.append(lambda: on_interrupt(signal.default_int_handler))
    try:
        app()
    finally:
        on_interrupt(leave)


if __name__ == "__main__":
    main()
