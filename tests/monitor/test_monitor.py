"""The monitor against tables, in simulated healthy and wearing fleets, and on measured cells."""

import json

import numpy as np
import pytest
from support.measured_cells import capacity, measured

from twinfold.monitor import Monitor, residual_features
from twinfold.monitor._alarm import Alarm
from twinfold.monitor._life import Life
from twinfold.monitor._limits import feature_limits, joint_limits
from twinfold.monitor._state import decode, encode

# Limits against tables


def alone(count, **options):
    """The limit of a single cycle over the factor of an estimated mean: a quantile of Student's t, or the root of F."""
    rng = np.random.default_rng(0)
    features = options.pop("features", 1)
    healthy = cycles(rng.normal(size=(count, features)))
    limits = (
        joint_limits(healthy, **options) if features > 1 else feature_limits(healthy, direction={"a": 1}, **options)
    )
    return limits.limit(1.0) / np.sqrt(1 + 1 / count)


@pytest.mark.parametrize(
    ("q", "dof", "wanted"),
    [(0.95, 2, 2.9200), (0.99, 9, 2.8214), (0.975, 4, 2.7764), (0.9995, 29, 3.6594), (0.9, 120, 1.2886)],
)
def test_limits_of_one_feature_are_quantiles_of_student(q, dof, wanted):
    assert alone(dof + 1, false_alarm_rate=1 - q) == pytest.approx(wanted, abs=6e-5)


@pytest.mark.parametrize(
    ("q", "above", "below", "wanted"),
    [(0.95, 3, 10, 3.7083), (0.99, 4, 6, 9.1483), (0.95, 2, 3, 9.5521), (0.99, 2, 120, 4.7865)],
)
def test_joint_limits_are_quantiles_of_f(q, above, below, wanted):
    count = above + below
    square = alone(count, features=above, false_alarm_rate=1 - q) ** 2
    assert square * below / (above * (count - 1)) == pytest.approx(wanted, rel=1e-4)


def test_limits_in_closed_form():
    for rate in (0.4, 0.01, 1e-9):
        # Student's t with 2 degrees of freedom, and F with 2 and 2.
        q = 1 - rate
        assert alone(3, false_alarm_rate=rate) == pytest.approx((2 * q - 1) / np.sqrt(2 * q * (1 - q)), rel=1e-6)
        square = alone(4, features=2, false_alarm_rate=rate) ** 2
        assert square * 2 / (2 * 3) == pytest.approx(q / (1 - q), rel=1e-6)


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
    flat = residual_features(np.ones(9), degree=1)
    assert flat["mean"] == 1
    assert flat["shape_1"] == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="a vector"):
        residual_features(np.ones((3, 2)))


# Limits and alarms


def cycles(values) -> list[dict[str, float]]:
    """Features a, b, ... of each cycle, from [cycles] or [cycles, features]."""
    rows = np.asarray(values, float).reshape(len(values), -1).tolist()
    return [{"abcd"[column]: value for column, value in enumerate(row)} for row in rows]


def share_of_alarms(limits, later, **options):
    alarm, count = Alarm.start(limits, **options), 0
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
        limits = feature_limits(cycles(values[:healthy]), false_alarm_rate=rate, direction={"a": -1})
        shares.append(share_of_alarms(limits, values[healthy:], smoothing=smoothing))
    assert within(rate, shares), np.mean(shares)


def test_false_alarms_of_several_features():
    """Jointly at the stated rate; each for itself, with correlated features, below it."""
    rng = np.random.default_rng(5)
    mix = np.array([[1, 0.8, 0.1], [0, 0.6, 0.1], [0, 0, 1.0]])
    rate, joint, each, confirmed = 0.05, [], [], []
    for _ in range(350):
        values = rng.normal(size=(22, 3)) @ mix
        separate = feature_limits(cycles(values[:12]), false_alarm_rate=rate)
        joint.append(
            share_of_alarms(joint_limits(cycles(values[:12]), false_alarm_rate=rate), values[12:], smoothing=0.3)
        )
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
            limits = feature_limits(
                cycles(values[:10]), false_alarm_rate=rate, direction={"a": -1}, allowed={"a": allowed}
            )
            kept.append(share_of_alarms(limits, values[10:]))
    assert np.mean(shares) < rate
    assert np.mean(unaware) > 0.3


def test_a_running_score_finds_a_slow_ramp_sooner():
    delays: dict[float, list[int]] = {1.0: [], 0.2: []}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        healthy, ramp = rng.normal(size=20), rng.normal(size=120) + 0.1 * np.arange(120)
        for smoothing, kept in delays.items():
            monitor = Monitor.calibrate(
                cycles(healthy), false_alarm_rate=0.001, direction={"a": 1}, smoothing=smoothing
            )
            kept += [next(n for n, cycle in enumerate(cycles(ramp)) if monitor.update(cycle).alarm)]
    # One cycle alone needs a deviation of 3.7; a mean of nine or so needs 1.7 and is four cycles late.
    assert np.median(delays[0.2]) < 24
    assert np.median(delays[0.2]) < np.median(delays[1.0]) - 3


