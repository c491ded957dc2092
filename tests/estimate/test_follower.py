"""The follower: the filter one sample at a time, whatever arrives."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Follower, Noise, filtered

TWIN = tw.Twin(
    lambda x, w, p: jnp.stack([x[1], w[0] - p["k"] * x[0]]),
    params={"k": tw.Unknown(2.0, positive=True, spread=0.1)},
    observe=lambda x: x,
    integrator=tw.Midpoint(),
)
ESTIMATOR = ExtendedKalmanFilter(TWIN, Noise([0.0, 0.1], [0.05, 0.1], drift={"k": 0.01}), gate=1e-6)
TS = np.cumsum(np.random.default_rng(0).uniform(0.02, 0.1, 40))


def samples():
    rng = np.random.default_rng(1)
    w = np.sin(TS)[:, None]
    exact = TWIN.simulate([1.0, 0.0], TS, w, p={"k": 2.1}).ys
    y = np.asarray(exact) + [0.05, 0.1] * rng.normal(size=(40, 2))
    y[5, 0] = y[6] = np.nan
    return y, w


def follower():
    return Follower(ESTIMATOR, [1.2, 0.1], [0.3, 0.3])


def test_the_same_numbers_as_along_a_record():
    y, w = samples()
    one = follower()
    outputs = [one.step(t, w=w[k], y=y[k]) for k, t in enumerate(TS)]
    belief = ESTIMATOR.init(TS[0], [1.2, 0.1], [0.3, 0.3], w=w[0])
    found = filtered(ESTIMATOR, belief, jnp.asarray(TS), jnp.asarray(y), jnp.asarray(w))
    np.testing.assert_allclose([each.x for each in outputs], found.corrected.mean[:, :2], rtol=1e-10)
    np.testing.assert_allclose([each.y for each in outputs], found.innovation.y, rtol=1e-10)
    np.testing.assert_allclose([each.y_std for each in outputs], found.innovation.std, rtol=1e-10)
    assert all(each.ok for each in outputs)
    assert [each.accepted.sum() for each in outputs[4:8]] == [2, 1, 0, 2]
    # The parameter moves from 2.0 towards the 2.1 of the plant, and is known better.
    last = outputs[-1]
    assert last.parameters_std["k"] < 0.2 * 0.75
    assert abs(last.parameters["k"] - 2.1) < 3 * last.parameters_std["k"]


def test_saved_and_restored_bit_for_bit():
    y, w = samples()
    one, other = follower(), follower()
    for k in range(20):
        one.step(TS[k], w=w[k], y=y[k])
    other.restore(json.loads(json.dumps(one.state())))
    for k in range(20, 40):
        a, b = one.step(TS[k], w=w[k], y=y[k]), other.step(TS[k], w=w[k], y=y[k])
        for name in ("x", "x_std", "y", "y_std", "nis"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert one.state() == other.state()
    with pytest.raises(ValueError, match="estimated values"):
        Follower(ExtendedKalmanFilter(TWIN, Noise([0.1, 0.1], [0.1, 0.1])), [1.0, 0.0], [1.0, 1.0]).restore(one.state())


def test_bad_samples_are_reported_and_change_nothing():
    y, w = samples()
    one = follower()
    assert "input of the first sample" in one.step(0.0, w=[np.nan], y=y[0]).message
    assert one.step(TS[0], w=w[0], y=y[0]).ok
    before = one.state()
    for t, message in ((TS[0], "is not after"), (TS[0] - 1, "is not after"), (np.nan, "not a number")):
        output = one.step(t, w=w[1], y=y[1])
        assert not output.ok
        assert message in output.message
        assert np.isnan(output.x).all()
        assert one.state() == before
    held = one.step(TS[1], w=[np.nan], y=y[1])
    assert held.ok
    assert "Input 0 is missing" in held.message
    wild = one.step(TS[2], w=w[2], y=[50.0, y[2, 1]])
    assert wild.message == "Output 0 was refused as an outlier."
    assert wild.accepted.tolist() == [False, True]
    for call in (lambda: one.step(TS[3], w=w[3], y=[1.0]), lambda: one.step(TS[3], y=y[3])):
        with pytest.raises(ValueError, match=r"y has 1|w has shape"):
            call()


def test_a_forecast_is_the_prediction_without_measurements():
    y, w = samples()
    one, other = follower(), follower()
    for k in range(10):
        one.step(TS[k], w=w[k], y=y[k])
        other.step(TS[k], w=w[k], y=y[k])
    forecast = one.ahead(TS[10:16], w[10:16])
    outputs = [other.step(TS[k], w=w[k]) for k in range(10, 16)]
    np.testing.assert_allclose(forecast.y, [each.y for each in outputs], rtol=1e-10)
    np.testing.assert_allclose(forecast.y_std, [each.y_std for each in outputs], rtol=1e-10)
    assert (np.diff(forecast.x_std[:, 1]) > 0).all()
    lower, upper = forecast.band(0.95)
    np.testing.assert_allclose(upper - forecast.y, norm.ppf(0.975) * forecast.y_std)
    np.testing.assert_allclose(forecast.y - lower, upper - forecast.y)


def test_the_first_measurement_gives_the_state_where_it_can():
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), observe=lambda x: x[:1], initial=lambda y: jnp.append(y, 0.0))
    one = Follower(ExtendedKalmanFilter(twin, Noise([0.1, 0.1], [0.1])), None, [0.1, 1.0])
    assert "has not started" in one.step(0.0, y=[np.nan]).message
    output = one.step(0.5, y=[0.7])
    np.testing.assert_allclose(output.x, [0.7, 0.0], atol=1e-15)
    hidden = ExtendedKalmanFilter(tw.Twin(lambda x: -x, observe=lambda x: x[:1]), Noise([0.1, 0.1], [0.1]))
    with pytest.raises(ValueError, match="x0: the state is not what is observed"):
        Follower(hidden, None, [0.1, 1.0])


def test_a_twin_that_diverges_says_so():
    one = Follower(
        ExtendedKalmanFilter(tw.Twin(lambda x: x**3, integrator=tw.Euler()), Noise([0.1], [0.1])), [3.0], [0.1]
    )
    outputs = [one.step(float(t)) for t in range(12)]
    failed = [not each.ok for each in outputs]
    assert not any(failed[:3])
    assert all(failed[failed.index(True) :])
    assert "non-finite" in outputs[-1].message
    with pytest.raises(ValueError, match="no state to continue"):
        one.ahead([20.0])


def test_float32_is_kept():
    one = Follower(ESTIMATOR, np.array([1.2, 0.1], np.float32), [0.3, 0.3])
    y, w = samples()
    output = one.step(TS[0], w=w[0], y=y[0])
    assert output.x.dtype == np.float32
    assert output.ok


def test_late_samples_give_exactly_the_numbers_of_samples_in_order():
    """Whatever the order within the lag, and whichever channel comes first."""
    y, w = samples()
    ordered, shuffled = follower(), Follower(ESTIMATOR, [1.2, 0.1], [0.3, 0.3], lag=6)
    expected = [ordered.step(t, w=w[k], y=y[k]) for k, t in enumerate(TS[:20])]
    order = [0, 1, 2, 5, 3, 4, 6, 9, 8, 7, 10, 11, 15, 12, 14, 13, 16, 17, 19, 18]
    for k in order:
        output = shuffled.step(TS[k], w=w[k], y=[y[k, 0], np.nan])
        again = shuffled.step(TS[k], w=[np.nan], y=[np.nan, y[k, 1]])
        assert ("later ones were filtered again" in output.message) == (k in (3, 4, 7, 8, 12, 13, 14, 18))
        assert again.t == TS[k]
    assert shuffled.state()["belief"] == ordered.state()["belief"]
    for name in ("x", "x_std", "y", "residual", "nis"):
        np.testing.assert_array_equal(getattr(shuffled.latest, name), getattr(expected[-1], name))
    # One that is too old changes nothing; what is saved has the past too.
    before = shuffled.state()
    assert "too long ago" in shuffled.step(TS[5] + 1e-3, w=w[5], y=y[5]).message
    assert shuffled.state() == before
    other = Follower(ESTIMATOR, [1.2, 0.1], [0.3, 0.3], lag=6)
    other.restore(json.loads(json.dumps(before)))
    between = (TS[17] + TS[18]) / 2
    a, b = (each.step(between, w=w[17], y=y[17]) for each in (shuffled, other))
    assert a.message == "The sample came late: 2 later ones were filtered again."
    np.testing.assert_array_equal(a.x, b.x)
    assert shuffled.state() == other.state()
    with pytest.raises(ValueError, match="lag=-1"):
        Follower(ESTIMATOR, [1.2, 0.1], [0.3, 0.3], lag=-1)
