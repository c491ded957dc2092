"""Cases and groups, and a runner that survives them: a case that kills, hangs or bloats its process is a failure."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_SECONDS = 60.0  # for one input
MAX_GROWTH_MB = 2000.0  # of the process, by one input
MAX_ADDRESS_SPACE_GB = 64  # XLA reserves much more than it uses
STARTED, ENDED = "started", "ended"


@dataclass(frozen=True)
class Case:
    """One attempt: `attempt` is called in an empty folder and raises if the library did not survive it."""

    key: str
    attempt: Callable[[Path], None]


@dataclass(frozen=True)
class Group:
    """Cases of one kind. `cases` takes a seed and a scale (1: the whole campaign) and yields them in a fixed order.

    `kind` says what a case is ("input", "kill" or "run"); `seconds` limits each of them.
    """

    title: str
    cases: Callable[[int, float], Iterable[Case]]
    kind: str = "input"
    seconds: float = MAX_SECONDS


@dataclass(frozen=True)
class Outcome:
    """The cases of a group that were tried, and the reason for each failure by key."""

    tried: int
    failures: dict[str, str]
    seconds: float

    def summary(self) -> dict[str, Any]:
        """The outcome as in summary.json."""
        failures = [{"case": key, "reason": reason} for key, reason in self.failures.items()]
        survived = self.tried - len(failures)
        return {"tried": self.tried, "survived": survived, "seconds": round(self.seconds), "failures": failures}


def scaled(count: int, scale: float) -> int:
    """The number of cases at a scale, at least one."""
    return max(1, round(count * scale))


def run_group(name: str, log: Path, *, seed: int, scale: float, deadline: float | None = None) -> Outcome:
    """Run the cases of a group in a worker process, again and again until every case has an outcome in `log`.

    What an earlier call has recorded is not tried again. A worker that dies fails the case it was at.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "campaign", "--worker", name, str(log), str(seed), str(scale)]
    while deadline is None or time.monotonic() < deadline:
        code = _run_worker(command, None if deadline is None else deadline - time.monotonic())
        if code in (0, None):
            break
        pending = [key for key, entry in read_log(log).items() if entry["state"] == STARTED]
        if not pending:
            raise RuntimeError(f"The worker of {name} ended with {code} before its first case.")
        reason = f"the process ended with signal {-code}" if code < 0 else f"the process ended with code {code}"
        if code == -signal.SIGALRM:
            reason = "took longer than allowed"
        append(log, {"key": pending[-1], "state": ENDED, "reason": reason, "seconds": 0.0})
    return outcome_of(log)


def _run_worker(command: list[str], limit: float | None) -> int | None:
    """The exit code of a worker, or None if it did not end in time; whatever it started ends with it."""
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], start_new_session=True) as worker:
        try:
            return worker.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)


def work(group: Group, log: Path, *, seed: int, scale: float) -> None:
    """Run the cases that have no outcome yet, in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE_GB << 30, resource.RLIM_INFINITY))
    done = {key for key, entry in read_log(log).items() if entry["state"] == ENDED}
    for case in group.cases(seed, scale):
        if case.key in done:
            continue
        append(log, {"key": case.key, "state": STARTED})
        signal.alarm(int(group.seconds) + 1)  # not caught: it ends the process even inside a compiled function
        started = time.monotonic()
        reason = attempt(case)
        signal.alarm(0)
        append(log, {"key": case.key, "state": ENDED, "reason": reason, "seconds": time.monotonic() - started})


def attempt(case: Case) -> str | None:
    """Why the library did not survive a case, or None."""
    before, here = peak_mb(reset=True), Path.cwd()
    with tempfile.TemporaryDirectory(prefix="campaign-", ignore_cleanup_errors=True) as folder:
        try:
            case.attempt(Path(folder))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"[:2000]
        finally:
            os.chdir(here)
    growth = peak_mb() - before
    return f"used {growth:.0f} MB more" if growth > MAX_GROWTH_MB else None


def read_log(log: Path) -> dict[str, dict[str, Any]]:
    """The last entry of each case."""
    if not log.exists():
        return {}
    return {entry["key"]: entry for entry in _entries(log)}


def outcome_of(log: Path) -> Outcome:
    """The outcome of the cases in a log."""
    ended = {key: entry for key, entry in read_log(log).items() if entry["state"] == ENDED}
    failures = {key: entry["reason"] for key, entry in ended.items() if entry["reason"] is not None}
    return Outcome(len(ended), failures, sum(entry["seconds"] for entry in ended.values()))


def append(log: Path, entry: dict[str, Any]) -> None:
    """Add an entry to a log, on a line of its own even if the last one was cut off by a kill."""
    with log.open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(entry))


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    for line in log.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):  # an incomplete line
            yield json.loads(line)


def peak_mb(*, reset: bool = False) -> float:
    """The largest memory of this process (since the last reset) or of one of its children.

    Linux counts the memory of the parent in the peak of a process, so its own is read where it can be reset.
    """
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
        return max(children, int(status.partition("VmHWM:")[2].split()[0]) / 2**10)
    except (OSError, IndexError):
        return max(children, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)
