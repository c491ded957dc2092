"""The fleet estimate on the devices of this machine, from arrays in memory: needs JAX and the library, no file.

python -m twinfold_studies.fleet.device --assets 20000 --out runs/bench/fleet-device.json
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from twinfold import enable_compilation_cache, enable_x64
from twinfold.fleet import estimate_assets
from twinfold_studies.fleet.cells import LONGEST, SCALARS, SHORTEST, cell_twin, simulate_cells

RATIO = 1.5  # of the lengths of neighbouring buckets: a sixth of the samples is padding; a program costs by its length


def measure(assets: int, lanes: int, *, seed: int = 0) -> dict[str, Any]:
    """Estimate six scalars of so many cells, bucket by bucket; each program is compiled before the clock starts."""
    cells, twin, devices = simulate_cells(assets, seed=seed), cell_twin(), jax.devices()
    edges = [SHORTEST]
    while edges[-1] < LONGEST:
        edges.append(min(int(RATIO * edges[-1]), LONGEST))
    buckets = [np.flatnonzero(np.searchsorted(edges, cells.lengths) == index) for index in range(len(edges))]
    seconds = compiling = 0.0
    ratios, failed = [], 0
    for edge, members in zip(edges, buckets, strict=True):
        if not len(members):
            continue
        batch = (cells.ts[members, :edge], cells.y[members, :edge], cells.w[members, :edge])
        options = {"parameters": SCALARS, "lanes": min(lanes, len(members))}
        spread = devices if len(devices) > 1 else None
        began = time.perf_counter()
        estimate_assets(twin, *batch, **options, devices=spread, max_steps=1)  # the same program, ended early
        compiled = time.perf_counter()
        found = estimate_assets(twin, *batch, **options, devices=spread)
        ended = time.perf_counter()
        seconds, compiling = seconds + ended - compiled, compiling + compiled - began
        failed += sum(bool(reason) for reason in found.reasons)
        ratios.append((found.values - cells.scalars[members]) / found.errors)
        print(f"{len(members)} cells of at most {edge} samples: {ended - compiled:.2f} s", flush=True)
    within = np.abs(np.concatenate(ratios)) < 2
    return {
        "device": f"{len(devices)} x {devices[0].device_kind}",
        "dtype": str(np.asarray(jax.numpy.zeros(())).dtype),
        "assets": assets,
        "lanes": lanes,
        "seconds": seconds,
        "compile_seconds": compiling,
        "assets_per_second": assets / seconds,
        "failed": failed,
        "within_two_errors": float(within.mean()),  # 0.95 if the standard errors are right
    }


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--assets", type=int, default=20_000)
    parser.add_argument("--lanes", type=int, default=4096, help="assets computed at a time")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if not given.float32:
        enable_x64()
    enable_compilation_cache()
    found = measure(given.assets, given.lanes)
    print(json.dumps(found, indent=2))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
