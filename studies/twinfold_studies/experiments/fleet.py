"""Past one machine: what two workers gain, what a fleet costs in time and memory, and which faults it survives."""

import contextlib
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from twinfold_studies.bench.cache import Skipped, cached, record_skips, stored
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.fingerprint import LIBRARY, STUDIES, fingerprint_of
from twinfold_studies.bench.store import Store
from twinfold_studies.fleet import faults, poison, speed, workers
from twinfold_studies.fleet.costs import ASSETS, costs

PARTS = ("sweep", "seeds", "cells", "difference", "tiny", "faults", "poisoned")
SIZES, QUICK_SIZES = (1_000, 5_500, 30_000), (8, 32)
FAULTS = {"shortest": 50, "longest": 97}  # three programs: a worker that was killed needs them again
QUICK = {"shortest": 50, "longest": 58}  # one program
DEVICE = "fleet-device.json"  # written by `python -m twinfold_studies.fleet.device`

Parts = dict[str, Any]


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Measure the parts that are asked for and not stored; report these, and others as far as they are stored."""
    code = fingerprint_of(*(LIBRARY / room for room in ("fleet", "parallel", "monitor")), STUDIES / "fleet")
    found: Parts = {}
    for name, compute in _computations(store.folder / "fleet-data", options.quick).items():
        wanted = name.partition(" ")[0] in (options.sets or PARTS)
        with record_skips(store) if wanted else contextlib.suppress(Skipped):
            settings = [options.quick, SIZES, FAULTS, code]
            key = f"fleet-{name.replace(' ', '-')}"
            if wanted:
                log(f"fleet: {name}")
                found[name] = cached(store, key, settings, compute)
            elif (before := stored(store, key, settings)) is not None:
                found[name] = before
    if (path := store.folder / DEVICE).exists():
        found["device"] = json.loads(path.read_text())
    return Findings(_sentences(found), _tables(found), (), _summary(found))


def _computations(folder: Path, quick: bool) -> dict[str, Callable[[], Any]]:
    """What computes each part, in this order: the first run of the cells compiles the programs of the others."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes, lengths = (QUICK_SIZES, QUICK) if quick else (SIZES, {})
    seeds = (4, 40, 1) if quick else (25, 40, 3)
    found: dict[str, Callable[[], Any]] = {
        "sweep": partial(workers.sweep_efficiency, *((6, 100) if quick else (16, 600))),
        "seeds 2x64": partial(workers.seeds_ratio, "2x64", *seeds),
        "seeds 2x32": partial(workers.seeds_ratio, "2x32", seeds[0], 2 * seeds[1], seeds[2]),
        "cells first": partial(speed.fleet_run, folder, sizes[0], 2, **lengths),
    }
    for cells in sizes:
        found[f"cells {cells}"] = partial(speed.fleet_run, folder, cells, 2, **lengths)
    return found | {
        "difference": partial(speed.parameter_difference, folder, sizes[0], **lengths),
        "tiny": partial(speed.read_only, folder, 200 if quick else 100_000, 2),
        "faults": partial(faults.survive, folder, *((64, 4, 5.0) if quick else (2_000, 50, 10.0)), **FAULTS),
        "poisoned": partial(poison.poisoned, folder, *((8, 4) if quick else (100, 25)), **QUICK),
    }


def _timed(found: Parts) -> list[dict[str, Any]]:
    """The runs of the fleet with programs from the cache, the smallest first."""
    runs = [run for name, run in found.items() if name.startswith("cells ") and name != "cells first"]
    return sorted(runs, key=lambda run: run["cells"])


def _growth(runs: list[dict[str, Any]]) -> list[float]:
    """The exponents p of seconds ~ assets^p, from each size to the next."""
    seconds = [run["fit_seconds"] + run["monitor_seconds"] for run in runs]
    return [
        math.log(after / before) / math.log(large["cells"] / small["cells"])
        for before, after, small, large in zip(seconds, seconds[1:], runs, runs[1:], strict=False)
    ]


def _summary(found: Parts) -> dict[str, float]:
    summary, runs = {}, _timed(found)
    if "sweep" in found:
        summary["efficiency"] = found["sweep"]["efficiency"]
    if "seeds 2x64" in found:
        summary["seeds_ratio"] = found["seeds 2x64"]["seeds_ratio"]
    if "seeds 2x32" in found:
        summary["seeds_ratio_default"] = found["seeds 2x32"]["seeds_ratio"]
    if runs:
        summary["assets_per_second"] = runs[-1]["assets_per_second"]
        summary["peak_mb"] = max(run["peak_mb"] for run in runs)
        summary["padding"] = max(run["padding"] for run in runs)
        summary["input_bytes_per_asset"] = runs[-1]["input_mb"] * 1e6 / runs[-1]["cells"]
        summary["results_bytes_per_asset"] = runs[-1]["results_mb"] * 1e6 / runs[-1]["cells"]
    if len(runs) > 1:
        summary["growth_exponent"] = max(_growth(runs))
    if "tiny" in found:
        tiny = found["tiny"]
        summary |= {f"tiny_{name}": tiny[name] for name in ("assets", "seconds", "peak_mb", "report_mb", "padding")}
    if "faults" in found:
        summary["faults_survived"] = found["faults"]["survived"]
    if "difference" in found:
        summary["parameter_difference"] = found["difference"]
    if "poisoned" in found:
        summary["poisoned_named"] = found["poisoned"]["named"] if found["poisoned"]["rest_is_the_same"] else 0
    if "device" in found:
        summary["assets_per_second_device"] = found["device"]["assets_per_second"]
    return summary


