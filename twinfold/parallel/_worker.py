"""What runs in a worker: one task, with the precision and the compilation cache of the process that sent it."""

import contextlib
import glob
import os
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from twinfold.parallel._executor import INTERRUPTED, attempt, reset_progress, set_progress

REPORT_EVERY = 0.5  # seconds between two reports of a task
_stopped: set[str] = set()


def stop_job(job: str) -> None:
    """Let the tasks of a job in this process stop at their next `report_progress`."""
    _stopped.add(job)


@dataclass(frozen=True)
class WorkerSetup:
    """Settings of JAX that a worker shares with the process that sent its task."""

    precise: bool
    cache: str  # the folder of compiled programs; "" if there is none
    embedded: bool  # whether the worker is one of several on the same machine

    @staticmethod
    def of_this_process(*, embedded: bool) -> "WorkerSetup":
        """The settings of this process; if it has not imported JAX, its defaults."""
        if "jax" not in sys.modules:
            return WorkerSetup(False, "", embedded)
        import jax

        folder = jax.config.values["jax_compilation_cache_dir"] or ""
        return WorkerSetup(bool(jax.config.read("jax_enable_x64")), folder, embedded)

    @contextlib.contextmanager
    def applied(self, worker: Any) -> Any:
        """With these settings; JAX is imported here, unless nobody uses it."""
        if self.embedded:
            os.environ |= gpu_of(worker.name, len(glob.glob("/dev/nvidia[0-9]*")), os.environ)
        if not (self.precise or self.cache or "jax" in sys.modules):
            yield
            return
        import jax

        from twinfold._core import enable_compilation_cache

        if self.cache:
            enable_compilation_cache(Path(self.cache).parent if self.embedded else None)
        with jax.enable_x64(self.precise):
            yield


def gpu_of(worker: Any, gpus: int, environment: Any) -> dict[str, str]:
    """The variables that give each of several workers a GPU of its own, or a part of the memory of a shared one."""
    if not gpus or "CUDA_VISIBLE_DEVICES" in environment or not str(worker).isdigit():
        return {}
    return {"CUDA_VISIBLE_DEVICES": str(int(worker) % gpus), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True)
class WorkerTask:
    """Calls a function with a task, as Dask does in a worker. Returns its value, the reason of a failure, seconds."""

    fn: bytes  # pickled
    job: str
    setup: WorkerSetup

    def __call__(self, index: int, task: Any) -> tuple[Any, str, float]:
        from distributed import get_worker

        worker, last = get_worker(), [0.0]

        def report(fraction: float, text: str) -> None:
            if self.job in _stopped:
                raise KeyboardInterrupt
            now = time.monotonic()
            if now - last[0] > REPORT_EVERY:
                last[0] = now
                worker.log_event(self.job, (index, fraction, text))

        started, token = time.perf_counter(), set_progress(report)
        try:
            with self.setup.applied(worker):
                outcome = attempt(lambda task: _function(self.fn)(task), task)
            return outcome.value, outcome.reason, outcome.seconds
        except KeyboardInterrupt:
            return None, INTERRUPTED, time.perf_counter() - started
        finally:
            reset_progress(token)


@lru_cache(maxsize=1)
def _function(data: bytes) -> Callable[[Any], Any]:
    """The function of a job, unpickled once in a worker: what it compiles for one task serves the next."""
    return pickle.loads(data)


def pickled(fn: Callable[[Any], Any]) -> bytes:
    """A function as bytes, with the source of modules that a worker cannot import, such as the user's system.py."""
    import cloudpickle

    # A module that was run from a file, not imported, has no specification.
    unimportable = [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and module.__spec__ is None and name != "__main__"
        if name == module.__name__ and getattr(module, "__file__", None)
    ]
    for module in unimportable:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(fn)
    finally:
        for module in unimportable:
            cloudpickle.unregister_pickle_by_value(module)
