"""Compute the parts of the experiment `follow` in several processes that share a store.

    python -m twinfold_studies.follow.together --workers 16 --out runs/bench

Each part is computed by one process, and the same command continues with those that are missing. `twinfold bench
follow` with the same folder then reads them and writes the tables. Set JAX_PLATFORMS=cpu on a machine with a GPU: these
are many small problems.
"""

import argparse
import multiprocessing
import time
from pathlib import Path

from twinfold_studies.bench.cache import ELSEWHERE


def work(out: Path, deadline: float | None, quick: bool, only: tuple[str, ...]) -> None:
    """Compute what no other process computes. **Raises:** `SystemExit` if a part failed, or time was up."""
    from twinfold import enable_compilation_cache, enable_x64
    from twinfold_studies.bench.cache import cached, record_skips
    from twinfold_studies.bench.experiment import Options
    from twinfold_studies.bench.store import Store
    from twinfold_studies.follow.pieces import QUICK_SYSTEMS, pieces
    from twinfold_studies.systems import SYSTEMS

    enable_x64()
    enable_compilation_cache()
    store, start = Store(out, deadline), time.monotonic()
    for piece in pieces(Options(QUICK_SYSTEMS if quick else tuple(SYSTEMS), quick=quick)):
        if only and piece.key not in only:
            continue
        begun, known = time.monotonic(), len(store.skipped)
        with record_skips(store):
            cached(store, piece.name, piece.settings, piece.compute)
        took = time.monotonic() - begun
        if len(store.skipped) == known and took > 1:
            print(f"{time.monotonic() - start:6.0f} s  {piece.title}: {took:.0f} s", flush=True)
    failed = [(name, reason) for name, reason in store.skipped if reason != ELSEWHERE]
    for name, reason in failed:
        print(f"{name}: {reason}", flush=True)
    raise SystemExit(bool(failed))


def main() -> None:
    parser = argparse.ArgumentParser(description="The experiment `follow` in several processes.")
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder of the results")
    parser.add_argument("--minutes", type=float, help="start no further part after this time")
    parser.add_argument("--quick", action="store_true", help="small problems, to try it out")
    parser.add_argument(
        "--only", nargs="*", default=(), help="parts to compute: systems, cells, emps, tracking, dynamax"
    )
    options = parser.parse_args()
    deadline = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    context = multiprocessing.get_context("spawn")
    arguments = (options.out, deadline, options.quick, tuple(options.only))
    processes = [context.Process(target=work, args=arguments) for _ in range(options.workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    raise SystemExit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
