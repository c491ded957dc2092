"""The fleet estimate on the devices of this machine, from arrays in memory: needs JAX and the library, no file.

python -m twinfold_studies.fleet.device --assets 32768 --out runs/bench/fleet-device.json

An accelerator takes almost as long for one cell as for thousands, so assets per second grow with their number until it
is full. The programs of all buckets are compiled at the same time.
"""

import argparse
import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from twinfold import enable_compilation_cache, enable_x64
from twinfold.fleet import AssetEstimates, estimate_assets
from twinfold_studies.fleet.cells import LONGEST, SCALARS, SHORTEST, Cells, cell_twin, simulate_cells

RATIO = 1.5  # of the lengths of neighbouring buckets: a sixth of the samples is padding; a program costs by its length
AT_A_TIME = 8192  # cells simulated together


def bucket_edges(shortest: int, longest: int) -> list[int]:
    """The lengths of the buckets, from the longest down, so that the shortest is not almost empty."""
    edges = [longest]
    while edges[-1] / RATIO >= shortest:
        edges.append(int(edges[-1] / RATIO))
    return edges[::-1]


def measure(
    assets: int, lanes: int, *, seed: int = 0, shortest: int = SHORTEST, longest: int = LONGEST
) -> dict[str, Any]:
    """Estimate six scalars of so many cells, bucket by bucket; all programs are compiled before the clock starts."""
    cells = simulate_cells(assets, seed=seed, shortest=shortest, longest=longest, chunk=AT_A_TIME)
    edges = bucket_edges(shortest, longest)
    buckets = [np.flatnonzero(np.searchsorted(edges, cells.lengths) == index) for index in range(len(edges))]
    parts = [(edge, members) for edge, members in zip(edges, buckets, strict=True) if len(members)]

    def estimate(part: tuple[int, np.ndarray], **options: Any) -> AssetEstimates:
        return _estimate(cells, *part, lanes, **options)

    began = time.perf_counter()
    with ThreadPoolExecutor(len(parts)) as threads:
        list(threads.map(lambda part: estimate(part, max_steps=1), parts))  # the same programs, ended early
    compiled, rows, ratios, reasons = time.perf_counter() - began, [], [], Counter()
    for edge, members in parts:
        began = time.perf_counter()
        found = estimate((edge, members))
        seconds = time.perf_counter() - began
        usable = found.code == 0
        ratios.append(((found.values - cells.scalars[members]) / found.errors)[usable])
        reasons.update(reason for reason in found.reasons if reason)
        steps = {"evaluations": float(found.steps.mean()), "most_evaluations": int(found.steps.max())}
        rows.append(
            {"samples": edge, "assets": len(members), "failed": int((~usable).sum()), "seconds": seconds} | steps
        )
        print(rows[-1], flush=True)
    seconds, devices = sum(row["seconds"] for row in rows), jax.devices()
    return {
        "device": f"{len(devices)} x {devices[0].device_kind}",
        "jax": jax.__version__,
        "dtype": str(np.asarray(jax.numpy.zeros(())).dtype),
        "assets": assets,
        "lanes": lanes,
        "seconds": seconds,
        "compile_seconds": compiled,
        "assets_per_second": assets / seconds,
        "failed": sum(reasons.values()),
        "reasons": dict(reasons),
        "within_two_errors": float(
            np.mean(np.abs(np.concatenate(ratios)) < 2)
        ),  # 0.95 if the standard errors are right
        "buckets": rows,
    }


def _estimate(cells: Cells, edge: int, members: np.ndarray, lanes: int, **options: Any) -> AssetEstimates:
    arrays = (each[members, :edge] for each in (cells.ts, cells.y, cells.w))
    spread = jax.devices() if len(jax.devices()) > 1 else None
    given = {"parameters": SCALARS, "lanes": min(lanes, len(members)), "devices": spread}
    return estimate_assets(cell_twin(), *arrays, **given, **options)


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--assets", type=int, default=32_768)
    parser.add_argument("--lanes", type=int, default=16_384, help="assets computed at a time")
    parser.add_argument("--shortest", type=int, default=SHORTEST, help="samples of an asset")
    parser.add_argument("--longest", type=int, default=LONGEST)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if not given.float32:
        enable_x64()
    enable_compilation_cache()
    found = measure(given.assets, given.lanes, shortest=given.shortest, longest=given.longest)
    print(json.dumps(found, indent=2))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
