"""Compute the protocols `temperature`, `conditions` and `life` in several processes that share a store.

    python -m twinfold_studies.battery.together --workers 16 --seeds 25 --out runs/bench
    python -m twinfold_studies.battery.together --protocols life --workers 6 --out runs/bench

Each result is computed by one process; fits continue from their checkpoints, so the same command resumes all of them.
`twinfold bench battery --protocol ...` with the same protocols, seeds and folder then reads them and writes the tables.
On a machine with a GPU the fits run there; set XLA_PYTHON_CLIENT_PREALLOCATE=false for several processes.
"""

import argparse
import multiprocessing
import time
from pathlib import Path

from twinfold_studies.bench.cache import ELSEWHERE

MODELS = ("physics_fitted", "hrpinn")
PROTOCOLS = ("temperature", "conditions")


def work(
    out: Path,
    seeds: int,
    deadline: float | None,
    models: tuple[str, ...] = MODELS,
    protocols: tuple[str, ...] = PROTOCOLS,
) -> None:
    """Compute what no other process computes. **Raises:** `SystemExit` if a result failed, or time was up."""
    from twinfold import enable_compilation_cache, enable_x64
    from twinfold_studies.battery.calibrate import calibrate
    from twinfold_studies.battery.cells import open_cells
    from twinfold_studies.battery.conditions import conditions
    from twinfold_studies.battery.life import life
    from twinfold_studies.battery.models import HEATED
    from twinfold_studies.bench.store import Store

    enable_x64()
    enable_compilation_cache()
    store, cells, start = Store(out, deadline), open_cells(), time.monotonic()

    def log(line: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {line}", flush=True)

    if "temperature" in protocols:
        calibrate(cells, store, models, seeds, log, HEATED)
    if "conditions" in protocols:
        conditions(cells, store, models, seeds, log)
    if "life" in protocols:
        life(cells, store, log)
    failed = [(name, reason) for name, reason in store.skipped if reason != ELSEWHERE]
    for name, reason in failed:
        log(f"{name}: {reason}")
    raise SystemExit(bool(failed))


def main() -> None:
    parser = argparse.ArgumentParser(description="Battery protocols in several processes.")
    parser.add_argument("--protocols", default=",".join(PROTOCOLS), help="names, separated by commas; also life")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of the results")
    parser.add_argument("--minutes", type=float, help="start no further result after this time")
    options = parser.parse_args()
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=work, args=(options.out, options.seeds, deadline, MODELS, tuple(options.protocols.split(",")))
        )
        for _ in range(options.workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    raise SystemExit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
