"""What a fleet, a sweep and the seeds of a fit cost with one and two workers, in time and in memory."""

import contextlib
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import twinfold as tw
from twinfold.fleet import fit_fleet, monitor_fleet, read_fleet, report_fleet
from twinfold.parallel import DaskExecutor, map_tasks
from twinfold_studies.fleet.cells import SCALARS, cell_twin, write_cells

COLUMNS: dict[str, Any] = {"outputs": ["voltage"], "inputs": ["current", "celsius"], "asset": "cell"}


@contextlib.contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """The largest resident size in MB of this process and of any of its children, looked at five times a second."""
    import psutil

    found, done = {"this": 0.0, "worker": 0.0}, threading.Event()

    def look() -> None:
        this = psutil.Process()
        while not done.wait(0.2):
            with contextlib.suppress(psutil.Error):
                found["this"] = max(found["this"], this.memory_info().rss / 1e6)
                for child in this.children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        found["worker"] = max(found["worker"], child.memory_info().rss / 1e6)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def one_fit(task: tuple[int, int]) -> tuple[int, float, float]:
    """One of many equal fits: the process that made it, when it began and when it ended."""
    seed, epochs = task
    began = time.time()
    _fit([seed], epochs)
    return os.getpid(), began, time.time()


def sweep_efficiency(fits: int, epochs: int) -> dict[str, float]:
    """The throughput of two workers relative to twice that of one, for equal fits.

    The first fit of each worker, which compiles, is left out.
    """
    rates = {}
    for workers in (1, 2):
        report = map_tasks(one_fit, [(seed, epochs) for seed in range(fits)], executor=DaskExecutor(workers))
        spans = sorted(outcome.value for outcome in report.outcomes if outcome.value is not None)
        warm = [span for index, span in enumerate(spans) if index and spans[index - 1][0] == span[0]]
        rates[workers] = len(warm) / (max(span[2] for span in warm) - min(span[1] for span in warm))
    return {"one": rates[1], "two": rates[2], "efficiency": rates[2] / (2 * rates[1])}


def seeds_ratio(seeds: int, epochs: int, rounds: int) -> dict[str, float]:
    """The time of many seeds over two workers relative to as many times one seed; compilation and start-up cancel.

    Each time is the difference of a long and a short fit; the ratio is the median of some rounds.
    """

    def seconds(names: list[int], workers: int) -> float:
        short, long = (_fit(names, count, workers) for count in (10, 10 + epochs))
        return long - short if long > short else float("nan")  # on a busy machine, or with too few epochs

    ratios = [seconds(list(range(seeds)), 2) / (seeds * seconds([0], 1)) for _ in range(rounds)]
    return {"seeds_ratio": statistics.median(ratios), "smallest": min(ratios), "largest": max(ratios)}


def _fit(seeds: list[int], epochs: int, workers: int = 1) -> float:
    ts = np.linspace(0, 10, 101)
    data = tw.Dataset.from_arrays(ts, [np.stack([np.cos(ts + k), -np.sin(ts + k)], axis=1) for k in range(10)])
    twin = tw.Twin(tw.BlackBox(tw.MLP(width=16, depth=2)))
    return tw.fit(twin, data, seeds=seeds, method=tw.Adam(epochs), workers=workers, progress=False).seconds


def write_once(source: Path, cells: int, **options: int) -> None:
    """A folder of cells, unless it is there; a folder that an interrupted call left is not taken for one."""
    if source.exists():
        return
    unfinished = source.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    write_cells(unfinished, cells, **options)
    unfinished.rename(source)


def fleet_run(folder: Path, cells: int, workers: int, **lengths: int) -> dict[str, float]:
    """A fleet of cells from its folder to its report: seconds, assets per second, peak memory, accuracy."""
    source, out = folder / f"cells-{cells}", folder / f"out-{cells}-{workers}"
    write_once(source, cells, **lengths)
    shutil.rmtree(out, ignore_errors=True)
    with peak_memory() as peak:
        began = time.perf_counter()
        done = fit_fleet(cell_twin(), source, out, parameters=SCALARS, workers=workers, **COLUMNS)
        fitted = time.perf_counter()
        alarms = monitor_fleet(out, workers=workers)
        judged = time.perf_counter()
        report_fleet(out)
        ended = time.perf_counter()
    return {
        "cells": cells,
        "workers": workers,
        "fit_seconds": fitted - began,
        "monitor_seconds": judged - fitted,
        "report_seconds": ended - judged,
        "assets_per_second": cells / (judged - began),
        "failed": done.failed,
        "alarms": alarms.alarms,
        "padding": done.padding,
        "peak_mb": max(peak.values()),
    }


def read_only(folder: Path, assets: int, workers: int) -> dict[str, float]:
    """Tiny assets that are read, bucketed, scored by the twin as it is, and reported."""
    source, out = folder / f"tiny-{assets}", folder / f"out-tiny-{assets}"
    write_once(source, assets, shortest=10, longest=20)
    shutil.rmtree(out, ignore_errors=True)
    with peak_memory() as peak:
        began = time.perf_counter()
        fit_fleet(cell_twin(), source, out, parameters=SCALARS, workers=workers, max_steps=0, **COLUMNS)
        page = report_fleet(out)
        ended = time.perf_counter()
    bytes_of = sum(file.stat().st_size for file in page.parent.rglob("*") if file.is_file())
    return {
        "assets": assets,
        "seconds": ended - began,
        "peak_mb": max(peak.values()),
        "report_mb": bytes_of / 1e6,
        "input_mb": sum(file.stat().st_size for file in source.iterdir()) / 1e6,
        "results_mb": sum(file.stat().st_size for file in (out / "fit").iterdir()) / 1e6,
    }


def parameter_difference(folder: Path, cells: int, **lengths: int) -> float:
    """The largest difference of any number between one process and two workers; NaN counts as a number."""
    for workers in (1, 2):
        fleet_run(folder, cells, workers, **lengths)
    one, two = (read_fleet(folder / f"out-{cells}-{workers}") for workers in (1, 2))
    numbers = [name for name in one.columns if one[name].dtype.kind == "f"]
    a, b = one[numbers].to_numpy(), two[numbers].to_numpy()
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if list(one["asset"]) != list(two["asset"]):
        return float("inf")
    return float(np.max(np.where(same, 0.0, np.abs(np.nan_to_num(a - b, nan=np.inf, posinf=np.inf)))))
