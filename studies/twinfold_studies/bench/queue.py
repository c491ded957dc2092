"""Many cells, in turn or in several processes: progress, time left, Ctrl-C, and no failure stops the rest."""

import contextlib
import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinfold._core import enable_x64
from twinfold_studies.bench.job import Job, measure_errors, measure_warping, restored, train
from twinfold_studies.bench.store import Store


@dataclass(frozen=True)
class Wanted:
    """A job, the number of seeds that it is wanted with, and whether its DTW is wanted too."""

    job: Job
    seeds: int
    warped: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """What it has to have to be finished on this machine (DTW needs an extra)."""
        return ("errors", "dtw") if self.warped and _can_warp() else ("errors",)


@dataclass
class Outcome:
    """What became of a queue: how many cells were computed, which failed and why, and whether it was stopped."""

    computed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def finished(wanted: Wanted, store: Store) -> bool:
    """Whether nothing is left to do for a cell."""
    return all(store.has(wanted.job, part, wanted.seeds) for part in wanted.parts)


def _can_warp() -> bool:
    return importlib.util.find_spec("dtaidistance") is not None


def complete(wanted: Wanted, folder: Path, progress: Any = False) -> None:
    """Compute what a cell lacks: fit, errors, DTW if wanted. Raises `KeyboardInterrupt` when the fit was stopped."""
    enable_x64()
    job, store = wanted.job, Store(folder)
    data = job.data(folder)
    seeds = tuple(range(wanted.seeds)) if job.trained else (0,)
    if job.trained:
        stored = store.load(job, "fit", wanted.seeds)
        if stored is None:
            checkpoint = store.path(job, f"checkpoint{wanted.seeds}")
            model = train(job, seeds, data, checkpoint, progress)
            if model.interrupted:
                raise KeyboardInterrupt
            store.save_fit(job, model)
            checkpoint.unlink(missing_ok=True)
        else:
            model = restored(job, data, *stored)
            seeds = model.seeds
    else:
        model = job.twin(data)
    if not store.has(job, "errors", wanted.seeds):
        found, seconds = measure_errors(job, model, data)
        store.save_errors(job, seeds, found, seconds)
    if "dtw" in wanted.parts and not store.has(job, "dtw", wanted.seeds):
        store.save(job, "dtw", {"seeds": list(seeds)}, measure_warping(model, data))
    store.clear_failure(job)


def _guarded(wanted: Wanted, folder: Path, progress: Any = False) -> str | None:
    """`complete`, with a failure as text."""
    try:
        complete(wanted, folder, progress)
    except Exception as error:  # one failed cell is a line of the table, not the end of the others
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        Store(folder).save_failure(wanted.job, reason)
        return reason
    return None


def run_queue(
    wanted: Sequence[Wanted],
    folder: Path,
    *,
    workers: int = 1,
    seconds: float | None = None,
    tell: Callable[[str], None] = print,
    show: bool = True,
) -> Outcome:
    """Complete all cells that are not finished.

    **Arguments:** `wanted`; `folder` of the cells; `workers`, processes at a time; `seconds` after which no new cell is
    begun; `tell`, receives a line for each cell; `show`, whether to draw a progress bar.
    """
    store = Store(folder)
    todo = [each for each in _merged(wanted) if not finished(each, store)]
    outcome = Outcome()
    if not todo:
        return outcome
    for system in dict.fromkeys(each.job.system for each in todo):
        first = next(each.job for each in todo if each.job.system == system)
        first.data(folder)  # once, before several processes want it
    with _bar(len(todo), show) as bar:
        try:
            if workers > 1:
                _in_processes(todo, folder, outcome, bar, tell, workers, seconds)
            else:
                _in_turn(todo, folder, outcome, bar, tell, seconds)
        except KeyboardInterrupt:
            outcome.interrupted = True
    return outcome


def _merged(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Each cell once, with the most seeds, and the DTW, that anyone wants."""
    most: dict[str, Wanted] = {}
    for each in wanted:
        seen = most.get(each.job.key, each)
        most[each.job.key] = Wanted(each.job, max(each.seeds, seen.seeds), each.warped or seen.warped)
    return list(most.values())


def _note(each: Wanted, reason: str | None, took: float, outcome: Outcome, tell: Callable[[str], None]) -> None:
    name = f"{each.job.system} {each.job.model} {each.job.protocol}"
    if reason is None:
        outcome.computed += 1
        tell(f"{name}: {took:.0f} s")
    else:
        outcome.failed[each.job.key] = reason
        tell(f"{name} failed: {reason}")


def _in_turn(todo: list[Wanted], folder: Path, outcome: Outcome, bar: Any, tell: Any, seconds: float | None) -> None:
    started = time.perf_counter()
    for each in todo:
        if seconds is not None and time.perf_counter() - started > seconds:
            outcome.interrupted = True
            return
        began = time.perf_counter()
        label = f"{each.job.system} {each.job.model}"
        bar(label, 0)
        reason = _guarded(each, folder, lambda done, line, label=label: bar(f"{label}: {line}", 0))
        _note(each, reason, time.perf_counter() - began, outcome, tell)
        bar(label, 1)


def _cost(wanted: Wanted) -> float:
    """Roughly how long a cell takes, beside others."""
    job = wanted.job
    steps = job.amount.long_horizon / job.of.dt * job.of.substeps
    return steps * (4.0 if job.model.endswith("robust") else 1.0) * (1.0 if job.trained else 0.01)


def _in_processes(
    todo: list[Wanted], folder: Path, outcome: Outcome, bar: Any, tell: Any, workers: int, seconds: float | None
) -> None:
    started = time.perf_counter()
    # Spawned, never forked: JAX has threads. One task a process would waste its imports; one process a worker does not.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = sorted(todo, key=_cost, reverse=True)  # the longest first, so that none is left alone at the end
        running: dict[Any, tuple[Wanted, float]] = {}
        try:
            while waiting or running:
                late = seconds is not None and time.perf_counter() - started > seconds
                if late and waiting:
                    outcome.interrupted = True
                    waiting = []
                while waiting and len(running) < workers:
                    each = waiting.pop(0)
                    running[pool.submit(_guarded, each, folder)] = (each, time.perf_counter())
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    each, began = running.pop(future)
                    error = future.exception()
                    reason = f"{type(error).__name__}: {error}" if error else future.result()
                    _note(each, reason, time.perf_counter() - began, outcome, tell)
                    bar(f"{len(running)} running", 1)
        except KeyboardInterrupt:
            for process in (pool._processes or {}).values():
                process.terminate()
            raise


@contextlib.contextmanager
def _bar(total: int, show: bool) -> Iterator[Callable[[str, int], None]]:
    """`bar(text, advance)`: an overall progress bar, or nothing."""
    if not show:
        yield lambda text, advance: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}")
    with Progress(MofNCompleteColumn(), BarColumn(bar_width=20), TimeRemainingColumn(compact=True), text) as bar:
        task = bar.add_task("", total=total)
        yield lambda text, advance: bar.update(task, description=text, advance=advance)
