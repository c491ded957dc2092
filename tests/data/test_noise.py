"""The noise of measured values: known levels are found, and what is no noise is not taken for it."""

import numpy as np
import pytest

from twinfold.data._noise import output_noise
from twinfold.data._run import Run


def runs(noise: float, *, irregular: bool = False, count: int = 400) -> list[Run]:
    rng = np.random.default_rng(3)
    ts = 0.1 * np.arange(count) + (0.03 * rng.uniform(-1, 1, count) if irregular else 0)
    y = np.sin(0.7 * ts) + noise * rng.normal(size=count)
    return [Run("a", ts, y[:, None], None, None, "")]


@pytest.mark.parametrize("irregular", [False, True])
@pytest.mark.parametrize("noise", [0.001, 0.02, 0.2])
def test_the_level_of_white_noise_is_found(noise, irregular):
    found = output_noise(runs(noise, irregular=irregular), 400, spread=np.ones(1), unknown=0.01)
    assert found[0] == pytest.approx(noise, rel=0.15)


def test_a_smooth_signal_has_none_and_a_kink_is_none():
    (run,) = runs(0.0)
    assert output_noise([run], 400, spread=np.ones(1), unknown=0.01)[0] < 1e-4
    stepped = np.where(run.ts > 20, run.y[:, 0] + 3, run.y[:, 0])
    other = Run("a", run.ts, stepped[:, None], None, None, "")
    assert output_noise([other], 400, spread=np.ones(1), unknown=0.01)[0] < 1e-4


def test_what_oscillates_or_jumps_in_a_short_warmup_is_no_noise():
    """Twenty samples of each of five runs: a period of twelve samples, and a step in the middle."""
    rng = np.random.default_rng(0)
    ts = 0.1 * np.arange(20)
    for signal in (lambda start: np.sin(2 * np.pi * (ts + start) / 1.2), lambda start: (ts > 0.4 + start / 2) + 0.0):
        noisy = [signal(start) + 0.01 * rng.normal(size=20) for start in rng.uniform(0, 1.2, 5)]
        each = [Run(str(index), ts, y[:, None], None, None, "") for index, y in enumerate(noisy)]
        assert output_noise(each, 20, spread=np.ones(1), unknown=0.5)[0] == pytest.approx(0.01, rel=0.35)


def test_rounding_is_noise_where_the_signal_rests():
    ts = 0.1 * np.arange(200)
    rests_then_moves = np.round(np.clip(ts - 15, 0, None), 1)
    run = Run("a", ts, rests_then_moves[:, None], None, None, "")
    assert output_noise([run], 200, spread=np.ones(1), unknown=0.5)[0] == pytest.approx(0.1 / np.sqrt(12))


def test_a_fraction_of_the_spread_from_the_first_samples_of_all_runs():
    (run,) = runs(0.02)
    shaken = run.y + np.where(np.arange(400) < 50, 0.0, (-1.0) ** np.arange(400))[:, None]
    later = Run("b", run.ts, shaken, None, None, "")
    found = output_noise([run, later], 50, spread=np.full(1, 2.0), unknown=0.5)
    assert 0.005 < found[0] < 0.012
    assert output_noise([run], 8, spread=np.ones(1), unknown=0.5)[0] == 0.5
    sparse = Run("c", run.ts, np.where(np.arange(400) % 50 == 0, run.y[:, 0], np.nan)[:, None], None, None, "")
    assert output_noise([sparse], 400, spread=np.ones(1), unknown=0.5)[0] == 0.5
