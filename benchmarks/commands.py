"""How long a user waits for each command: `python -m benchmarks.commands`, the last part of `make bench`.

Runs the README's commands from `new` to `export` twice, each time in a new project and in processes of their own. The
first time nothing is compiled yet; the second time compiled programs are read from the cache.

- `command_seconds`: wall and processor seconds of each command, first and second time;
- `compiled_programs`: programs that the first time has compiled, counted in the cache;
- `first_epoch_seconds`: from the start of the process to the end of the first epoch, of a new fit and of one that
  resumes after an interruption, both with compiled programs.

Adds its figures to `latest.json`.
"""

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
COMMANDS = {
    "check": ("check",),
    "fit": ("fit", "--quiet"),
    "evaluate": ("evaluate",),
    "report": ("report",),
    "export": ("export", "--to", "fmu"),
}
# Seconds of the second time; half of the programs that were compiled before the first of these measurements (266).
TARGETS = {"evaluate": 3.0, "report": 6.0, "first_epoch_resumed": 5.0, "compiled_programs": 133}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commands", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of the second time, the best counts")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "latest.json")
    options = parser.parse_args()
    console = Console(width=130)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.rounds, lambda line: console.print(line, style="dim", highlight=False))
    show(console, figures)
    before = json.loads(options.out.read_text()) if options.out.exists() else {}
    options.out.write_text(json.dumps(before | figures, indent=2) + "\n")
    console.print(f"Written to {options.out}.", highlight=False)


def measure(folder: Path, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """All figures, from an empty cache in `folder`."""
    cache = folder / "cache"
    environment = os.environ | {"TWINFOLD_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would be used instead

    def all_commands(name: str) -> dict[str, dict[str, float]]:
        seconds = {"new": run(["-m", "twinfold", "new", name], folder, environment)}
        for command, arguments in COMMANDS.items():
            seconds[command] = run(["-m", "twinfold", *arguments], folder / name, environment)
            say(f"{name} time, {command}: {seconds[command]}")
        return seconds

    first = all_commands("first")
    programs = sum(entry.name.endswith("-cache") for entry in cache.rglob("*"))
    second, project = all_commands("second"), folder / "second"
    # What only reads is repeated: the shortest time is the one that others on the machine disturbed least.
    for command in ("check", "evaluate", "report", "export"):
        again = [run(["-m", "twinfold", *COMMANDS[command]], project, environment) for _ in range(rounds - 1)]
        second[command] = min([second[command], *again], key=lambda each: each["wall"])
    epochs = {"new": first_epoch(project, environment), "resumed": first_epoch(project, environment)}
    return {
        "command_seconds": {"first": first, "second": second},
        "compiled_programs": programs,
        "first_epoch_seconds": epochs,
        "command_targets": {key: f"<= {limit:g}" for key, limit in TARGETS.items()},
        "commands_date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def run(arguments: list[str], folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Wall and processor seconds of a Python process in `folder`; an error where it fails."""
    spent, began = _spent(), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    wall = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return {"wall": round(wall, 2), "cpu": round(_spent() - spent, 2)}


def _spent() -> float:
    """Processor seconds of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def first_epoch(project: Path, environment: dict[str, str]) -> dict[str, float]:
    """Seconds to the end of the first epoch of a fit, which is interrupted there and resumed by the next call."""
    spent, began = _spent(), time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.first_epoch"]
    with subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        wall = time.perf_counter() - began
        process.stdout.read()
    if process.returncode or not line:
        raise SystemExit(f"the fit in {project} ended with {process.returncode}.")
    return {"wall": round(wall, 2), "cpu": round(_spent() - spent, 2)}


def show(console: Console, figures: dict[str, Any]) -> None:
    """The seconds of each command, and what has a target."""
    table = Table(title="Seconds of each command (processor seconds)", title_justify="left")
    for column in ("command", "first time", "second time", "target"):
        table.add_column(column, justify="left" if column == "command" else "right")
    seconds, targets = figures["command_seconds"], figures["command_targets"]
    for command, first in seconds["first"].items():
        second = seconds["second"][command]
        cells = (f"{each['wall']:.1f} ({each['cpu']:.1f})" for each in (first, second))
        table.add_row(command, *cells, targets.get(command, ""))
    resumed = figures["first_epoch_seconds"]["resumed"]
    cell = f"{resumed['wall']:.1f} ({resumed['cpu']:.1f})"
    table.add_row("first epoch, resumed", "-", cell, targets["first_epoch_resumed"])
    console.print(table)
    console.print(f"Compiled programs: {figures['compiled_programs']} ({targets['compiled_programs']})")


if __name__ == "__main__":
    main()
