"""Noise levels by maximum likelihood: known ones are found, within their standard errors."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise, fit_noise
from twinfold.estimate._fit_noise import _log_likelihood

DT, PROCESS, SENSOR = 0.1, 0.5, np.array([0.05, 0.2])
TWIN = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), integrator=tw.Euler())


def records(runs=4, samples=150, seed=0):
    """An oscillator pushed by white noise, both states measured; some values are missing, and runs differ in length."""
    rng, found = np.random.default_rng(seed), []
    step = np.array([[1, DT], [-DT, 1]])
    for run in range(runs):
        x, count = rng.normal(size=2), samples - 10 * run
        xs = [x]
        for _ in range(count - 1):
            xs.append(step @ xs[-1] + np.sqrt(DT) * np.array([0, PROCESS]) * rng.normal(size=2))
        y = np.stack(xs) + SENSOR * rng.normal(size=(count, 2))
        y[3, 0] = np.nan
        found.append(tw.Run(f"run {run}", ts=DT * np.arange(count), y=y, x0=xs[0]))
    return tw.Dataset(tuple(found), ("x", "v"))


def test_known_levels_are_found():
    estimator = ExtendedKalmanFilter(TWIN, Noise([0.0, 2.0], [0.3, 0.3]))
    found = fit_noise(estimator, records(), std=[0.01, 0.01])
    assert found.converged
    assert found.undetermined == ()
    # What is zero stays zero. About 540 samples tell each value: standard errors of 3 to 10 %.
    assert found.noise.process[0] == 0
    np.testing.assert_allclose(found.noise.process[1], PROCESS, rtol=0.25)
    np.testing.assert_allclose(found.noise.measurement, SENSOR, rtol=0.12)
    # A maximum: every other level, by a fifth more or less, is less likely.
    for factors in ([1.2, 1, 1], [0.8, 1, 1], [1, 1.2, 1], [1, 0.8, 1], [1, 1, 1.2], [1, 1, 0.8]):
        noise = Noise([0.0, factors[0] * found.noise.process[1]], found.noise.measurement * np.array(factors[1:]))
        start = {"std": (0.01, 0.01), "parameters": None, "exact_level": False}
        other = eqx.filter_jit(_log_likelihood)(ExtendedKalmanFilter(TWIN, noise), records().batch(), start)
        assert other < found.log_likelihood - 0.5


def test_levels_of_an_open_loop_make_its_errors_as_large_as_its_bands():
    """A constant push that the model does not know: innovations hardly show it, the errors of a simulation do.

    x' = c is predicted as x' = 0, with c = +-0.3 at random: at time t the squared error is 0.09 t^2 on average, beside
    that of the sensor. Of white process noise q and a sensor r the variance is r^2 + q^2 t, and the composite
    likelihood is stationary where the derivatives of sum log(v) + e / v vanish.
    """
    ts, rng = np.arange(0.0, 2.05, 0.1), np.random.default_rng(3)
    pushes = 0.3 * np.where(np.arange(200) % 2, 1.0, -1.0)
    y = pushes[:, None] * ts + 0.05 * rng.normal(size=(200, len(ts)))
    data = tw.Dataset.from_arrays(ts, y[..., None], x0=[np.zeros(1)] * 200)
    estimator = ExtendedKalmanFilter(tw.Twin(lambda x: 0 * x, integrator=tw.Euler()), Noise([0.1], [0.1]))
    found = fit_noise(estimator, data, std=[0.0], open_loop=True)
    assert found.converged
    q, r = float(found.noise.process[0]), float(found.noise.measurement[0])
    variance, square = r**2 + q**2 * ts, np.mean(y**2, axis=0)
    slope = (1 - square / variance) / variance
    scale = np.abs(slope).sum()
    assert abs(slope.sum()) < 1e-3 * scale
    assert abs((slope * ts).sum()) < 1e-3 * scale
    assert q > 1.5 * float(fit_noise(estimator, data, std=[0.0]).noise.process[0])  # the innovations see less


@pytest.mark.slow
def test_what_the_data_do_not_tell_is_named():
    """Process noise a thousand times below that of the sensors leaves no trace in a short record."""
    rng = np.random.default_rng(1)
    data = tw.Dataset.from_arrays(np.arange(20.0), [1 + rng.normal(size=(20, 1))])
    estimator = ExtendedKalmanFilter(tw.Twin(lambda x: 0 * x), Noise([1e-3], [1.0]))
    found = fit_noise(estimator, data, std=[1.0])
    assert found.undetermined == ("process[0]",)


def test_a_filter_that_fails_is_reported():
    twin = tw.Twin(lambda x: x**3, integrator=tw.Euler())
    data = tw.Dataset.from_arrays(np.arange(20.0), [np.append(3.0, np.full(19, np.nan))[:, None]])
    estimator = ExtendedKalmanFilter(twin, Noise([0.1], [100.0]))
    with pytest.raises(ValueError, match="fails on these data"):
        fit_noise(estimator, data, std=[1.0])
