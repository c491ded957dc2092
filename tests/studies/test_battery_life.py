"""Protocol life: remaining lives with a known end, censored ones, stretches under one load, and the tables."""

import dataclasses
import datetime

import numpy as np
import pytest
from twinfold_studies.battery import life as protocol
from twinfold_studies.battery.cells import Cells
from twinfold_studies.battery.fleet import synthetic_fleet
from twinfold_studies.battery.life import VARIANTS, hours_between, life, next_row, total_rows, voltage_only
from twinfold_studies.battery.models import residual
from twinfold_studies.battery.remaining import remaining_rows, steady_stretch, summarise_remaining
from twinfold_studies.bench.store import Store

import twinfold as tw


@pytest.fixture(scope="module")
def discharges():
    fleet = synthetic_fleet(cells=1, cycles=30, fade=0.01).select(cells=["SYN-2A-1"])
    return list(fleet)


def test_remaining_life_of_a_straight_fade():
    rng = np.random.default_rng(0)
    capacity = 2.0 - 0.01 * np.arange(60) + 1e-3 * rng.normal(size=60)
    rows = remaining_rows("made up", capacity, {"measured": (capacity, None), "estimated": (0.9 * capacity, None)})
    assert {row["threshold"] for row in rows} == {"95%", "90%", "85%", "80%", "75%", "70%", "1.4 Ah"}
    new = np.median(capacity[:10])
    for row in rows:
        end = np.flatnonzero(capacity < row["threshold_Ah"])
        assert row["reached"] == (len(end) > 0)
        assert row["cycle"] > 10
        assert row["true"] == (end[0] + 1 if len(end) else 60) - row["cycle"]
        if not row["reached"]:
            assert np.isnan(row["relative_error"])
            assert row["covered"] == (row["high"] >= row["true"])
    assert [row["threshold_Ah"] / new for row in rows[:2]] == pytest.approx([0.95, 0.95])
    # Estimates that are low by a constant factor are scaled to the measured ones: nothing else changes.
    by_kind = [[row["remaining"] for row in rows if row["capacity"] == kind] for kind in ("measured", "estimated")]
    assert by_kind[0] == by_kind[1]
    ended = [row for row in rows if row["reached"]]
    assert np.mean([row["covered"] for row in ended]) > 0.9
    assert np.median(np.abs([row["relative_error"] for row in ended])) < 0.15
    (first, _) = summarise_remaining(rows)
    assert f"{len(ended) // 2} cases of 1 cells reach the threshold" in first
    assert f"{len(rows) // 2 - len(ended) // 2} cases are censored" in first
    assert remaining_rows("short", capacity[:24], {"measured": (capacity[:24], None)}) == []


def test_an_interval_that_ends_before_the_record_is_contradicted():
    capacity = np.concatenate([2.0 - 0.03 * np.arange(12), np.full(28, 1.67)])  # it stops to fade
    rows = remaining_rows("stops", capacity, {"measured": (capacity, None)})
    open_ = [row for row in rows if row["threshold"] == "85%"]
    assert open_
    assert all(row["covered"] == (row["high"] >= row["true"]) for row in open_)
    assert "intervals hold the truth" in summarise_remaining(rows)[0]


def test_the_longest_stretch_under_one_load(discharges):
    warm = [dataclasses.replace(each, ambient=each.ambient + 20) for each in discharges[:8]]
    assert steady_stretch([*warm, *discharges[8:]]) == slice(8, 30)
    assert steady_stretch(discharges) == slice(0, 30)
    double = [dataclasses.replace(each, current=2 * each.current) for each in discharges[20:]]
    assert steady_stretch([*discharges[:20], *double]) == slice(0, 20)


def test_rests_loads_and_rows(discharges):
    assert hours_between(discharges) is None
    start = datetime.datetime(2008, 4, 2)
    hours = [0, 5, 10, 60, 65]
    dated = [
        dataclasses.replace(each, start=start + datetime.timedelta(hours=hour), current=each.current * (1 + (k == 4)))
        for k, (each, hour) in enumerate(zip(discharges, hours, strict=False))
    ]
    between = hours_between(dated)
    assert between is not None
    np.testing.assert_allclose(between, [0, 5, 5, 50, 5])
    found = {name: [0.01, 0.02, 0.06, 0.05] for name in VARIANTS} | {"combined": [0.01, 0.01, 0.03, 0.02]}
    row = next_row("B0005", "measured", dated, found)
    assert (row["chosen_on"], row["discharges"], row["rests"], row["new_loads"]) == (True, 4, 1, 1)
    assert (row["persistence"], row["combined"]) == pytest.approx((0.035, 0.015))
    assert (row["persistence_rest"], row["combined_rest"]) == pytest.approx((0.06, 0.03))
    assert (row["persistence_load"], row["twin_updated_load"], row["combined_load"]) == pytest.approx(
        (0.05, 0.05, 0.02)
    )
    other = row | {"cell": "B0099", "chosen_on": False, "combined": 0.005, "rests": 3, "combined_rest": 0.07}
    whole, rest = total_rows([row, other])
    assert (whole["cell"], whole["group"], whole["combined"], whole["rests"]) == ("all", "2 cells", 0.01, 4)
    assert whole["combined_rest"] == pytest.approx((0.03 + 3 * 0.07) / 4)
    assert (rest["cell"], rest["combined"]) == ("all not chosen on", 0.005)


def test_temperatures_after_the_first_are_left_out():
    y = np.stack([np.linspace(4, 3, 5), np.linspace(24, 30, 5)], axis=1)
    data = tw.Dataset.from_arrays(np.arange(5.0), [y], output_names=["voltage", "temperature"])
    left = voltage_only(data).runs[0].y
    np.testing.assert_array_equal(left[:, 0], y[:, 0])
    assert left[0, 1] == 24
    assert np.isnan(left[1:, 1]).all()


def test_without_long_lives_it_says_so(tmp_path):
    cells = Cells(synthetic_fleet(cells=1, cycles=3), synthetic=True)
    assert "no cell" in life(cells, Store(tmp_path), print).sentences[0]


@pytest.mark.slow
def test_the_whole_protocol_on_a_synthetic_fleet(tmp_path, monkeypatch):
    cells = Cells(synthetic_fleet(cells=2, cycles=30, fade=0.01).select(cells=["SYN-2A-1", "SYN-2A-2"]), synthetic=True)
    model = dataclasses.replace(protocol.MODELS["hrpinn"], build=residual, method=(tw.LevenbergMarquardt(15),))
    monkeypatch.setattr(protocol, "FOLDS", 2)
    monkeypatch.setattr(protocol, "MODELS", {"hrpinn": model})
    monkeypatch.setattr(protocol, "HEATED", {})
    monkeypatch.setattr(protocol, "KINDS", ("measured",))
    found = life(cells, Store(tmp_path), print)
    tables = {table.name: table.rows for table in found.tables}
    assert [row["cell"] for row in tables["life"]] == ["SYN-2A-1", "SYN-2A-2", "all", "all not chosen on"]
    for row in tables["life"]:
        assert row["combined"] < row["persistence"] < 0.05, row
    assert len([row for row in tables["remaining_life"] if row["reached"]]) >= 8
    assert all("SYNTHETIC" in table.title for table in found.tables)
    assert "SYNTHETIC" in found.pictures[0].title
    assert len(found.pictures[0].draw().axes) == 1
