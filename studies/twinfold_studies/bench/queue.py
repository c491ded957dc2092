"""The queue of jobs, run one after the other or in several processes; a job that fails does not stop the others."""

import contextlib
import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinfold import enable_compilation_cache, enable_x64
from twinfold_studies.bench.job import Job, measure_dtw, measure_errors, restored_fit, train
from twinfold_studies.bench.store import Store


@dataclass(frozen=True)
class Request:
    """A job that an experiment needs, with this many seeds, and with DTW or without."""

    job: Job
    seeds: int
    dtw: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a finished result on this machine (DTW requires an extra)."""
        return ("errors", "dtw") if self.dtw and _has_dtw() else ("errors",)


@dataclass
class QueueReport:
    """The number of jobs computed, the reasons of those that failed, and whether the queue was interrupted."""

    computed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def finished(request: Request, store: Store) -> bool:
    """Whether all parts of a result are stored."""
    return all(store.has(request.job, part, request.seeds) for part in request.parts)


def _has_dtw() -> bool:
    return importlib.util.find_spec("dtaidistance") is not None


def complete(request: Request, folder: Path, progress: Any = False) -> None:
    """Compute the missing parts of a result. **Raises:** `KeyboardInterrupt` if the fit is interrupted."""
    enable_x64()
    enable_compilation_cache()
    job, store = request.job, Store(folder)
    data = job.data(folder)
    seeds = tuple(range(request.seeds)) if job.trained else (0,)
    if job.trained:
        stored = store.load(job, "fit", request.seeds)
        if stored is None:
            checkpoint = store.path(job, f"checkpoint{request.seeds}")
            model = train(job, seeds, data, checkpoint, progress)
            if model.interrupted:
                raise KeyboardInterrupt
            store.save_fit(job, model)
            checkpoint.unlink(missing_ok=True)
        else:
            model = restored_fit(job, data, *stored)
            seeds = model.seeds
    else:
        model = job.twin(data)
    if not store.has(job, "errors", request.seeds):
        evaluations, seconds = measure_errors(job, model, data)
        store.save_errors(job, seeds, evaluations, seconds)
    if "dtw" in request.parts and not store.has(job, "dtw", request.seeds):
        store.save(job, "dtw", {"seeds": list(seeds)}, measure_dtw(model, data))
    store.clear_failure(job)


def _try_complete(request: Request, folder: Path, progress: Any = False) -> str | None:
    """Run `complete`; returns the reason if it fails."""
    try:
        complete(request, folder, progress)
    except Exception as error:  # reported as a row of the table; the other jobs continue
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        Store(folder).save_failure(request.job, reason)
        return reason
    return None


def run_queue(
    requests: Sequence[Request],
    folder: Path,
    *,
    workers: int = 1,
    seconds: float | None = None,
    log: Callable[[str], None] = print,
    show: bool = True,
) -> QueueReport:
    """Complete all requests that are not finished.

    **Arguments:** `requests`; `folder` of the results; `workers`, number of processes; `seconds` after which no further
    job is started; `log`, called with a line per job; `show`: whether to draw a progress bar.
    """
    store = Store(folder)
    pending = [each for each in _merged(requests) if not finished(each, store)]
    report = QueueReport()
    if not pending:
        return report
    for system in dict.fromkeys(each.job.system_name for each in pending):
        first = next(each.job for each in pending if each.job.system_name == system)
        first.data(folder)  # once, before several processes need it
    with _progress_bar(len(pending), show) as bar:
        try:
            if workers > 1:
                _run_parallel(pending, folder, report, bar, log, workers, seconds)
            else:
                _run_serial(pending, folder, report, bar, log, seconds)
        except KeyboardInterrupt:
            report.interrupted = True
    return report


def _merged(requests: Sequence[Request]) -> list[Request]:
    """Each job once, with the largest number of seeds, and with DTW if any request asks for it."""
    merged: dict[str, Request] = {}
    for each in requests:
        other = merged.get(each.job.key, each)
        merged[each.job.key] = Request(each.job, max(each.seeds, other.seeds), each.dtw or other.dtw)
    return list(merged.values())


def _record(
    request: Request, reason: str | None, seconds: float, report: QueueReport, log: Callable[[str], None]
) -> None:
    name = f"{request.job.system_name} {request.job.model} {request.job.protocol}"
    if reason is None:
        report.computed += 1
        log(f"{name}: {seconds:.0f} s")
    else:
        report.failed[request.job.key] = reason
        log(f"{name} failed: {reason}")


def _run_serial(
    pending: list[Request], folder: Path, report: QueueReport, bar: Any, log: Any, seconds: float | None
) -> None:
    started = time.perf_counter()
    for each in pending:
        if seconds is not None and time.perf_counter() - started > seconds:
            report.interrupted = True
            return
        start = time.perf_counter()
        label = f"{each.job.system_name} {each.job.model}"
        bar(label, 0)
        reason = _try_complete(each, folder, lambda done, line, label=label: bar(f"{label}: {line}", 0))
        _record(each, reason, time.perf_counter() - start, report, log)
        bar(label, 1)


def _cost(request: Request) -> float:
    """A rough estimate of the time of a job, relative to others."""
    job = request.job
    steps = job.sizes.long_horizon / job.system.dt * job.system.substeps
    return steps * (4.0 if job.model.endswith("robust") else 1.0) * (1.0 if job.trained else 0.01)


def _run_parallel(
    pending: list[Request],
    folder: Path,
    report: QueueReport,
    bar: Any,
    log: Any,
    workers: int,
    seconds: float | None,
) -> None:
    started = time.perf_counter()
    # Spawned, not forked, because JAX is multithreaded. A process runs many jobs, so that it imports JAX once.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = sorted(pending, key=_cost, reverse=True)  # longest first, so that the workers finish together
        running: dict[Any, tuple[Request, float]] = {}
        try:
            while waiting or running:
                if waiting and seconds is not None and time.perf_counter() - started > seconds:
                    report.interrupted = True
                    waiting = []
                while waiting and len(running) < workers:
                    each = waiting.pop(0)
                    running[pool.submit(_try_complete, each, folder)] = (each, time.perf_counter())
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    each, start = running.pop(future)
                    error = future.exception()
                    reason = f"{type(error).__name__}: {error}" if error else future.result()
                    _record(each, reason, time.perf_counter() - start, report, log)
                    bar(f"{len(running)} running", 1)
        except KeyboardInterrupt:
            for process in (pool._processes or {}).values():
                process.terminate()
            raise


@contextlib.contextmanager
def _progress_bar(total: int, show: bool) -> Iterator[Callable[[str, int], None]]:
    """`bar(text, advance)`, which updates a progress bar; it does nothing unless `show`."""
    if not show:
        yield lambda text, advance: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    with Progress(MofNCompleteColumn(), BarColumn(bar_width=20), TimeRemainingColumn(compact=True), text) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, advance: bar.update(task, description=text, advance=advance)
