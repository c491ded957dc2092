"""Ctrl-C reaches all processes of a terminal: workers leave it to the process that started them.

A module of its own, since it imports Dask.
"""

import signal
from typing import Any

from distributed import WorkerPlugin


class Shield(WorkerPlugin):
    """Ignores the signal in each worker, also in one that takes the place of another."""

    name = "twinfold-shield"

    def setup(self, worker: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
