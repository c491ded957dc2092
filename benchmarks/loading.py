"""Growth of the time to load a data set with its number of runs (`python -m benchmarks.loading`).

One CSV file with runs of two rows each, of 1,000 to 100,000 runs: read with `load_dataset`, then used as `fit` uses it.
Times are processor seconds, the shortest of several rounds. Of interest is how they grow: the factor for ten times as
many runs, and the exponent of a power law through all sizes, which is 1 for linear growth. Prints a table and writes
`loading.json`.
"""

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import twinfold as tw
from benchmarks.surroundings import write_record

SIZES = (1_000, 10_000, 100_000)
MAX_EXPONENT = 1.2


def write_table(path: Path, runs: int) -> None:
    """A CSV file with `runs` runs of two rows, with one input and one output."""
    with path.open("w") as file:
        file.write("t,run,u,y\n")
        for index in range(runs):
            file.write(f"0,run {index},1.5,{index}.25\n1,run {index},1.5,{index}.5\n")


def load(path: Path) -> tw.Dataset:
    return tw.load_dataset(path, run="run", inputs=["u"], outputs=["y"])


def timed(fn: Callable[[], Any], rounds: int) -> float:
    """The shortest processor time of a call."""
    best = np.inf
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        fn()
        best = min(best, time.process_time() - began)
    return float(best)


def measure(runs: int, rounds: int) -> dict[str, float]:
    """Seconds of each step with a data set of that many runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        write_table(path, runs)
        data = load(path)
        return {
            "load": timed(lambda: load(path), rounds),
            "batch": timed(data.batch, rounds),
            "windows": timed(lambda: data.windows(2), rounds),
            "split": timed(data.split, rounds),
            "fingerprint": timed(data.fingerprint, rounds),
        }


def growth(seconds: Sequence[float], sizes: Sequence[int]) -> dict[str, float]:
    """The exponent of a power law through the times, and their ratios to the time of the smallest size."""
    exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    ratios = {f"ratio_{size}": round(each / seconds[0], 1) for size, each in zip(sizes, seconds, strict=True)}
    return {"exponent": round(exponent, 2), **ratios}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of runs")
    parser.add_argument("--rounds", type=int, default=3, help="timed calls of each step")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "loading.json")
    options = parser.parse_args()
    measure(10, 1)  # imports and compilation
    seconds = {size: measure(size, options.rounds) for size in options.sizes}
    steps = list(next(iter(seconds.values())))
    found = {step: growth([seconds[size][step] for size in options.sizes], options.sizes) for step in steps}
    table = Table("step", *(f"{size} runs, s" for size in options.sizes), "exponent", "")
    for step, row in found.items():
        verdict = "linear" if row["exponent"] <= MAX_EXPONENT else "MORE THAN LINEAR"
        table.add_row(step, *(f"{seconds[size][step]:.3g}" for size in options.sizes), f"{row['exponent']}", verdict)
    Console().print(table)
    measured = {str(size): {step: round(each, 4) for step, each in row.items()} for size, row in seconds.items()}
    write_record(options.out, {**found, "seconds": measured})


if __name__ == "__main__":
    main()
