"""The synthetic fleet: its discharges obey the physics that it says it has, and nobody can take them for NASA's."""

import re

import numpy as np
import pytest
from twinfold_studies.battery.fleet import MAKES, healthy_fleet, synthetic_fleet
from twinfold_studies.nasa import to_dataset

import twinfold as tw
from twinfold.systems._battery.cell import battery
from twinfold.train._levenberg import LevenbergMarquardt


@pytest.fixture(scope="module")
def fleet():
    return synthetic_fleet(cells=2, cycles=30, fade=0.0035)


def truth(discharge):
    """q_max and R_o that the notes of a synthetic discharge name."""
    found = re.search(r"q_max ([\d.]+) C, R_o ([\d.]+) ohm", discharge.notes[0])
    assert found is not None
    return float(found[1]), float(found[2])


def of(fleet, cell, kind="cycle"):
    return [each for each in fleet if each.cell == cell and each.kind == kind]


def test_everything_says_that_it_is_synthetic(fleet):
    assert all(each.cell.startswith("SYN") and each.notes[0].startswith("SYNTHETIC") for each in fleet)
    assert len(fleet.cells) == 2 * (len(MAKES) - 1) + 1
    assert {each.file for each in fleet} == {"synthetic"}


def test_charge_is_the_integral_of_the_load(fleet):
    for each in fleet.select(kind="cycle"):
        held = np.sum(np.diff(each.time) * np.where(each.under_load, each.current, 0.0)[:-1]) / 3600
        assert each.charge == pytest.approx(held, rel=4e-3)
        # The log has no row for the moment at which the load comes on; a run has it, as well as intervals are alike.
        (run,) = to_dataset([each], rows="start").runs
        assert run.w is not None
        jitter = 0.8 * each.load_current
        assert each.published <= (np.sum(np.diff(run.ts) * run.w[:-1, 0]) + jitter) / 3600
        assert each.published == pytest.approx(held, abs=0.1)


def test_discharges_look_like_nasas(fleet):
    for each in fleet:
        assert 1.2 < each.voltage.min() < 3.3
        assert 3.7 < each.voltage.max() < 4.25
        assert np.diff(each.time).min() > 0
        if each.kind == "cycle":
            assert each.first == 2
            assert each.rest_voltage > 4.1
            assert each.voltage[-1] > each.end_voltage + 0.1  # it recovers
        assert each.known_temperature.max() > each.ambient + 2  # it warms up
    assert all(each.clean or each.has("square_wave") for each in fleet), fleet.counts()
    assert all(each.has("square_wave") == ("WAVE" in each.cell) for each in fleet)
    steps = np.diff(of(fleet, "SYN-2A-1")[0].time)
    assert steps.std() > 0.1
    walk = of(fleet, "SYN-WALK-1", "walk")[0]
    assert 0.4 < walk.current[:-1].min() < 1.5 < 4 < walk.current.max() < 5.1


def test_cells_age_and_some_regain_charge(fleet):
    for cell in ("SYN-2A-1", "SYN-2A-2"):
        capacity = np.array([each.capacity for each in of(fleet, cell)])
        slope = np.polyfit(np.arange(30), capacity / capacity[0], 1)[0]
        assert -0.006 < slope < -0.002
        assert capacity[:5].mean() > capacity[12:17].mean() > capacity[-5:].mean()
        resistance = np.array([truth(each)[1] for each in of(fleet, cell)])
        assert resistance[-5:].mean() > 1.05 * resistance[:5].mean()
    steps = {cell: max(np.diff([truth(each)[0] for each in of(fleet, cell)])) for cell in ("SYN-2A-1", "SYN-2A-2")}
    assert steps["SYN-2A-2"] > 60 > 50 > steps["SYN-2A-1"], steps


def test_healthy_cells_vary_but_do_not_age():
    healthy = healthy_fleet(cells=3, cycles=25)
    assert len(healthy) == 75
    slopes = []
    for cell in healthy.cells:
        capacity = np.array([each.capacity for each in of(healthy, cell)])
        assert 1e-4 < (capacity / capacity.mean()).std() < 0.01
        slopes.append(np.polyfit(np.arange(25), capacity / capacity.mean(), 1)[0])
    assert np.abs(slopes).max() < 4e-4


def test_the_same_seed_gives_the_same_fleet():
    one, same, other = (synthetic_fleet(cells=1, cycles=2, seed=seed) for seed in (3, 3, 4))
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a.voltage, b.voltage)
    assert not np.array_equal(one["SYN-2A-1/0"].voltage[:20], other["SYN-2A-1/0"].voltage[:20])


@pytest.mark.slow
def test_the_truth_is_recovered_from_a_cell_without_noise():
    fleet = synthetic_fleet(cells=1, cycles=2, noise=0.0, misfit=0.0)
    chosen = of(fleet, "SYN-2A-1")
    unknown = {
        "q_max": tw.Unknown(1.2e4, positive=True, per_run=True),
        "R_o": tw.Unknown(0.08, positive=True, per_run=True),
        "offset": tw.Unknown(0.0, per_run=True),
    }
    found = tw.fit(
        battery(unknown=unknown), to_dataset(chosen, rows="all"), method=LevenbergMarquardt(12), seeds=1, progress=False
    )
    for run, each in enumerate(chosen):
        p = found.twin.parameters(run)
        np.testing.assert_allclose([p["q_max"], p["R_o"]], truth(each), rtol=2e-4)
