"""What a fleet costs with one and two workers, in time and in memory."""

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.fleet import fit_fleet, monitor_fleet, read_fleet, report_fleet
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
    sent = _sent_bytes()
    with peak_memory() as peak:
        began = time.perf_counter()
        done = fit_fleet(cell_twin(), source, out, parameters=SCALARS, workers=workers, **COLUMNS)
        fitted, sent = time.perf_counter(), _sent_bytes() - sent
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
        "input_mb": _megabytes(source),
        "results_mb": _megabytes(out / "fit"),
        "scheduler_kb_per_partition": sent / done.partitions / 1e3,
    }


def _sent_bytes() -> float:
    """What processes of this machine have sent each other; NaN where the system does not tell."""
    import psutil

    counts = psutil.net_io_counters(pernic=True)
    return float(counts["lo"].bytes_sent) if "lo" in counts else float("nan")


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def read_only(folder: Path, assets: int, workers: int) -> dict[str, float]:
    """Tiny assets that are read, bucketed, scored by the twin as it is, and reported."""
    source, out = folder / f"tiny-{assets}", folder / f"out-tiny-{assets}"
    write_once(source, assets, shortest=10, longest=20)
    shutil.rmtree(out, ignore_errors=True)
    with peak_memory() as peak:
        began = time.perf_counter()
        done = fit_fleet(cell_twin(), source, out, parameters=SCALARS, workers=workers, max_steps=0, **COLUMNS)
        read = time.perf_counter()
        page = report_fleet(out)
        ended = time.perf_counter()
    return {
        "assets": done.assets,
        "failed": done.failed,
        "seconds": ended - began,
        "report_seconds": ended - read,
        "padding": done.padding,
        "peak_mb": max(peak.values()),
        "report_mb": _megabytes(page.parent),
        "list_mb": (page.parent / "data" / "assets.js").stat().st_size / 1e6,
        "input_mb": _megabytes(source),
        "results_mb": _megabytes(out / "fit"),
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
