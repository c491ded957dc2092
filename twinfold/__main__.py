"""The command `twinfold`, also as `python -m twinfold`."""

import os
import signal
import sys


def main() -> None:
    """Run the command. Ctrl-C before it has begun ends the process without a traceback."""

    def leave(*_: object) -> None:
        os.write(sys.stderr.fileno(), b"Interrupted.\n")
        os._exit(130)

    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # not if the shell has it ignored, as for a job in the background
        signal.signal(signal.SIGINT, leave)
    from twinfold.cli import app

    signal.signal(signal.SIGINT, handler)
    app()


if __name__ == "__main__":
    main()
