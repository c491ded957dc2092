"""The programs of later stages, compiled in the background while the first ones train.

A fit of a few seconds spends most of them compiling. XLA compiles without Python's lock, so that a second thread hides
that time. What fails there fails again, and is reported, where it is needed.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import jax


class Ahead:
    """Tasks by the stage that needs them, done one after the other in a thread of their own."""

    def __init__(self, tasks: Mapping[int, Callable[[], Any]]):
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="compile")
        precise = bool(jax.config.read("jax_enable_x64"))  # a thread does not see what its parent has set by `with`

        def run(task: Callable[[], Any]) -> None:
            with jax.enable_x64(precise):
                task()

        self._done: dict[int, Future[None]] = {stage: self._threads.submit(run, task) for stage, task in tasks.items()}

    def wait(self, stage: int) -> None:
        """Return when the task of a stage, if it has one, is done."""
        task = self._done.get(stage)
        if task is not None and not task.cancelled():
            wait([task])

    def stop(self) -> None:
        """Begin no other task."""
        self._threads.shutdown(wait=False, cancel_futures=True)
