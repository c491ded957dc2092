"""Healthy cycles that are not: a fade during calibration is found, steady cycles are left alone."""

import json

import numpy as np
import pytest

from twinfold.monitor import Monitor
from twinfold.monitor._drift import fading_health, healthy_drifts

RNG = np.random.default_rng(0)


def correlated(count, coefficient, rng):
    values = np.empty(count)
    values[0] = rng.normal()
    for k in range(1, count):
        values[k] = coefficient * values[k - 1] + np.sqrt(1 - coefficient**2) * rng.normal()
    return values


def test_a_fade_in_the_healthy_window_is_found():
    health = 1.9 - 0.015 * np.arange(10) + 0.003 * RNG.normal(size=10)
    (message,) = fading_health(health, 1.4)
    assert message.startswith("The unit fades while it counts as healthy: the health falls by 0.13")
    assert "27% of the way to its threshold 1.4" in message
    (message,) = fading_health(-health, -1.4, falling=False)  # a resistance that rises
    assert "the health rises by 0.13" in message
    assert fading_health(health[::-1], 1.4) == ()  # a unit that recovers does not fade
    assert fading_health(1.9 + 0.003 * RNG.normal(size=10), 1.4) == ()
    assert fading_health(1.9 - 0.015 * np.arange(4), 1.4) == ()  # too few to tell
    gaps = np.where(np.arange(10) % 3 == 1, np.nan, health)
    assert len(fading_health(gaps, 1.4)) == 1


def test_an_exact_line_and_constants():
    assert len(fading_health(np.linspace(2.0, 1.8, 6), 1.4)) == 1
    assert fading_health(np.full(6, 2.0), 1.4) == ()
    assert fading_health(np.zeros(6), -1.0) == ()


@pytest.mark.parametrize(("count", "coefficient"), [(10, 0.0), (30, 0.0), (30, 0.5), (200, 0.7)])
def test_steady_cycles_seldom_give_a_finding(count, coefficient):
    rng = np.random.default_rng(1)
    found = sum(bool(fading_health(5 + correlated(count, coefficient, rng), 0.0)) for _ in range(1000))
    assert found <= 15  # half of 1 % of them are expected: only a fall counts


def test_only_what_is_bad_and_not_allowed_counts():
    level = -0.02 * np.arange(12) + 0.005 * RNG.normal(size=12)
    cycles = [
        {"level": float(value), "size": float(noise)} for value, noise in zip(level, RNG.normal(size=12), strict=True)
    ]
    (message,) = healthy_drifts(cycles)
    assert message.startswith("'level' falls by 0.2")
    assert len(healthy_drifts(cycles, direction={"level": -1})) == 1
    assert healthy_drifts(cycles, direction={"level": 1}) == ()
    assert len(healthy_drifts(cycles, allowed={"level": 0.1})) == 1
    assert healthy_drifts(cycles, allowed={"level": 0.3}) == ()
    assert healthy_drifts([]) == ()


def test_the_monitor_keeps_what_it_found():
    steady = [{"level": float(value)} for value in RNG.normal(size=10)]
    fading = 1.9 - 0.02 * np.arange(10)
    monitor = Monitor.calibrate(steady, health=fading, threshold=1.4)
    assert [each.partition(":")[0] for each in monitor.findings] == ["The unit fades while it counts as healthy"]
    state = json.loads(json.dumps(monitor.state()))
    assert Monitor.from_state(state).findings == monitor.findings
    del state["findings"]  # as saved by an earlier version
    assert Monitor.from_state(state).findings == ()
    assert Monitor.calibrate(steady, health=1.9 + 1e-3 * RNG.normal(size=10), threshold=1.4).findings == ()
