"""The time of the commands that a new user runs on a record, each in a process of its own, nothing compiled before."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from twinfold_studies.first.project import Project

COMMANDS = ("check", "fit", "evaluate", "report")


def time_commands(project: Project) -> list[dict[str, Any]]:
    """A row for each command: `wall_s` on the clock, `cpu_s` of machine time, `load` of the machine when it began."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        environment = kept | {"TWINFOLD_CACHE": str(Path(place) / "cache")}
        rows.append(_time("new", ["other", "--template", "motor"], Path(place), environment))
        folder = Path(place) / project.name
        project.write(folder)
        rows += [_time(command, [], folder, environment) for command in COMMANDS]
    return rows


def _time(command: str, arguments: list[str], folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    load, before, began = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run = [sys.executable, "-m", "twinfold", command, *arguments]
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"twinfold {command}: {done.stderr.strip().splitlines()[-1:]}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": command, "wall_s": wall, "cpu_s": spent, "load": load}
