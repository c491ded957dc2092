"""The SYNTHETIC cells of the fleet experiment: their scalars are found again, and the standard errors are right."""

import csv
from pathlib import Path

import numpy as np
import pytest
from twinfold_studies.experiments.fleet import _summary
from twinfold_studies.fleet.cells import SCALARS, cell_twin, simulate_cells, write_cells
from twinfold_studies.fleet.costs import BEGIN, END, costs, in_page
from twinfold_studies.fleet.device import bucket_edges, measure
from twinfold_studies.fleet.speed import peak_memory

from twinfold.fleet import estimate_assets


@pytest.mark.slow
def test_scalars_are_found_within_their_standard_errors(tmp_path):
    cells = simulate_cells(32, shortest=180, longest=200)
    assert np.isnan(cells.y[0, cells.lengths[0] :]).all()
    assert 3.0 < np.nanmin(cells.y) < np.nanmax(cells.y) < 4.5
    found = estimate_assets(cell_twin(), cells.ts, cells.y, cells.w, parameters=SCALARS)
    usable = np.array([not reason for reason in found.reasons])
    assert usable.all()
    ratio = ((found.values - cells.scalars) / found.errors)[usable]
    assert 0.88 < np.mean(np.abs(ratio) < 2) < 0.99  # 0.95 of 192
    write_cells(tmp_path / "cells", 3, shortest=180, longest=200)
    assert len(list((tmp_path / "cells").iterdir())) == 1


def test_peak_memory_is_that_of_what_was_allocated():
    import time

    with peak_memory() as peak:
        block = np.ones(20_000_000)
        time.sleep(0.6)
    assert peak["this"] > block.nbytes / 1e6


def test_the_buckets_of_a_device_hold_all_cells_with_little_padding():
    edges, lengths = bucket_edges(50, 500), np.arange(50, 501)
    held = np.array(edges)[np.searchsorted(edges, lengths)]
    assert (held >= lengths).all()
    assert 1 - lengths.sum() / held.sum() < 0.2
    assert set(held) == set(edges)


@pytest.mark.slow
def test_the_device_measurement_counts_what_has_no_estimate():
    found = measure(12, 4, shortest=50, longest=60)
    assert (found["assets"], found["failed"], found["reasons"]) == (12, 0, {})
    assert found["assets_per_second"] == pytest.approx(12 / sum(row["seconds"] for row in found["buckets"]))
    assert sum(row["assets"] for row in found["buckets"]) == 12
    assert 0.8 < found["within_two_errors"] <= 1


def test_costs_of_a_fleet_follow_from_what_was_measured():
    """50 assets a second and core: 10^7 take 200,000 core seconds, 56 hours."""
    fleet = {"assets_per_second": 100.0, "cells": 1000, "input_mb": 8.0, "results_mb": 0.2, "peak_mb": 900.0}
    tiny = {"report_mb": 30.0, "list_mb": 6.0, "assets": 100_000}
    rows = costs(fleet | {"scheduler_kb_per_partition": 20.0}, tiny, None)
    assert {row["what"]: row["cost"] for row in rows} == {
        "first fit, or new samples of every asset": "56 core hours",
        "samples read": "80 GB",
        "results written": "2 GB",
        "through the scheduler": "0.4 GB",
        "memory of any process": "0.9 GB",
        "pages of the report": "3 GB",
        "list that a browser opens": "0.6 GB",
    }
    once = in_page(f"before {BEGIN} old {END} after", rows)
    assert once.startswith(f"before {BEGIN}\n")
    assert once.endswith(f"{END} after")
    assert "old" not in once
    assert "| samples read | 80 GB | 8,000 bytes an asset |" in once
    assert in_page(once, rows) == once


def test_the_table_of_costs_in_the_guide_is_that_of_the_results():
    root = Path(__file__).parents[2]
    path, guide = root / "results" / "fleet" / "costs.csv", (root / "docs" / "fleet.md").read_text()
    if not path.exists():
        pytest.skip("`twinfold bench fleet` has not been run")
    with path.open(newline="") as file:
        assert in_page(guide, list(csv.DictReader(file))) == guide


def test_the_growth_is_the_steepest_between_two_sizes():
    """Seconds 10, 40 and 200 for 1,000, 4,000 and 16,000 assets: powers 1 and log 5 / log 4."""
    runs = [
        {"cells": cells, "fit_seconds": seconds - 1, "monitor_seconds": 1, "assets_per_second": cells / seconds}
        | {"peak_mb": 900.0, "padding": 0.1, "input_mb": cells / 100, "results_mb": cells / 2000}
        for cells, seconds in ((16_000, 200), (1_000, 10), (4_000, 40), (1_000, 500))
    ]
    names = ("cells 16000", "cells 1000", "cells 4000", "cells first")  # the first compiles, and does not count
    summary = _summary(dict(zip(names, runs, strict=True)))
    assert summary["growth_exponent"] == pytest.approx(np.log(5) / np.log(4))
    assert summary["assets_per_second"] == 80
    assert summary["input_bytes_per_asset"] == pytest.approx(10_000)
    assert "efficiency" not in summary  # a part that has not been computed
