"""Commands as processes of their own, measured and limited."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STRUCK = Path(__file__).with_name("struck.py")
SECONDS = 200.0  # for one command
# Programs that one command has compiled are read by the next, and are the same as if they were compiled again.
CACHE = {
    "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parents[1] / ".cache" / "xla"),
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}
READ_ONLY_CACHE = CACHE | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}  # a kill must not leave half a program
NO_CACHE: dict[str, str] = {}


@dataclass(frozen=True)
class Done:
    """A process that has ended: its exit code (-9: killed), what it said, and what it took."""

    code: int
    out: str
    err: str
    seconds: float
    cpu_seconds: float
    peak_mb: float

    @property
    def said(self) -> str:
        """How it ended, for a message."""
        return f"exit code {self.code}: {(self.out + self.err)[-1500:]}"


class Process:
    """A command of twinfold, or a script, in a process of its own.

    **Arguments:** `folder`, in which it runs; `arguments`; `aim`, the first arguments of struck.py; `cache`, where JAX
    finds compiled programs; `limit`, called in the process before it starts.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        *,
        aim: Sequence[str] = (),
        cache: Mapping[str, str] = CACHE,
        limit: Callable[[], None] | None = None,
    ):
        program = [] if arguments[0].endswith(".py") else ["-m", "twinfold"]
        if aim:
            program = ["-P", str(STRUCK), *aim]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
        environment |= {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1", **cache}
        self.temporary = tempfile.TemporaryDirectory(prefix="campaign-", ignore_cleanup_errors=True)
        self.outputs = [open(Path(self.temporary.name, name), "wb") for name in ("out", "err")]  # noqa: SIM115
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=folder,
            # The temporary files of compilers that a kill does not reach are deleted with the folder.
            env=environment | {"TMPDIR": self.temporary.name},
            stdin=subprocess.DEVNULL,
            stdout=self.outputs[0],
            stderr=self.outputs[1],
            preexec_fn=limit,
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self.process.pid

    def send_signal(self, number: int) -> None:
        """Send a signal, even if it has ended; `wait` must be the first to notice that."""
        os.kill(self.pid, number)

    def said(self) -> list[str]:
        """What it has said on stdout and stderr so far."""
        return [Path(file.name).read_text(errors="replace") for file in self.outputs]

    def wait(self, limit: float = SECONDS) -> Done:
        """Wait until it ends, which may take so many seconds."""
        timer = threading.Timer(limit, self.send_signal, [signal.SIGKILL])
        timer.start()
        _, status, usage = os.wait4(self.pid, 0)
        seconds = time.monotonic() - self.started
        timer.cancel()
        code = self.process.returncode = os.waitstatus_to_exitcode(status)
        out, err = self.said()
        for file in self.outputs:
            file.close()
        self.temporary.cleanup()
        assert seconds < limit, f"still running after {limit:g} s: {err[-1000:]}"
        peak_mb = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
        return Done(code, out, err, seconds, usage.ru_utime + usage.ru_stime, peak_mb)


def run(folder: Path, *arguments: str) -> Done:
    """Run a command to its end; it must succeed, or end with a failed check."""
    done = Process(folder, arguments).wait()
    assert done.code in (0, 1), done.said
    assert "Traceback" not in done.err, done.said
    return done