def _sentences(found: Parts) -> list[str]:
    summary, runs, lines = _summary(found), _timed(found), []
    if "efficiency" in summary:
        lines.append(f"Two workers run a sweep of equal fits with an efficiency of {summary['efficiency']:.2f}.")
    for name in ("seeds 2x64", "seeds 2x32"):
        if name in found:
            lines.append(
                f"{found[name]['seeds']} seeds of a network of {found[name]['network']} over two workers take "
                f"{found[name]['seeds_ratio']:.2f} of as many single ones (float64, compilation apart)."
            )
    if runs:
        lines.append(
            f"SYNTHETIC cells of 50 to 500 samples, six scalars each: {summary['assets_per_second']:.1f} of "
            f"{runs[-1]['cells']:,} assets per second read, estimated and judged by two workers; no process takes more "
            f"than {summary['peak_mb']:.0f} MB."
        )
    if len(runs) > 1:
        exponents = ", ".join(f"{each:.2f}" for each in _growth(runs))
        sizes = " to ".join(f"{run['cells']:,}" for run in runs)
        lines.append(f"From {sizes} assets the time grows by the powers {exponents}.")
    if "difference" in found:
        bits = "bit for bit the same" if found["difference"] == 0 else "NOT the same"
        lines.append(f"One process and two workers give {bits} numbers.")
    if "faults" in found:
        killed = found["faults"]
        after = "is the same, bit for bit" if killed["same"] else "DIFFERS"
        lines.append(
            f"{killed['worker']} workers and {killed['scheduler']} schedulers were killed in a fit of "
            f"{killed['cells']:,} cells: the result {after}, after {killed['calls']} calls of the command."
        )
    if "poisoned" in found:
        bad = found["poisoned"]
        rest = "the rest is the same, bit for bit" if bad["rest_is_the_same"] else "the rest DIFFERS"
        lines.append(f"{bad['named']} of 3 broken partitions are reported by name; {rest}.")
    if "tiny" in found:
        tiny = found["tiny"]
        lines.append(
            f"{tiny['assets']:,} tiny assets are read, bucketed and reported in {tiny['seconds']:.0f} s with "
            f"{tiny['peak_mb']:.0f} MB; the report has {tiny['report_mb']:.1f} MB."
        )
    if "device" in found:
        device = found["device"]
        lines.append(
            f"From arrays in memory on {device['device']} ({device['dtype']}): {device['assets_per_second']:.0f} "
            f"assets per second; {device['failed']} of {device['assets']:,} have no estimate; "
            f"{device['within_two_errors']:.1%} of the scalars are within two standard errors."
        )
    return lines


def _tables(found: Parts) -> list[Table]:
    notes = {"cells first": "first run: compiles"}
    rows = [run | {"note": notes.get(name, "")} for name, run in found.items() if name.startswith("cells ")]
    seeds = [found[name] for name in ("seeds 2x64", "seeds 2x32") if name in found]
    tables = [
        Table("fleet", "A fleet of cells", rows, caption="SYNTHETIC cells, two workers; seconds of wall-clock time."),
        Table("tiny", "Tiny assets, read and reported only", [found["tiny"]] if "tiny" in found else []),
        Table("sweep", "Equal fits per second: one worker, two workers", [found["sweep"]] if "sweep" in found else []),
        Table("seeds", "Many seeds over two workers", seeds, caption="Seconds of an epoch; all cores for one seed."),
        Table("faults", "Workers and schedulers killed", [found["faults"]] if "faults" in found else []),
        Table("poisoned", "Broken partitions", [found["poisoned"]] if "poisoned" in found else []),
    ]
    if _timed(found) and "tiny" in found:
        rows = costs(_timed(found)[-1], found["tiny"], found.get("device"))
        caption = f"Arithmetic with the measured numbers of this page: {ASSETS:,} assets."
        tables.append(Table("costs", "What ten million assets cost", rows, caption=caption))
    if "device" in found:
        device = {name: value for name, value in found["device"].items() if name not in ("buckets", "reasons")}
        tables += [
            Table("device", "Arrays in memory", [device]),
            Table("device_buckets", "Arrays in memory, by length", found["device"]["buckets"]),
        ]
    return [table for table in tables if table.rows]


FLEET = Experiment(
    name="fleet",
    title="Past one machine",
    about="Workers, fleets and faults: what two workers gain, what a fleet of cells costs, what it survives. "
    f"`twinfold bench fleet PART ...` for some of {', '.join(PARTS)}.",
    full=Options(),
    quick=Options(quick=True),
    requests=lambda options: [],
    analyse=analyse,
    models=(),
    protocols=(),
    sets=PARTS,
    timed=True,
)
