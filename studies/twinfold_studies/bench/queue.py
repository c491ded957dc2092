"""The queue of jobs, run one after the other or in several processes; a job that fails does not stop the others."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from twinfold import enable_compilation_cache, enable_x64
from twinfold.parallel import TaskOutcome, map_tasks, report_progress, select_executor
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


def run_queue(
    requests: Sequence[Request],
    folder: Path,
    *,
    workers: int = 1,
    scheduler: str = "",
    seconds: float | None = None,
    log: Callable[[str], None] = print,
    show: bool = True,
) -> QueueReport:
    """Complete all requests that are not finished.

    **Arguments:** `requests`; `folder` of the results; `workers`, number of processes; `scheduler`, the address of a
    Dask cluster that sees the folder; `seconds` after which no further job is started; `log`, called with a line per
    job; `show`: whether to draw a progress bar.
    """
    store = Store(folder)
    pending = [each for each in _merged(requests) if not finished(each, store)]
    report = QueueReport()
    if not pending:
        return report
    for system in dict.fromkeys(each.job.system_name for each in pending):
        first = next(each.job for each in pending if each.job.system_name == system)
        first.data(folder)  # once, before several processes need it
    done = map_tasks(
        partial(_complete, folder.absolute()),
        pending,
        cost=_cost,  # longest first, so that the workers finish together
        seconds=seconds,
        executor=select_executor(workers, scheduler),
        done=lambda outcome: _record(outcome, report, store, log),
        progress=show,
    )
    report.interrupted = done.interrupted
    return report


def _complete(folder: Path, request: Request) -> None:
    name = f"{request.job.system_name} {request.job.model}"
    complete(request, folder, lambda fraction, line: report_progress(fraction, f"{name}: {line}"))


def _merged(requests: Sequence[Request]) -> list[Request]:
    """Each job once, with the largest number of seeds, and with DTW if any request asks for it."""
    merged: dict[str, Request] = {}
    for each in requests:
        other = merged.get(each.job.key, each)
        merged[each.job.key] = Request(each.job, max(each.seeds, other.seeds), each.dtw or other.dtw)
    return list(merged.values())


def _record(outcome: TaskOutcome[Request, None], report: QueueReport, store: Store, log: Callable[[str], None]) -> None:
    job = outcome.task.job
    name = f"{job.system_name} {job.model} {job.protocol}"
    if outcome.reason:  # a row of the table; the other jobs continue
        store.save_failure(job, outcome.reason)
        report.failed[job.key] = outcome.reason
        log(f"{name} failed: {outcome.reason}")
    else:
        report.computed += 1
        log(f"{name}: {outcome.seconds:.0f} s")


def _cost(request: Request) -> float:
    """A rough estimate of the time of a job, relative to others."""
    job = request.job
    steps = job.sizes.long_horizon / job.system.dt * job.system.substeps
    return steps * (4.0 if job.model.endswith("robust") else 1.0) * (1.0 if job.trained else 0.01)
