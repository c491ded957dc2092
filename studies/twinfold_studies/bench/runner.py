"""The run of an experiment: the folder it claims, the jobs it computes, the files it writes."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from twinfold.io import RunFolder, write_json_lines
from twinfold.parallel import InProcess, map_tasks, report_progress, select_executor
from twinfold_studies.bench.cache import OUT_OF_TIME, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options
from twinfold_studies.bench.fingerprint import code_fingerprint
from twinfold_studies.bench.protocols import PARAMETERS, PROTOCOLS, QUICK, describe_stages
from twinfold_studies.bench.queue import QueueReport, Request, run_queue
from twinfold_studies.bench.report import write_report
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import metric_lines


def run_settings(options: Options) -> dict[str, Any]:
    """Everything that determines the numbers of a run, as stored in `config.json`."""
    chosen = QUICK if options.quick else PROTOCOLS
    stages = {name: describe_stages(each) for name, each in chosen.items() if name in (options.protocols or chosen)}
    # The place of the measurements does not matter, and calls that name different sets share a folder.
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in ("data", "sets")}
    return settings | {"parameters": PARAMETERS, "stages": stages, "code": code_fingerprint()}


def run_experiment(
    experiment: Experiment,
    options: Options,
    out: Path,
    *,
    command: str,
    resume: bool,
    workers: int,
    scheduler: str = "",
    seconds: float | None,
    log: Callable[[str], None],
    show: bool = True,
) -> tuple[Path, QueueReport]:
    """Compute missing results, then write tables, figures and report.html to `out/NAME/`."""
    options = experiment.with_defaults(options)
    folder = out / experiment.name
    run = RunFolder(folder, packages=("twinfold",))
    with run.claim(run_settings(options), command=command, force=None, resume=resume or bool(options.sets)):
        requests = experiment.requests(options)
        deadline = None if seconds is None else time.monotonic() + seconds
        report = run_queue(requests, out, workers=workers, scheduler=scheduler, seconds=seconds, log=log, show=show)
        if not (requests or experiment.timed or report.interrupted):  # otherwise its jobs were shared out
            report.interrupted = _analyse_elsewhere(experiment, options, out, workers, scheduler, seconds, log, show)
        store = Store(out, time.monotonic() if report.interrupted else deadline)
        findings = Findings([], [])
        with record_skips(store):  # results without which there are no findings; the experiment handles all others
            findings = experiment.analyse(store, options, log)
        missing = [each for each in requests if store.result(each.job, each.seeds) is None]
        failures = [
            (each.job.key, store.failure(each.job) or _progress(each, store)) for each in missing
        ] + store.skipped
        report.interrupted = report.interrupted or any(reason == OUT_OF_TIME for _, reason in store.skipped)
        report.failed |= {name: reason for name, reason in store.skipped if reason != OUT_OF_TIME}
        lines = metric_lines((each.job for each in requests), store, max((each.seeds for each in requests), default=1))
        write_json_lines(folder / "metrics.jsonl.gz", lines)
        write_report(experiment, findings, folder, failures)
    return folder / "report.html", report


def _analyse_elsewhere(
    experiment: Experiment,
    options: Options,
    out: Path,
    workers: int,
    scheduler: str,
    seconds: float | None,
    log: Callable[[str], None],
    show: bool,
) -> bool:
    """Let several processes compute the results of an analysis; each result is computed by one of them, see `cached`.

    A result that failed there is tried once more here, where it gets its row in the report.

    **Returns:** whether it was interrupted.
    """
    executor = select_executor(workers, scheduler)
    if isinstance(executor, InProcess):
        return False
    share = partial(_share, experiment, options, out.absolute(), seconds)
    done = map_tasks(share, range(workers), executor=executor, progress=show)
    for outcome in done.outcomes:
        if outcome.reason:
            log(f"worker {outcome.task}: {outcome.reason}")
    return done.interrupted


def _share(experiment: Experiment, options: Options, out: Path, seconds: float | None, worker: int) -> None:
    del worker
    store = Store(out, None if seconds is None else time.monotonic() + seconds, shared=True)
    # Results that others compute are missing here, for which an analysis may have no sentence. An error for another
    # reason is raised again by the analysis that has them all.
    with contextlib.suppress(Exception), record_skips(store):
        experiment.analyse(store, options, lambda line: report_progress(0.0, line))


def _progress(request: Request, store: Store) -> str:
    """How much of a request is computed."""
    result = store.result(request.job, request.seeds, allow_fewer=True)
    done = "not computed yet" if result is None else f"{len(result.seeds)} of {request.seeds} seeds computed"
    return f"{done}; the same command with --resume continues"
