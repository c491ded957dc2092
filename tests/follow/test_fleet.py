"""Many followers at once: each is the follower of one asset, whatever the others do."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Follower, Noise
from twinfold.follow import Fleet, InnovationAlarms
from twinfold.follow import _fleet as fleet_module

TWIN = tw.Twin(
    lambda x, w, p: jnp.stack([x[1], w[0] - p["k"] * x[0]]),
    params={"k": tw.Unknown(2.0, positive=True, spread=0.1)},
    observe=lambda x: x[:1],
    initial=lambda y: jnp.append(y, 0.0),
    integrator=tw.Midpoint(),
)
ESTIMATOR = ExtendedKalmanFilter(TWIN, Noise([0.0, 0.1], [0.05], drift={"k": 0.01}), gate=1e-6)
FLEET = Fleet(ESTIMATOR, std=[0.1, 0.5], max_gap=5.0)  # compiled once


def fleet():
    FLEET.restore([], {}, 1)
    return FLEET


def record(seed, length=30):
    rng = np.random.default_rng(seed)
    ts = np.cumsum(rng.uniform(0.02, 0.1, length))
    w = np.sin(ts + seed)[:, None]
    y = np.cos(ts + seed)[:, None] + 0.05 * rng.normal(size=(length, 1))
    y[7] = np.nan
    return ts, w, y


def test_each_asset_is_the_follower_of_one():
    records = {f"asset {seed}": record(seed) for seed in range(70)}  # more than one batch
    many = fleet()
    outputs = [
        many.step(list(records), *(np.stack([each[part][k] for each in records.values()]) for part in range(3)))
        for k in range(30)
    ]
    for place in (0, 5, 69):
        ts, w, y = records[f"asset {place}"]
        one = Follower(ESTIMATOR, None, [0.1, 0.5])
        for k, output in enumerate(outputs):
            alone = one.step(ts[k], w=w[k], y=y[k])
            np.testing.assert_allclose(output.x[place], alone.x, rtol=1e-10)
            np.testing.assert_allclose(output.x_std[place], alone.x_std, rtol=1e-9)
            np.testing.assert_allclose(output.y_std[place], alone.y_std, rtol=1e-9)
            np.testing.assert_allclose(output.residual[place], alone.residual, atol=1e-12)
            np.testing.assert_allclose(output.parameters[place, 0], alone.parameters["k"], rtol=1e-10)
            assert output.ok[place]


def test_the_same_bits_whoever_else_has_a_sample_and_after_a_restart():
    ts, w, y = record(3)
    alone = fleet()
    first = [alone.step(["a"], ts[k : k + 1], w[k : k + 1], y[k : k + 1]) for k in range(30)]
    among = fleet()
    names = [f"other {k}" for k in range(40)]
    second = []
    for k in range(30):
        if k == 15:  # a restart
            names_then, saved = list(among.assets), among.arrays()
            among.restore(names_then, saved, 1)
        others = len(names) if k % 3 else 2
        t = np.append(np.full(others, ts[k]), ts[k])
        out = among.step([*names[:others], "a"], t, np.tile(w[k], (others + 1, 1)), np.tile(y[k], (others + 1, 1)))
        second.append(out)
    for one, other in zip(first, second, strict=True):
        for name in ("x", "x_std", "y_std", "residual", "nis", "parameters_std"):
            assert np.array_equal(getattr(one, name)[0], getattr(other, name)[-1], equal_nan=True), name


def test_a_bad_sample_is_reported_and_contained():
    many, clock = fleet(), itertools.count(100.0, 0.1)

    def give(t, w=0.0, y=1.0, asset="a"):
        out = many.step([asset, "good"], [t, next(clock)], [[w], [0.0]], [[y], [1.0]])
        assert out.ok[1]
        assert out.message[1] == ""
        return out

    assert give(0.0, y=np.nan).message[0] == fleet_module.NO_START
    assert give(0.0, w=np.nan).message[0] == fleet_module.NO_INPUT
    assert give(0.0).ok[0]
    assert give(0.1, w=np.inf).message[0] == fleet_module.HELD
    assert give(0.1).message[0] == fleet_module.AGAIN
    assert give(0.05).message[0] == fleet_module.BEFORE
    assert give(np.nan).message[0] == fleet_module.NO_TIME
    assert give(0.2, y=1e300).message[0] == fleet_module.REFUSED
    assert give(0.3).ok[0]
    assert give(10.0).message[0] == fleet_module.GAP
    failed = [give(12.0, w=1e308), give(16.0, w=1e308)][-1]
    assert not failed.ok[0]
    assert failed.message[0].endswith(fleet_module.OVER)
    again = give(10.3)
    assert again.ok[0]
    np.testing.assert_allclose(again.x[0, 0], 1.0)
    # A finite kick that is beyond all measurements: the asset is lost, and found again.
    give(10.31, w=1e12)
    texts = [give(10.32 + 1e-3 * k).message[0] for k in range(55)]
    assert fleet_module.LOST in texts[-5]
    assert texts[-1] == ""
    # A time far ahead, by mistake: the asset follows it there, and comes back after ten samples.
    assert give(1e9).message[0] == fleet_module.GAP
    assert [give(10.5 + 0.1 * k).message[0] for k in range(10)] == [fleet_module.BEFORE] * 10
    assert give(11.6).message[0] == fleet_module.SET_BACK
    assert give(11.7).ok[0]


def test_outputs_at_different_rates_each_on_a_line_of_its_own():
    """The model and the outputs are linear: two values one after the other tell what both tell together."""
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), integrator=tw.Midpoint())
    estimator = ExtendedKalmanFilter(twin, Noise([0.1, 0.1], [0.05, 0.2]))
    together, apart = (Fleet(estimator, [1.0, 0.0], std=[0.1, 0.5]) for _ in range(2))
    for k in range(8):
        t, y = k / 10, np.array([np.cos(0.1 * k), -np.sin(0.1 * k)])
        if k % 4:  # the second output is measured at every fourth sample only
            y[1] = np.nan
        whole = together.step(["a"], [t], None, [y])
        part = apart.step(["a"], [t], None, [[y[0], np.nan]])
        if k % 4 == 0:
            part = apart.step(["a"], [t], None, [[7.0, y[1]]])  # what is known already is not used again
            assert part.accepted[0].tolist() == [False, True]
        assert part.ok[0]
        np.testing.assert_allclose(part.x, whole.x, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(part.x_std, whole.x_std, rtol=1e-11)
    assert apart.step(["a"], [0.7], None, [[1.0, np.nan]]).message == [fleet_module.AGAIN]


def test_the_state_of_another_estimator_is_refused():
    many = fleet()
    many.step(["a"], [0.0], [[0.0]], [[1.0]])
    saved = many.arrays()
    other = Fleet(ExtendedKalmanFilter(TWIN, Noise([0.0, 0.1], [0.05])), std=[0.1, 0.5])
    with pytest.raises(ValueError, match="does not fit the estimator"):
        other.restore(["a"], saved, 1)
    with pytest.raises(ValueError, match="named twice"):
        many.step(["a", "a"], [1.0, 2.0], [[0.0], [0.0]], [[1.0], [1.0]])


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_rate_of_false_alarms(calibrated):
    """Of 4,000 assets at one window, at most as many alarms as the stated rate allows, and not many fewer."""
    rng, rate, assets = np.random.default_rng(0), 0.02, 4000
    if calibrated:  # the filter states half of the standard deviation
        healthy = [2 * rng.normal(size=(2000, 2)) for _ in range(20)]
        alarms = InnovationAlarms.calibrated(["a", "b"], healthy, window=10, false_alarm_rate=rate, gate=1e-12)
        assert alarms.calibrated_on == 4000
    else:
        alarms = InnovationAlarms(["a", "b"], window=10, false_alarm_rate=rate)
    rows, judged = np.arange(assets), alarms.update(np.arange(0), np.zeros((0, 2)))
    for _ in range(10 * 6):
        z = (1 + calibrated) * rng.normal(size=(assets, 2))
        z[rng.uniform(size=z.shape) < 0.1] = np.nan
        judged = alarms.update(rows, z)
    low, high = binom.ppf([0.001, 0.999], assets, rate)
    assert 0.4 * low <= judged.alarm.sum() <= high


def test_a_change_is_an_alarm_and_one_wild_value_is_none():
    rng = np.random.default_rng(1)
    alarms = InnovationAlarms(["y"], window=20, false_alarm_rate=1e-4, gate=1e-6)
    rows, seen, saved = np.arange(3), np.zeros(3, bool), alarms.arrays(3)
    for k in range(400):
        z = rng.normal(size=(3, 1))
        z[1] = 1e6 if k == 30 else z[1]
        z[2] += 1.0 if k >= 200 else 0.0
        judged = alarms.update(rows, z)
        assert not (judged.raised & seen).any()
        seen |= judged.raised
        if k == 199:
            assert not seen.any()
            saved = alarms.arrays(3)
    assert seen.tolist() == [False, False, True]
    alarms.restore(saved, 3)
    assert np.isfinite(alarms.update(rows, np.zeros((3, 1))).running).all()


def test_a_window_with_too_few_values_is_not_judged():
    alarms = InnovationAlarms(["y"], window=10)
    judged = alarms.update(np.array([0]), np.array([[np.nan]]))
    for k in range(19):
        judged = alarms.update(np.array([0]), np.array([[np.nan if k % 3 else 9.0]]))
    assert np.isnan(judged.running).all()
    assert not judged.alarm.any()
