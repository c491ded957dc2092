"""Tasks in many processes, on Dask distributed: an embedded cluster of this machine, or one that is running already.

Dask moves tasks, restarts workers and retries what a dead worker has lost. Added here: tasks are handed out one per
worker, in the given order, so that no list of a million tasks travels; tasks report their progress and can be stopped;
a scheduler that was restarted is found again and gets what is missing.
"""

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twinfold.parallel._executor import INTERRUPTED, AbstractExecutor, Outcomes, TaskOutcome, TaskProgress, reason_of
from twinfold.parallel._worker import WorkerSetup, WorkerTask, pickled, stop_job

Task = TypeVar("Task")
Value = TypeVar("Value")

MAX_DEATHS = 3  # of its worker, after which a task is given up
GRACE = 20.0  # seconds after Ctrl-C in which a running task may end with what it has
RECONNECT = 120.0  # seconds that a lost scheduler is waited for
TICK = 1.0  # seconds between two looks at the number of workers
# XLA allocates the memory of a program at each call. In large pages that is quick: an epoch of 13 seeds of a network of
# 2x64 takes three quarters of the time. Only glibc reads this, and only when a process starts.
LARGE_PAGES = "glibc.malloc.hugetlb=1"


@dataclass(frozen=True)
class DaskExecutor(AbstractExecutor):
    """Tasks in processes of this machine, or on a Dask cluster.

    Functions, tasks and values travel between processes: they are pickled (with cloudpickle, lambdas included). Call it
    from a script under `if __name__ == "__main__":`, as all that starts processes. The processes of this machine are
    spawned, never forked, share its cores, and talk over encrypted connections of its own.

    **Arguments:** `workers`, the number of processes of this machine; `scheduler`, the address of a cluster in place of
    them. A task whose worker dies is tried again, three times at most. A cluster sets this number itself
    (`distributed.scheduler.allowed-failures`).

    **Example:**

    ```python
    executor = tw.parallel.DaskExecutor(workers=2)  # for tw.parallel.map_tasks(..., executor=executor)
    tw.parallel.DaskExecutor(scheduler="tcp://cluster:8786")
    ```
    """

    workers: int = 2
    scheduler: str = ""

    def __post_init__(self):
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise ImportError('More than one worker needs Dask: pip install "twinfold[distributed]".') from None

    def run(
        self,
        fn: Callable[[Task], Value],
        tasks: Sequence[Task],
        order: Sequence[int],
        progress: TaskProgress,
        may_start: Callable[[], bool],
    ) -> Outcomes[Task, Value]:
        if not order:
            return
        job, waiting = f"twinfold-{uuid.uuid4().hex}", list(reversed(order))
        setup = WorkerSetup.of_this_process(embedded=not self.scheduler)
        call = WorkerTask(pickled(fn), job, setup)
        from twinfold.parallel._shield import Shield

        with self._cluster() as address:
            while waiting and may_start():
                with _connect(address, self.scheduler) as client:
                    if not self.scheduler:
                        client.register_plugin(Shield())
                    client.subscribe_topic(job, lambda event: progress(*event[1]))
                    yield from _hand_out(client, call, tasks, waiting, may_start)

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[Any]:
        if self.scheduler:
            yield self.scheduler
            return
        import multiprocessing

        from dask import config
        from distributed import LocalCluster, Security

        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise RuntimeError(
                "workers: processes are started by importing the script that was run. Put its calls under `if __name__ "
                '== "__main__":`, so that the import does not make them again.'
            )
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        settings = {
            "distributed.scheduler.allowed-failures": MAX_DEATHS,
            "distributed.worker.multiprocessing-method": "spawn",
            "distributed.nanny.pre-spawn-environ.GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", LARGE_PAGES),
        }
        with (
            config.set(settings),
            LocalCluster(
                n_workers=self.workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,  # the operating system decides
                dashboard_address=None,  # pyright: ignore[reportArgumentType]
                silence_logs=logging.CRITICAL,
                protocol="tls://",
                security=Security.temporary(),  # other users of this machine cannot run code here
                # The number of threads of XLA: as many as this worker's share of the cores.
                env={"NPROC": str(max(cores // self.workers, 1))},
            ) as cluster,
        ):
            yield cluster


@contextlib.contextmanager
def _connect(address: Any, scheduler: str) -> Iterator[Any]:
    """A client; one of a scheduler that does not answer is waited for."""
    from distributed import Client

    started = time.monotonic()
    while True:
        try:
            client = Client(address, set_as_default=False)
            break
        except (OSError, TimeoutError) as error:
            if time.monotonic() - started > RECONNECT:
                raise ConnectionError(
                    f"scheduler={scheduler!r} does not answer: {reason_of(error)}. Finished tasks are kept; the same "
                    "command resumes."
                ) from None
            time.sleep(TICK)
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):  # of a scheduler that is gone
            client.close(timeout=5)


def _hand_out(
    client: Any, call: WorkerTask, tasks: Sequence[Task], waiting: list[int], may_start: Callable[[], bool]
) -> Outcomes[Task, Any]:
    """Yield outcomes until no task is `waiting` (a stack, the next one last), or until the scheduler is lost.

    Tasks that were lost with it are waiting again.
    """
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError

    running: dict[Any, int] = {}
    try:
        while (waiting and may_start()) or running:
            slots = max(sum(client.nthreads().values()), 1)
            while waiting and len(running) < slots and may_start():
                index = waiting.pop()
                future = client.submit(call, index, tasks[index], key=f"{call.job}-{index}", pure=False)
                running[future] = index
            done = _done(client, list(running))
            if any(future.status in ("cancelled", "lost") for future in running):
                raise CancelledError
            for future in done:
                index, outcome = running[future], _outcome(future, tasks[running[future]])
                del running[future]
                future.release()  # or it would be computed again when its worker dies
                yield index, outcome
    except KeyboardInterrupt:
        yield from _stop(client, call.job, tasks, running)
        raise
    except (CancelledError, CommClosedError, OSError, TimeoutError):
        waiting.extend(sorted(running.values(), reverse=True))
    finally:
        with contextlib.suppress(Exception):
            client.cancel(list(running), force=True)


def _done(client: Any, futures: list, *, timeout: float = TICK, first: bool = True) -> list:
    """The tasks that have ended, once the `first` has or all have, or after `timeout` seconds."""
    from distributed import wait

    try:
        with client.as_current():
            wait(futures, timeout=timeout, return_when="FIRST_COMPLETED" if first else "ALL_COMPLETED")
    except TimeoutError:  # which is also what a scheduler that is gone looks like; then the futures say so
        pass
    return [future for future in futures if future.status in ("finished", "error")]


def _outcome(future: Any, task: Task) -> TaskOutcome[Task, Any]:
    from distributed import KilledWorker

    error = future.exception()
    if error is None:
        value, reason, seconds = future.result()
        if reason == INTERRUPTED:
            raise KeyboardInterrupt
        return TaskOutcome(task, value, reason, seconds)
    if isinstance(error, KilledWorker):
        reason = f"its worker died {MAX_DEATHS + 1} times: killed, or out of memory"
        return TaskOutcome(task, None, reason, float("nan"))
    return TaskOutcome(task, None, reason_of(error), float("nan"))


def _stop(client: Any, job: str, tasks: Sequence[Task], running: dict[Any, int]) -> Outcomes[Task, Any]:
    """Ask the tasks of a job to stop, and yield those that end with a value."""
    ended: list = []
    with contextlib.suppress(Exception):
        client.run(stop_job, job)
        ended = _done(client, list(running), timeout=GRACE, first=False)
    for future in ended:
        with contextlib.suppress(KeyboardInterrupt, Exception):
            index, outcome = running[future], _outcome(future, tasks[running[future]])
            del running[future]
            yield index, outcome
