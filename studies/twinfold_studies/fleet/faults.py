"""A fleet fit whose workers are killed again and again, and whose scheduler is killed once: the result is the same."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from twinfold.fleet import fit_fleet
from twinfold_studies.fleet.cells import SCALARS, cell_twin
from twinfold_studies.fleet.speed import COLUMNS, write_once

PORT = 18765
MAX_CALLS = 5
MAX_DEATHS = 10  # of a task's worker: a kill every few seconds may meet the same task several times


class Cluster:
    """A scheduler and two workers, as an operator would run them: what dies is started again."""

    def __init__(self, folder: Path):
        self.folder, self.processes, self.kills = folder, {}, {"worker": 0, "scheduler": 0}
        self.address = f"tcp://127.0.0.1:{PORT}"

    def _start(self, name: str) -> None:
        here = [sys.executable, "-m", "dask"]
        command = {
            "scheduler": [*here, "scheduler", "--host", "127.0.0.1", "--port", str(PORT), "--no-dashboard"],
            "worker": [*here, "worker", self.address, "--nworkers", "2", "--nthreads", "1", "--no-dashboard"],
        }[name]
        settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(MAX_DEATHS), "NPROC": "1"}
        command += ["--death-timeout", "10"] if name == "worker" else []
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)

    def run(self, every: float, stop: threading.Event) -> None:
        """Kill a worker process every so many seconds, the scheduler once; start what is not running."""
        import psutil

        for name in ("scheduler", "worker"):
            self._start(name)
        last = time.monotonic()
        while not stop.wait(0.5):
            if time.monotonic() - last > every:
                last = time.monotonic()
                if self.kills["worker"] == 1 and not self.kills["scheduler"]:
                    self.processes["scheduler"].kill()
                    self.kills["scheduler"] += 1
                else:
                    with contextlib.suppress(psutil.Error, ZeroDivisionError):
                        nannied = psutil.Process(self.processes["worker"].pid).children(recursive=True)
                        busy = [each for each in nannied if each.memory_info().rss > 150e6]  # not a helper process
                        busy[self.kills["worker"] % len(busy)].kill()  # one, then the other
                        self.kills["worker"] += 1
            for name, process in list(self.processes.items()):
                if process.poll() is not None:
                    self._start(name)
        for process in self.processes.values():
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()


def survive(folder: Path, cells: int, of_file: int, every: float, **lengths: int) -> dict[str, Any]:
    """How many kills a fleet fit survived with the result of an undisturbed one, bit for bit; none if it differs.

    A partition whose worker was killed too often is given up, and the command is called again (`calls`).
    """
    source, quiet, disturbed = (folder / f"{name}-{cells}" for name in ("faulty", "out-quiet", "out-disturbed"))
    write_once(source, cells, of_file=of_file, **lengths)
    for out in (quiet, disturbed):
        shutil.rmtree(out, ignore_errors=True)
    options: dict[str, Any] = {"parameters": SCALARS, **COLUMNS}
    fit_fleet(cell_twin(), source, quiet, **options)
    cluster, stop = Cluster(folder), threading.Event()
    thread = threading.Thread(target=cluster.run, args=(every, stop))
    thread.start()
    done, calls = None, 0
    try:
        while calls < MAX_CALLS and (done is None or done.failures):
            done = fit_fleet(cell_twin(), source, disturbed, **options, scheduler=cluster.address)
            calls += 1
    finally:
        stop.set()
        thread.join()
    names = sorted(path.name for path in (quiet / "fit").iterdir())
    same = names == sorted(path.name for path in (disturbed / "fit").iterdir()) and all(
        (quiet / "fit" / name).read_bytes() == (disturbed / "fit" / name).read_bytes() for name in names
    )
    kills = sum(cluster.kills.values())
    return {"cells": cells, **cluster.kills, "calls": calls, "same": same, "survived": kills if same else 0}