def test_limits_by_hand():
    healthy = cycles([1.0, 2.0, 3.0, 4.0])
    limits = feature_limits(healthy, false_alarm_rate=0.05, direction={"a": 1}, allowed={"a": 0.5})
    deviation = np.array([4.0])
    assert limits.score(deviation) == pytest.approx(3.5 / np.std([1, 2, 3, 4], ddof=1))
    assert limits.score(-deviation) < 0
    assert limits.limit(1.0) == pytest.approx(2.3534 * np.sqrt(1.25), rel=1e-4)
    assert Alarm.start(limits).expected_false_alarms(200) == pytest.approx(10)
    both = feature_limits(healthy, false_alarm_rate=0.05)
    assert both.limit(1.0) == pytest.approx(3.1824 * np.sqrt(1.25), rel=1e-4)
    # In one dimension Hotelling's T is the two-sided t.
    assert joint_limits(healthy, false_alarm_rate=0.05).limit(0.3) == pytest.approx(both.limit(0.3), rel=1e-9)
    assert joint_limits(healthy, false_alarm_rate=0.05).score(-deviation) == pytest.approx(both.score(deviation))


def test_a_wild_or_missing_reading_does_not_poison():
    rng = np.random.default_rng(2)
    for joint in (False, True):
        healthy = cycles(rng.normal(size=(15, 2)))
        monitor = Monitor.calibrate(healthy, joint=joint, false_alarm_rate=0.001)
        before = encode(monitor.alarm)
        for bad in (np.nan, np.inf):
            record = monitor.update({"a": 0.0, "b": bad})
            assert np.isnan(record.score)
            assert not record.alarm
            assert "not finite: b" in record.note
            assert encode(monitor.alarm) == before
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
        ([1.0, 2.0, 4.0], {"false_alarm_rate": 0.7}, "between 0 and 0.5"),
        ([1.0, 2.0, 4.0], {"direction": {"z": 1}}, "unknown"),
        ([1.0, 2.0, 4.0], {"allowed": {"a": -1.0}}, "not negative"),
        ([1.0, 2.0, 4.0], {"smoothing": 0.0}, "smoothing"),
        ([1.0, 2.0, 4.0], {"confirm": (3, 2)}, "confirm"),
        ([1.0, 2.0, 4.0], {"joint": True, "allowed": {"a": 1.0}}, "leave out"),
        ([1.0, 2.0, 4.0], {"threshold": 1.0}, "both health and threshold"),
        ([1.0, 2.0, 4.0], {"threshold": 1.0, "health": [2.0]}, "3 healthy cycles, but 1"),
        ([1.0, 2.0, 4.0], {"threshold": 1.4, "health": [1.1, 1.1, 1.0]}, "already passed"),
        ([1.0, 2.0, 4.0], {"threshold": 1.4, "health": [np.nan] * 3}, "no finite value"),
    ],
)
def test_what_cannot_be_calibrated_says_why(healthy, options, message):
    with pytest.raises(ValueError, match=message):
        Monitor.calibrate([{"a": value} for value in healthy], **options)


def test_joint_needs_more_cycles_than_features_that_are_not_the_same():
    rng = np.random.default_rng(1)
    with pytest.raises(ValueError, match="too few for 4 features"):
        joint_limits(cycles(rng.normal(size=(5, 4))))
    values = rng.normal(size=(20, 2))
    with pytest.raises(ValueError, match="linearly dependent"):
        joint_limits(cycles(np.concatenate([values, values.sum(1, keepdims=True)], axis=1)))


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
    assert whole[4]["note"].startswith("not judged, not finite: mean; no usable health")
    assert whole[-1]["alarm"]
    assert "passed" in whole[-1]["note"]
    assert monitor.first_alarm is not None
    with pytest.raises(ValueError, match="format 99"):
        Monitor.from_state({"format": 99})


def test_parts_of_the_state_are_plain_too():
    alarm = Alarm.start(feature_limits(cycles([1.0, 2.0, 4.0])))
    assert encode(decode(Alarm, encode(alarm))) == encode(alarm)
    life = Life.start(2.0, 1.0).update(1.9)
    assert encode(decode(Life, encode(life))) == encode(life)
    with pytest.raises(ValueError, match="damaged"):
        decode(Life, encode(alarm))


# Measured cells


@measured
@pytest.mark.parametrize("cell", ["B0005", "B0006", "B0018"])
def test_alarms_of_measured_cells(cell):
    """Levels from cycles 1-10, 3 % change allowed: quiet in 11-20, awake before 10 % fade, in the order of the fade."""
    values = capacity(cell)
    allowed = {"capacity": 0.03 * float(values[:10].mean())}
    features = [{"capacity": float(value)} for value in values]
    options = {"false_alarm_rate": 0.001, "confirm": (2, 3)}
    monitor = Monitor.calibrate(features[:10], direction={"capacity": -1}, allowed=allowed, **options)
    records = [monitor.update(cycle) for cycle in features[10:]]
    assert not any(record.alarm for record in records[:10])
    assert monitor.first_alarm is not None
    assert values[monitor.first_alarm - 1] > 0.9 * values[0]
    running, fade = (np.argsort(np.argsort(series)) for series in ([r.running for r in records], -values[10:]))
    assert np.corrcoef(running, fade)[0, 1] > 0.95
