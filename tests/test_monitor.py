"""The monitor against tables, in simulated healthy and wearing fleets, and on measured cells."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from twinfold.identify.uncertainty import correlation_time, uncertainty
from twinfold.monitor.alarm import Alarm, start_alarm
from twinfold.monitor.features import channel_features, residual_features
from twinfold.monitor.life import CONFIRM, Life, start_life
from twinfold.monitor.limits import each_feature, jointly
from twinfold.monitor.monitor import Monitor
from twinfold.monitor.quantiles import f_quantile, incomplete_beta, student_quantile

DATA = Path(os.environ.get("TWINFOLD_DATA", "")) / "nasa_battery" / "cycles.csv"
measured = pytest.mark.skipif(
    not os.environ.get("TWINFOLD_DATA") or not DATA.exists(),
    reason="the measured cells are in $TWINFOLD_DATA/nasa_battery, which is not set or not there",
)


# Quantiles


@pytest.mark.parametrize(
    ("q", "dof", "wanted"),
    [(0.95, 1, 6.3138), (0.99, 9, 2.8214), (0.975, 4, 2.7764), (0.9995, 29, 3.6594), (0.9, 120, 1.2886), (0.5, 7, 0)],
)
def test_quantiles_of_student_are_those_of_the_table(q, dof, wanted):
    assert student_quantile(q, dof) == pytest.approx(wanted, abs=6e-5)
    assert student_quantile(1 - q, dof) == pytest.approx(-wanted, abs=6e-5)


@pytest.mark.parametrize(
    ("q", "above", "below", "wanted"),
    [(0.95, 1, 1, 161.45), (0.95, 3, 10, 3.7083), (0.99, 4, 6, 9.1483), (0.95, 10, 3, 8.7855), (0.99, 2, 120, 4.7865)],
)
def test_quantiles_of_f_are_those_of_the_table(q, above, below, wanted):
    assert f_quantile(q, above, below) == pytest.approx(wanted, rel=1e-4)


def test_quantiles_in_closed_form():
    for q in (0.6, 0.99, 1 - 1e-9):
        assert student_quantile(q, 1) == pytest.approx(np.tan(np.pi * (q - 0.5)), rel=1e-6)  # Cauchy
        assert f_quantile(q, 2, 2) == pytest.approx(q / (1 - q), rel=1e-6)
        assert student_quantile(q, 13) ** 2 == pytest.approx(f_quantile(2 * q - 1, 1, 13), rel=1e-6)
    for x in (0.01, 0.3, 0.999):
        assert incomplete_beta(x, 1.0, 4.5) == pytest.approx(1 - (1 - x) ** 4.5, rel=1e-13)
        assert incomplete_beta(x, 200.0, 3.0) + incomplete_beta(1 - x, 3.0, 200.0) == pytest.approx(1, rel=1e-13)
    with pytest.raises(ValueError, match="0 < q < 1"):
        student_quantile(1.0, 4)


# Features


def test_features_of_a_known_residual():
    s = np.linspace(-1, 1, 201)
    residual = 0.3 - 0.2 * s + 0.1 * (1.5 * s**2 - 0.5)
    found = residual_features(residual, 10 + 5 * s)
    assert found["mean"] == pytest.approx(residual.mean())
    assert found["rms"] == pytest.approx(np.sqrt(np.mean(residual**2)))
    np.testing.assert_allclose([found[f"shape_{k}"] for k in range(3)], [0.3, -0.2, 0.1], atol=1e-12)


def test_features_do_not_mind_gaps_nor_spikes():
    rng = np.random.default_rng(0)
    s = np.linspace(-1, 1, 300)
    clean = 0.3 - 0.2 * s + 0.01 * rng.normal(size=300)
    dirty, mask = clean.copy(), rng.random(300) < 0.7
    dirty[::17] = np.nan
    dirty[5::40] += 5.0
    mask[100:160] = False
    found = residual_features(dirty, s, mask=mask)
    np.testing.assert_allclose([found[f"shape_{k}"] for k in range(3)], [0.3, -0.2, 0.0], atol=0.006)
    # Least squares, which the mean and the rms are, do mind.
    assert abs(found["mean"] - 0.3) > 0.05


def test_features_of_a_cycle_that_ends_early_are_those_of_a_whole_one():
    position = np.linspace(0, 2, 101)
    residual = 0.1 + 0.05 * position
    whole = residual_features(residual, position, degree=1, span=(0.0, 2.0))
    part = residual_features(residual[:60], position[:60], degree=1, span=(0.0, 2.0))
    assert part["shape_1"] == pytest.approx(whole["shape_1"], abs=1e-12) == pytest.approx(0.05)
    assert part["mean"] < whole["mean"]


def test_features_where_there_is_nothing():
    assert all(np.isnan(list(residual_features(np.full(9, np.nan)).values())))
    assert all(np.isnan(list(residual_features(np.array([1.0, 2.0])).values())))
    assert all(np.isnan(list(residual_features(np.array([])).values())))
    two = channel_features(np.stack([np.ones(9), np.full(9, np.nan)], axis=1), ["u", "v"], degree=1)
    assert two["u.mean"] == 1
    assert two["u.shape_1"] == pytest.approx(0, abs=1e-12)
    assert np.isnan(two["v.rms"])
    with pytest.raises(ValueError, match="One channel"):
        residual_features(np.ones((3, 2)))


# Limits and alarms


def cycles(values) -> list[dict[str, float]]:
    """Features a, b, ... of each cycle, from [cycles] or [cycles, features]."""
    rows = np.asarray(values, float).reshape(len(values), -1).tolist()
    return [{"abcd"[column]: value for column, value in enumerate(row)} for row in rows]


def share_of_alarms(limits, later, **options):
    alarm, count = start_alarm(limits, **options), 0
    for cycle in cycles(later):
        alarm, judged = alarm.update(cycle)
        count += judged.alarm
    return count / len(later)


def within(rate, hits, spread=4.0):
    """The mean of independent shares is the rate, within its standard error."""
    return abs(np.mean(hits) - rate) < spread * np.std(hits) / np.sqrt(len(hits))


@pytest.mark.parametrize("smoothing", [1.0, 0.2])
@pytest.mark.parametrize("healthy", [3, 10])
def test_false_alarms_of_one_feature_come_at_the_stated_rate(healthy, smoothing):
    rng = np.random.default_rng(healthy)
    rate, shares = 0.05, []
    for _ in range(700):
        values = rng.normal(3.0, 0.7, size=healthy + 12)
        limits = each_feature(cycles(values[:healthy]), rate=rate, direction={"a": -1})
        shares.append(share_of_alarms(limits, values[healthy:], smoothing=smoothing))
    assert within(rate, shares), np.mean(shares)


def test_false_alarms_of_several_features():
    """Jointly at the stated rate; each for itself, with correlated features, below it."""
    rng = np.random.default_rng(5)
    mix = np.array([[1, 0.8, 0.1], [0, 0.6, 0.1], [0, 0, 1.0]])
    rate, joint, each, confirmed = 0.05, [], [], []
    for _ in range(350):
        values = rng.normal(size=(22, 3)) @ mix
        separate = each_feature(cycles(values[:12]), rate=rate)
        joint.append(share_of_alarms(jointly(cycles(values[:12]), rate=rate), values[12:], smoothing=0.3))
        each.append(share_of_alarms(separate, values[12:], smoothing=0.3))
        confirmed.append(share_of_alarms(separate, values[12:], smoothing=0.3, confirm=(2, 3)))
    assert within(rate, joint), np.mean(joint)
    assert 0.02 < np.mean(each) < rate
    assert np.mean(confirmed) < np.mean(each)


def test_an_allowed_drift_gives_no_more_than_the_stated_rate():
    rng = np.random.default_rng(8)
    rate, shares, unaware = 0.05, [], []
    for _ in range(150):
        values = rng.normal(size=30) - np.linspace(0, 2, 30)
        for allowed, kept in ((2.0, shares), (0.0, unaware)):
            limits = each_feature(cycles(values[:10]), rate=rate, direction={"a": -1}, allowed={"a": allowed})
            kept.append(share_of_alarms(limits, values[10:]))
    assert np.mean(shares) < rate
    assert np.mean(unaware) > 0.3


def test_a_running_score_finds_a_slow_ramp_sooner():
    delays: dict[float, list[int]] = {1.0: [], 0.2: []}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        healthy, ramp = rng.normal(size=20), rng.normal(size=120) + 0.1 * np.arange(120)
        for smoothing, kept in delays.items():
            monitor = Monitor.calibrate(cycles(healthy), rate=0.001, direction={"a": 1}, smoothing=smoothing)
            kept += [next(n for n, cycle in enumerate(cycles(ramp)) if monitor.update(cycle).alarm)]
    # One cycle alone needs a deviation of 3.7; a mean of nine or so needs 1.7 and is four cycles late.
    assert np.median(delays[0.2]) < 24
    assert np.median(delays[0.2]) < np.median(delays[1.0]) - 3


def test_limits_by_hand():
    healthy = cycles([1.0, 2.0, 3.0, 4.0])
    limits = each_feature(healthy, rate=0.05, direction={"a": 1}, allowed={"a": 0.5})
    deviation = np.array([4.0])
    assert limits.score(deviation) == pytest.approx(3.5 / np.std([1, 2, 3, 4], ddof=1))
    assert limits.score(-deviation) < 0
    assert limits.limit(1.0) == pytest.approx(2.3534 * np.sqrt(1.25), rel=1e-4)
    assert start_alarm(limits).expected_false_alarms(200) == pytest.approx(10)
    both = each_feature(healthy, rate=0.05)
    assert both.limit(1.0) == pytest.approx(3.1824 * np.sqrt(1.25), rel=1e-4)
    # In one dimension Hotelling's T is the two-sided t.
    assert jointly(healthy, rate=0.05).limit(0.3) == pytest.approx(both.limit(0.3), rel=1e-9)
    assert jointly(healthy, rate=0.05).score(-deviation) == pytest.approx(both.score(deviation))


def test_a_wild_or_missing_reading_does_not_poison():
    rng = np.random.default_rng(2)
    for joint in (False, True):
        healthy = cycles(rng.normal(size=(15, 2)))
        monitor = Monitor.calibrate(healthy, joint=joint, rate=0.001)
        before = monitor.alarm.state()
        for bad in (np.nan, np.inf):
            record = monitor.update({"a": 0.0, "b": bad})
            assert np.isnan(record.score)
            assert not record.alarm
            assert "not finite: b" in record.note
            assert monitor.alarm.state() == before
        assert monitor.update({"a": 1e300, "b": 0.0}).alarm
        after = [monitor.update({"a": 0.0, "b": 0.0}).alarm for _ in range(8)]
        assert not any(after[6:])
        assert monitor.first_alarm == 18  # 15 healthy ones, two that could not be judged
        with pytest.raises(ValueError, match="no feature"):
            monitor.update({"a": 1.0})


@pytest.mark.parametrize(
    ("healthy", "options", "message"),
    [
        ([], {}, "0 healthy cycles"),
        ([1.0, 2.0], {}, "at least 3"),
        ([1.0, 2.0, np.nan, np.inf], {}, "2 healthy cycles with finite features"),
        ([1.0, 1.0, 1.0], {}, "did not vary"),
        ([1.0, 2.0, 4.0], {"rate": 0.7}, "between 0 and 0.5"),
        ([1.0, 2.0, 4.0], {"direction": {"z": 1}}, "not known"),
        ([1.0, 2.0, 4.0], {"allowed": {"a": -1.0}}, "not negative"),
        ([1.0, 2.0, 4.0], {"smoothing": 0.0}, "smoothing"),
        ([1.0, 2.0, 4.0], {"confirm": (3, 2)}, "confirm"),
        ([1.0, 2.0, 4.0], {"joint": True, "allowed": {"a": 1.0}}, "leave out"),
        ([1.0, 2.0, 4.0], {"threshold": 1.0}, "both health and threshold"),
        ([1.0, 2.0, 4.0], {"threshold": 1.0, "health": [2.0]}, "3 healthy cycles, but 1"),
        ([1.0, 2.0, 4.0], {"threshold": 1.4, "health": [1.1, 1.1, 1.0]}, "passed already"),
        ([1.0, 2.0, 4.0], {"threshold": 1.4, "health": [np.nan] * 3}, "no finite value"),
    ],
)
def test_what_cannot_be_calibrated_says_why(healthy, options, message):
    with pytest.raises(ValueError, match=message):
        Monitor.calibrate([{"a": value} for value in healthy], **options)


def test_joint_needs_more_cycles_than_features_that_are_not_the_same():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="too few for 4 features"):
        jointly(cycles(rng.normal(size=(5, 4))))
    values = rng.normal(size=(20, 2))
    with pytest.raises(ValueError, match="depend on one another"):
        jointly(cycles(np.concatenate([values, values.sum(1, keepdims=True)], axis=1)))


# Uncertainty of an estimate


def correlated(rng, count, phi):
    noise = rng.normal(size=count + 300)
    for k in range(1, len(noise)):
        noise[k] += phi * noise[k - 1]
    return noise[300:]


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_standard_errors_cover_the_truth_whatever_follows_whatever(phi):
    rng = np.random.default_rng(4)
    s = np.linspace(0, 1, 150)
    jacobian = np.stack([np.ones(150), s], axis=1)
    covered, naive = [], []
    for _ in range(300):
        noise = correlated(rng, 150, phi)
        wrong = np.linalg.lstsq(jacobian, noise, rcond=None)[0]
        left = noise - jacobian @ wrong
        found = uncertainty(left, jacobian, ["level", "slope"])
        covered += [abs(wrong) < 1.96 * np.array(list(found.errors.values()))]
        naive += [abs(wrong) < 1.96 * left.std() * np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))]
    assert 0.91 < np.mean(covered) < 0.985, np.mean(covered)
    if phi:
        assert np.mean(naive) < 0.6


def test_uncertainty_of_independent_noise_is_the_textbook_one():
    rng = np.random.default_rng(0)
    jacobian, r = rng.normal(size=(400, 2)), 0.1 * rng.normal(size=400)
    r -= jacobian @ np.linalg.lstsq(jacobian, r, rcond=None)[0]
    found = uncertainty(r, jacobian, ["p", "q"])
    wanted = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)) * (r @ r) / 398)
    np.testing.assert_allclose(list(found.errors.values()), wanted, rtol=0.1)
    assert found.noise == pytest.approx(0.1, rel=0.1)
    assert 350 < found.samples <= 400
    assert found.weak == ()
    # Two outputs, the second never measured, are one.
    pair, wide = np.stack([r, r], axis=1), np.stack([jacobian, jacobian], axis=1)
    mask = np.stack([np.ones(400, bool), np.zeros(400, bool)], axis=1)
    assert uncertainty(pair, wide, ["p", "q"], mask=mask).errors == pytest.approx(found.errors)
    pair[:, 1] = np.nan
    assert uncertainty(pair, wide, ["p", "q"]).errors == pytest.approx(found.errors)


def test_correlation_time_of_a_first_order_process():
    r = correlated(np.random.default_rng(1), 20_000, 0.9)[:, None]
    mask = np.ones(r.shape, bool)
    assert correlation_time(r, mask) == pytest.approx(19, rel=0.15)
    mask[::10] = False
    assert correlation_time(r, mask) == pytest.approx(19, rel=0.2)
    assert correlation_time(np.zeros((5, 1)), np.ones((5, 1), bool)) == 1


def test_what_the_data_cannot_tell_is_flagged():
    rng = np.random.default_rng(3)
    s, r = rng.normal(size=100), rng.normal(size=100)
    jacobian = np.stack([s, 1e4 * s, rng.normal(size=100)], axis=1)
    found = uncertainty(r, jacobian, ["gain", "scale", "offset"])
    assert len(found.weak) == 1
    assert abs(found.weak[0]["gain"]) == pytest.approx(np.sqrt(0.5), rel=1e-6)
    assert found.errors["gain"] == found.errors["scale"] == np.inf
    assert found.errors["offset"] == pytest.approx(0.1, rel=0.5)
    silent = uncertainty(r, np.stack([s, 0 * s], axis=1), ["a", "b"])
    assert silent.errors["b"] == np.inf
    assert np.isfinite(silent.errors["a"])
    with pytest.raises(ValueError, match="more than 3"):
        uncertainty(r[:3], jacobian[:3], ["a", "b", "c"])
    with pytest.raises(ValueError, match="Jacobian of 100 x 2"):
        uncertainty(r, jacobian, ["a", "b"])


# Remaining life


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
        if len(row) == CONFIRM:
            return row[0]
    return None


def forecasts(values, threshold, initial, shares):
    """[true, low, median, high, line] in parts of the life, with what was known at each share of it."""
    end = end_of(values, threshold)
    assert end is not None
    wanted = {round(share * end) for share in shares}
    life, rows = start_life(float(initial), float(threshold)), []
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
    plain, bad = start_life(1.0, 0.0), start_life(1.0, 0.0)
    for good, other in zip(clean[:60], dirty[:60], strict=True):
        plain, bad = plain.update(float(good)), bad.update(float(other))
    assert bad.ended is None
    assert bad.remaining().median == pytest.approx(plain.remaining().median, rel=0.15)


def test_an_end_that_is_passed_and_one_that_never_comes():
    life = start_life(2.0, 1.4)
    for value in (2.0, 1.9, 1.35, 1.45, 1.39, np.nan, 1.38):
        life = life.update(value)
        assert life.ended is None
    assert life.remaining().low <= 1
    life = life.update(1.37)
    assert life.ended == 5
    assert life.remaining().median == life.remaining().high == 0
    assert "passed at cycle 5" in life.update(1.6).remaining().note
    rising = start_life(2.0, 1.4)
    assert np.isnan(rising.remaining().median)
    for k in range(30):
        rising = rising.update(2.0 + 0.01 * k)
    left = rising.remaining()
    assert left.median == left.high == left.line == np.inf
    assert "nothing moves towards" in left.note
    # The same readings, of a quantity that is worn out when it has risen.
    up = start_life(2.0, 2.6, falling=False)
    for k in range(30):
        up = up.update(2.0 + 0.01 * k)
    assert up.remaining().median == pytest.approx(31, abs=4)
    assert up.remaining().line == pytest.approx(32, abs=1.1)


def test_nothing_that_is_read_breaks_it():
    rng = np.random.default_rng(9)
    life = start_life(1.0, 0.0)
    for k in range(400):
        wild = rng.choice([np.nan, np.inf, -np.inf, 1e300, 15.0, -15.0, 0.0])
        error = rng.choice([0.0, 0.1, 1e300, np.nan, np.inf])
        odd = k % 3 == 0
        life = life.update(float(wild) if odd else 1 - k / 1000, float(error) if odd else 0.0)
    assert life.ended is None
    assert life.remaining().median == pytest.approx(600, rel=0.3)
    flat = start_life(1.0, 0.0)
    for _ in range(2000):
        flat = flat.update(0.9)
    assert flat.remaining(farthest=200).low == np.inf


def test_an_uncertain_reading_counts_less():
    rng = np.random.default_rng(6)
    readings = wearing(rng, 100)[:50]
    readings[30:] -= 0.2
    sure, unsure = start_life(1.0, 0.0), start_life(1.0, 0.0)
    for k, value in enumerate(readings):
        sure, unsure = sure.update(float(value)), unsure.update(float(value), 0.5 if k >= 30 else 0.0)
    assert unsure.remaining().median > 1.3 * sure.remaining().median


# The monitor


def fleet_cycle(rng, k):
    return {
        "mean": 0.02 * rng.normal() + 0.003 * k,
        "r": 1 + 0.01 * rng.normal(),
    }, 1.9 - 0.012 * k + 0.01 * rng.normal()


@pytest.mark.parametrize("joint", [False, True])
def test_saved_and_restored_it_goes_on_as_if_never_stopped(joint):
    rng = np.random.default_rng(7)
    known = [fleet_cycle(rng, k) for k in range(10)]
    options = {} if joint else {"direction": {"mean": 1}, "allowed": {"r": 0.01}}
    monitor = Monitor.calibrate(
        [features for features, _ in known],
        joint=joint,
        health=[health for _, health in known],
        threshold=1.4,
        confirm=(2, 3),
        **options,
    )
    later = [fleet_cycle(rng, k) for k in range(10, 55)]
    later[4] = ({"mean": float("nan"), "r": 1.0}, float("nan"))
    saved = json.loads(json.dumps(monitor.state(), allow_nan=False))
    whole = [monitor.update(*cycle).row() for cycle in later]
    pieces, sizes = [], []
    for cycle in later:
        restored = Monitor.from_state(saved)
        pieces.append(restored.update(*cycle).row())
        saved = json.loads(json.dumps(restored.state(), allow_nan=False))
        sizes.append(len(json.dumps(saved)))
    np.testing.assert_equal(pieces, whole)
    assert saved == json.loads(json.dumps(monitor.state()))
    assert max(sizes) < 1.1 * sizes[20] < 20_000  # it does not grow
    assert whole[4]["note"].startswith("not judged, not finite: mean; no health")
    assert whole[-1]["alarm"]
    assert "passed" in whole[-1]["note"]
    assert monitor.first_alarm is not None
    with pytest.raises(ValueError, match="format 1"):
        Monitor.from_state({"format": 99})


def test_parts_of_the_state_are_plain_too():
    alarm = start_alarm(each_feature(cycles([1.0, 2.0, 4.0])))
    assert Alarm.from_state(alarm.state()).state() == alarm.state()
    life = start_life(2.0, 1.0).update(1.9)
    assert Life.from_state(life.state()).state() == life.state()


# Measured cells


NOT_WHOLE = (
    "capacity<0.5Ah",
    "starts_below_4.1V",
    "above_cutoff_at_end",
    "no_load",
    "capacity_missing",
    "voltage_dropout",
)


def capacity(cell):
    """Measured capacity of each discharge, NaN where it was not a whole one."""
    with DATA.open() as file:
        rows = [row for row in csv.DictReader(file) if row["battery"] == cell]
    whole = [not any(flag in NOT_WHOLE for flag in row["flags"].split(";")) for row in rows]
    return np.array([float(row["capacity_Ah"]) if good else np.nan for row, good in zip(rows, whole, strict=True)])


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


@measured
@pytest.mark.parametrize("cell", ["B0005", "B0006", "B0018"])
def test_alarms_of_measured_cells(cell):
    """Levels from cycles 1-10, 3 % change allowed: quiet in 11-20, awake before 10 % fade, in the order of the fade."""
    values = capacity(cell)
    allowed = {"capacity": 0.03 * float(values[:10].mean())}
    features = [{"capacity": float(value)} for value in values]
    options = {"rate": 0.001, "confirm": (2, 3)}
    monitor = Monitor.calibrate(features[:10], direction={"capacity": -1}, allowed=allowed, **options)
    records = [monitor.update(cycle) for cycle in features[10:]]
    assert not any(record.alarm for record in records[:10])
    assert monitor.first_alarm is not None
    assert values[monitor.first_alarm - 1] > 0.9 * values[0]
    running, fade = (np.argsort(np.argsort(series)) for series in ([r.running for r in records], -values[10:]))
    assert np.corrcoef(running, fade)[0, 1] > 0.95
