"""What a fleet of ten million assets costs, from what was measured on a small one: arithmetic, not a measurement.

python -m twinfold_studies.fleet.costs results/fleet/costs.csv docs/fleet.md

writes the table into a page, between two markers.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

ASSETS = 10_000_000
OF_PARTITION = 500
CORES = 2  # of the measurements
BEGIN, END = "<!-- results/fleet/costs.csv -->", "<!-- end -->"


def costs(fleet: dict[str, Any], tiny: dict[str, Any], device: dict[str, Any] | None) -> list[dict[str, str]]:
    """The rows of the table. **Arguments:** the largest run of the fleet, that of tiny assets, that of a device."""
    per_core = fleet["assets_per_second"] / CORES
    partitions = ASSETS / OF_PARTITION
    rows = [
        (
            "first fit, or new samples of every asset",
            ASSETS / per_core / 3600,
            "core hours",
            f"{per_core:.1f} a second and core",
        ),
        (
            "samples read",
            ASSETS * fleet["input_mb"] / fleet["cells"] / 1e3,
            "GB",
            _each(fleet["input_mb"], fleet["cells"]),
        ),
        (
            "results written",
            ASSETS * fleet["results_mb"] / fleet["cells"] / 1e3,
            "GB",
            f"{_each(fleet['results_mb'], fleet['cells'])}, {partitions:,.0f} files",
        ),
        (
            "through the scheduler",
            partitions * fleet["scheduler_kb_per_partition"] / 1e6,
            "GB",
            f"{fleet['scheduler_kb_per_partition']:.0f} kB a partition",
        ),
        ("memory of any process", fleet["peak_mb"] / 1e3, "GB", f"the most seen with {fleet['cells']:,} assets"),
        (
            "pages of the report",
            ASSETS * tiny["report_mb"] / tiny["assets"] / 1e3,
            "GB",
            _each(tiny["report_mb"], tiny["assets"]),
        ),
        (
            "list that a browser opens",
            ASSETS * tiny["list_mb"] / tiny["assets"] / 1e3,
            "GB",
            _each(tiny["list_mb"], tiny["assets"]),
        ),
    ]
    if device is not None:
        rate = device["assets_per_second"]
        rows.insert(
            1,
            (
                "the same, from arrays in memory",
                ASSETS / rate / 3600,
                f"hours of {device['device']}",
                f"{rate:.0f} a second",
            ),
        )
    return [
        {"what": what, "cost": f"{_short(number)} {unit}", "measured": source} for what, number, unit, source in rows
    ]


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _each(megabytes: float, assets: float) -> str:
    return f"{megabytes * 1e6 / assets:,.0f} bytes an asset"


def in_page(text: str, rows: list[dict[str, str]]) -> str:
    """The page with the table between its markers."""
    lines = ["| for 10^7 assets | cost | measured |", "| --- | --- | --- |"]
    lines += [f"| {row['what']} | {row['cost']} | {row['measured']} |" for row in rows]
    before, _, rest = text.partition(BEGIN)
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", END]) + rest.partition(END)[2]


def main() -> None:
    """Write the table of a file into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    with given.table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    given.page.write_text(in_page(given.page.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()
