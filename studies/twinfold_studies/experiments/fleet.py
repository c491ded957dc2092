"""Past one machine: what two workers gain, what a fleet costs in time and memory, and which faults it survives."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.fleet import faults, speed

SIZES = (1_000, 5_000, 30_000)
QUICK_SIZES = (8, 32)
QUICK_LENGTHS = {"shortest": 50, "longest": 58}  # one bucket: the programs of all buckets take minutes to compile
DEVICE = "fleet-device.json"  # written by `python -m twinfold_studies.fleet.device`


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Measure everything that is not stored."""
    quick, folder = options.quick, store.folder / "fleet-data"
    folder.mkdir(parents=True, exist_ok=True)
    sizes, lengths = (QUICK_SIZES, QUICK_LENGTHS) if quick else (SIZES, {})

    def measured(name: str, compute: Callable[[], Any], *settings: Any) -> Any:
        log(f"fleet: {name}")
        return cached(store, f"fleet-{name}", [quick, sizes, lengths, *settings], compute)

    sweep = measured("sweep", lambda: speed.sweep_efficiency(*((6, 20) if quick else (20, 300))))
    seeds = measured("seeds", lambda: speed.seeds_ratio(*((4, 200, 1) if quick else (25, 300, 5))))
    runs = [
        measured(f"cells-{cells}", lambda cells=cells: speed.fleet_run(folder, cells, 2, **lengths)) for cells in sizes
    ]
    again = measured("again", lambda: speed.fleet_run(folder, sizes[0], 2, **lengths))  # all programs are compiled
    difference = measured("difference", lambda: speed.parameter_difference(folder, sizes[0], **lengths))
    tiny = measured("tiny", lambda: speed.read_only(folder, 200 if quick else 100_000, 2))
    killed = measured(
        "faults", lambda: faults.survive(folder, *((32, 4, 20.0) if quick else (5_000, 100, 10.0)), **lengths)
    )
    timed = [again, *runs[1:]]
    growth = np.polyfit(
        np.log([run["cells"] for run in timed]),
        np.log([run["fit_seconds"] + run["monitor_seconds"] for run in timed]),
        1,
    )[0]
    device = json.loads((store.folder / DEVICE).read_text()) if (store.folder / DEVICE).exists() else None
    summary = {
        "efficiency": sweep["efficiency"],
        "seeds_ratio": seeds["seeds_ratio"],
        "assets_per_second": max(run["assets_per_second"] for run in [again, *runs]),
        "growth_exponent": float(growth),
        "faults_survived": killed["survived"],
        "parameter_difference": difference,
        "peak_mb": max(run["peak_mb"] for run in [again, *runs]),
        "padding": max(run["padding"] for run in runs),
        "tiny_assets": tiny["assets"],
        "tiny_seconds": tiny["seconds"],
        "tiny_peak_mb": tiny["peak_mb"],
        "tiny_report_mb": tiny["report_mb"],
    }
    if device is not None:
        summary |= {"assets_per_second_device": device["assets_per_second"]}
    return Findings(_sentences(summary, killed, device), _tables(runs, again, sweep, seeds, tiny, device), (), summary)


def _sentences(summary: dict[str, float], killed: dict[str, Any], device: dict[str, Any] | None) -> list[str]:
    bits = "bit for bit the same" if summary["parameter_difference"] == 0 else "NOT the same"
    after = "is the same, bit for bit" if killed["same"] else "DIFFERS"
    found = [
        f"Two workers run a sweep of equal fits with an efficiency of {summary['efficiency']:.2f}; many seeds of one "
        f"fit over two workers take {summary['seeds_ratio']:.2f} of as many single ones, compilation apart.",
        f"SYNTHETIC cells of 50 to 500 samples, six scalars each: {summary['assets_per_second']:.1f} assets per second "
        f"read, estimated and judged by two workers; the cost grows with the power {summary['growth_exponent']:.2f} of "
        f"their number, and no process takes more than {summary['peak_mb']:.0f} MB.",
        f"One process and two workers give {bits} numbers.",
        f"{killed['worker']} workers and {killed['scheduler']} schedulers were killed in a fit: the result {after}.",
        f"{summary['tiny_assets']:,} tiny assets are read, bucketed and reported in {summary['tiny_seconds']:.0f} s "
        f"with {summary['tiny_peak_mb']:.0f} MB; the report has {summary['tiny_report_mb']:.1f} MB.",
    ]
    if device is not None:
        found.append(
            f"From arrays in memory on {device['device']} ({device['dtype']}): {device['assets_per_second']:.0f} "
            f"assets per second; {device['within_two_errors']:.1%} of the scalars are within two standard errors."
        )
    return found


def _tables(runs: list, again: dict, sweep: dict, seeds: dict, tiny: dict, device: dict | None) -> list[Table]:
    rows = [run | {"note": "first run: compiles"} for run in runs] + [again | {"note": "programs from the cache"}]
    tables = [
        Table("fleet", "A fleet of cells", rows, caption="SYNTHETIC cells, two workers; seconds of wall-clock time."),
        Table("tiny", "Tiny assets, read and reported only", [tiny]),
        Table("workers", "Two workers against one", [sweep | seeds]),
    ]
    return tables if device is None else [*tables, Table("device", "Arrays in memory", [device])]


FLEET = Experiment(
    name="fleet",
    title="Past one machine",
    about="Workers, fleets and faults: what two workers gain, what a fleet of cells costs, what it survives.",
    full=Options(),
    quick=Options(quick=True),
    requests=lambda options: [],
    analyse=analyse,
    models=(),
    protocols=(),
)
