"""Bands of predictions, coverage, and offsets of sensors and inputs."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Follower, MovingHorizon, Noise, simulate_with_band, with_bias
from twinfold.metrics import coverage

TS = np.linspace(0, 2, 21)


def test_the_band_of_a_linear_twin_is_exact():
    """x' = -k x: the variances of start, rate and process noise add up, and so does that of the sensor."""
    twin = tw.Twin(
        lambda x, p: -p["k"] * x,
        params={"k": tw.Unknown(1.0, positive=True)},
        observe=lambda x: 2 * x,
        integrator=tw.RK4(4),
    )
    noise = Noise([0.05], [0.01], drift={"k": 0.0})
    for estimator in (ExtendedKalmanFilter(twin, noise), MovingHorizon(twin, noise)):
        found = simulate_with_band(estimator, [1.0], [0.1], TS, parameters={"k": 0.02})
        decay = np.exp(-TS)
        # d x / d raw = -t exp(-t); noise that came in at s has decayed by exp(-(t - s)), and is counted at samples.
        steps = np.array([np.sum(np.exp(-2 * (t - TS[1:][TS[1:] <= t + 1e-9]))) for t in TS]) * 0.1 * 0.05**2
        variance = (0.1 * decay) ** 2 + (0.02 * TS * decay) ** 2 + steps
        np.testing.assert_allclose(found.y[:, 0], 2 * decay, rtol=1e-7)
        np.testing.assert_allclose(found.x_std[:, 0], np.sqrt(variance), rtol=1e-5)
        np.testing.assert_allclose(found.y_std[:, 0], np.sqrt(4 * variance + 0.01**2), rtol=1e-5)


def test_without_measurements_a_follower_is_the_stepper_with_a_band():
    twin = tw.Twin(lambda x, w: jnp.stack([x[1], w[0] - jnp.sin(x[0])]), observe=lambda x: x[:1])
    estimator = ExtendedKalmanFilter(twin, Noise([0.0, 0.05], [0.02]))
    w, x0, std = np.cos(3 * TS)[:, None], [0.8, 0.0], [0.1, 0.2]
    follower, stepper = Follower(estimator, x0, std), twin.stepper(x0)
    found = [follower.step(t, each) for t, each in zip(TS, w, strict=True)]
    free = [stepper.step(t, each) for t, each in zip(TS, w, strict=True)]
    np.testing.assert_allclose([each.y for each in found], [each.y for each in free], rtol=1e-12)
    known = simulate_with_band(estimator, x0, std, TS, w)
    np.testing.assert_allclose([each.band(0.9) for each in found], np.stack(known.band(0.9), axis=1), rtol=1e-12)
    assert np.ptp(known.y_std) > 0.05


def test_the_band_of_a_twin_on_a_manifold_lies_in_its_tangent_space():
    """A point on the unit circle: only its angle is uncertain, and noise across the circle does not count."""
    twin = tw.Twin(
        lambda x: jnp.stack([-x[1], x[0]]), constraint=tw.Constraint(lambda x: x @ x - 1), projection=tw.Newton()
    )
    estimator = ExtendedKalmanFilter(twin, Noise([0.1, 0.1], [1e-6, 1e-6]))
    found = simulate_with_band(estimator, [1.0, 0.0], [0.2, 0.05], TS)
    angle = np.sqrt(0.05**2 + 0.1**2 * TS)
    exact = np.abs(np.stack([np.sin(TS), np.cos(TS)], axis=1)) * angle[:, None]
    np.testing.assert_allclose(found.x_std, exact, atol=2e-6)


def test_coverage_counts_measured_values():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(2, 50_000, 1))
    half = norm.isf(0.05) * np.ones_like(y)
    mask = rng.uniform(size=y.shape) < 0.5
    found = coverage(-half, half, np.where(mask, y, 1e9), mask)
    np.testing.assert_allclose(found, 0.9, atol=4 * np.sqrt(0.09 / 25_000))
    np.testing.assert_array_equal(coverage(np.nan * half, half, y, mask), 0)


def test_offsets_of_a_sensor_and_of_an_input_are_found():
    """Two sensors of one state, one with an offset, and an input that is wrong by a constant."""
    twin = tw.Twin(lambda x, w: jnp.stack([x[1], w[0] - 2 * x[0] - x[1]]), observe=lambda x: jnp.stack([x[0], x[0]]))
    biased = with_bias(twin, sensors=[1], inputs=[0])
    rng, ts = np.random.default_rng(0), 0.1 * np.arange(200)
    w = np.sin(ts)[:, None]
    y = np.asarray(twin.simulate([0.5, 0.0], ts, w + 0.4).ys) + [0.0, -0.3] + 0.01 * rng.normal(size=(200, 2))
    noise = Noise([0.0, 0.01], [0.01, 0.01], drift={"sensor_bias": 0.0, "input_bias": 0.0})
    start = {"sensor_bias": 1.0, "input_bias": 1.0}
    follower = Follower(ExtendedKalmanFilter(biased, noise), [0.0, 0.0], [1.0, 1.0], parameters=start)
    output = [follower.step(t, w=w[k], y=y[k]) for k, t in enumerate(ts)][-1]
    for name, exact in (("sensor_bias", -0.3), ("input_bias", 0.4)):
        std = output.parameters_std[name]
        assert std < 0.02
        assert abs(output.parameters[name] - exact) < 3.5 * std
    for arguments, message in (({}, "name the sensors"), ({"sensors": [0, 0]}, "different indices")):
        with pytest.raises(ValueError, match=message):
            with_bias(twin, **arguments)
