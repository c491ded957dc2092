"""Remaining life, in simulated fleets and on measured cells."""

import numpy as np
import pytest
from support.measured_cells import capacity, measured

from twinfold.monitor._life import END_READINGS, Life


def wearing(rng, length, law=0.0, change=0.0, noise=0.01, jumps=0.0):
    """Readings from 1 down, through 0 after about `length` cycles, whose rate wanders."""
    age = np.arange(1, 5 * length + 1)
    rate = (
        (1 - law)
        / length
        * (age / length) ** -law
        * np.exp(np.cumsum(change / np.sqrt(age) * rng.normal(size=age.size)))
    )
    jump = np.where(rng.random(age.size) < jumps, rng.exponential(0.1, size=age.size), 0.0)
    passing = np.zeros(age.size)
    for k in range(1, age.size):
        passing[k] = 0.85 * passing[k - 1] + jump[k]
    return 1 - np.cumsum(rate) + passing + noise * rng.normal(size=age.size)


def end_of(values, threshold):
    """The cycle, from 1, of the first of three finite readings in a row below; None if there is none."""
    row: list[int] = []
    for cycle, value in enumerate(values, 1):
        row = row if np.isnan(value) else [*row, cycle] if value < threshold else []
        if len(row) == END_READINGS:
            return row[0]
    return None


def forecasts(values, threshold, initial, shares):
    """[true, low, median, high, line] in parts of the life, with what was known at each share of it."""
    end = end_of(values, threshold)
    assert end is not None
    wanted = {round(share * end) for share in shares}
    life, rows = Life.start(float(initial), float(threshold)), []
    for cycle, value in enumerate(values[: end - 1], 1):
        life = life.update(float(value))
        if cycle in wanted:
            left = life.remaining()
            rows.append([end - cycle, left.low, left.median, left.high, left.line])
    return np.array(rows) / end


def coverage(rows):
    return np.mean((rows[:, 1] <= rows[:, 0]) & (rows[:, 0] <= rows[:, 3]))


def test_intervals_cover_simulated_lives_at_about_the_stated_rate():
    found = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        readings = wearing(rng, (40, 120)[seed % 2], (-0.4, 0.0, 0.4)[seed % 3], change=0.6, jumps=0.03)
        end = end_of(readings, 0.0)
        if end is not None and end > 20:
            found.append(forecasts(readings, 0.0, 1.0, (0.5, 0.7, 0.9)))
    assert len(found) > 60
    rows = np.concatenate(found)
    assert 0.84 < coverage(rows) < 0.97, coverage(rows)
    ours, line = np.median(abs(rows[:, 2] - rows[:, 0])), np.median(abs(rows[:, 4] - rows[:, 0]))
    assert ours < 0.8 * line, (ours, line)


@pytest.mark.parametrize("length", [40, 600])
@pytest.mark.parametrize("law", [-0.5, 0.5])
def test_a_bent_wear_is_followed_where_a_line_is_not(length, law):
    rows = forecasts(wearing(np.random.default_rng(1), length, law), 0.0, 1.0, (0.5, 0.7, 0.9))
    assert coverage(rows) == 1
    assert abs(rows[:, 2] - rows[:, 0]).max() < 0.12
    assert abs(rows[:, 4] - rows[:, 0]).mean() > 0.15


def test_bad_readings_and_recoveries_do_not_bend_the_trend():
    rng = np.random.default_rng(0)
    clean = wearing(rng, 100)
    dirty = clean.copy()
    dirty[[20, 35, 50]] = -3.0  # a discharge that was cut short
    dirty[[25, 26]] = np.nan
    dirty[40] = 1e9
    plain, bad = Life.start(1.0, 0.0), Life.start(1.0, 0.0)
    for good, other in zip(clean[:60], dirty[:60], strict=True):
        plain, bad = plain.update(float(good)), bad.update(float(other))
    assert bad.ended is None
    assert bad.remaining().median == pytest.approx(plain.remaining().median, rel=0.15)


def test_an_end_that_is_passed_and_one_that_never_comes():
    life = Life.start(2.0, 1.4)
    for value in (2.0, 1.9, 1.35, 1.45, 1.39, np.nan, 1.38):
        life = life.update(value)
        assert life.ended is None
    assert life.remaining().low <= 1
    life = life.update(1.37)
    assert life.ended == 5
    assert life.remaining().median == life.remaining().high == 0
    assert "passed at cycle 5" in life.update(1.6).remaining().note
    rising = Life.start(2.0, 1.4)
    assert np.isnan(rising.remaining().median)
    for k in range(30):
        rising = rising.update(2.0 + 0.01 * k)
    left = rising.remaining()
    assert left.median == left.high == left.line == np.inf
    assert "no trend towards the threshold" in left.note
    # The same readings, of a quantity that is worn out when it has risen.
    up = Life.start(2.0, 2.6, falling=False)
    for k in range(30):
        up = up.update(2.0 + 0.01 * k)
    assert up.remaining().median == pytest.approx(31, abs=4)
    assert up.remaining().line == pytest.approx(32, abs=1.1)


def test_nothing_that_is_read_breaks_it():
    rng = np.random.default_rng(9)
    life = Life.start(1.0, 0.0)
    for k in range(400):
        wild = rng.choice([np.nan, np.inf, -np.inf, 1e300, 15.0, -15.0, 0.0])
        error = rng.choice([0.0, 0.1, 1e300, np.nan, np.inf])
        odd = k % 3 == 0
        life = life.update(float(wild) if odd else 1 - k / 1000, float(error) if odd else 0.0)
    assert life.ended is None
    assert life.remaining().median == pytest.approx(600, rel=0.3)
    flat = Life.start(1.0, 0.0)
    for _ in range(2000):
        flat = flat.update(0.9)
    assert flat.remaining(horizon=200).low == np.inf


def test_an_uncertain_reading_counts_less():
    rng = np.random.default_rng(6)
    readings = wearing(rng, 100)[:50]
    readings[30:] -= 0.2
    sure, unsure = Life.start(1.0, 0.0), Life.start(1.0, 0.0)
    for k, value in enumerate(readings):
        sure, unsure = sure.update(float(value)), unsure.update(float(value), 0.5 if k >= 30 else 0.0)
    assert unsure.remaining().median > 1.3 * sure.remaining().median


# Measured cells


# Those that reach the end of life under one load and one temperature, after 25 cycles or more.
CELLS = ("B0005", "B0006", "B0018", "B0034", "B0045", "B0046", "B0047", "B0054")


@measured
def test_remaining_life_of_measured_cells():
    found = {}
    for cell in CELLS:
        values = capacity(cell)
        initial = np.median(values[np.isfinite(values)][:5])
        found[cell] = forecasts(values, min(1.4, 0.8 * initial), initial, np.arange(0.4, 0.96, 0.05))
    # Cells count alike, however many cycles they have: neighbouring forecasts of one cell are hardly independent.
    covered = np.mean([coverage(rows) for rows in found.values()])
    ours, line = (np.mean([abs(rows[:, k] - rows[:, 0]).mean() for rows in found.values()]) for k in (2, 4))
    assert 0.85 < covered < 0.97, covered
    assert ours < 0.15
    assert ours < 0.7 * line, (ours, line)
