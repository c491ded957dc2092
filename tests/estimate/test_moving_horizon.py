"""Moving-horizon estimation: the exact posterior, the optimum of another solver, the manifold and bounds."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares

import twinfold as tw
from tests.estimate.test_unconstrained import MEAN, MEASUREMENT, PROCESS, START, linear_twin, record
from twinfold.estimate import ExtendedKalmanFilter, Follower, MovingHorizon, Noise, filtered, smoothed


@pytest.mark.parametrize("window", [4, 12])
def test_a_linear_twin_gives_the_kalman_filter_for_any_window(window):
    """A whole record (12) or the last samples and an arrival: means and covariances to 1e-8."""
    ts, y, w = (jnp.asarray(each) for each in record())
    noise = Noise(PROCESS, MEASUREMENT)
    estimator, kalman = MovingHorizon(linear_twin(), noise, window=window), ExtendedKalmanFilter(linear_twin(), noise)
    found = filtered(estimator, estimator.init(ts[0], MEAN, START, w=w[0]), ts, y, w)
    exact = filtered(kalman, kalman.init(ts[0], MEAN, START, w=w[0]), ts, y, w)
    assert np.asarray(found.innovation.result == tw.RESULTS.successful).all()
    np.testing.assert_allclose(found.corrected.mean, exact.corrected.mean, atol=1e-8)
    np.testing.assert_allclose(found.corrected.covariance, exact.corrected.covariance, atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, exact.log_likelihood, rtol=1e-8)
    if window == 12:
        # All states of the window are those of the smoother.
        last = jax.tree.map(lambda leaf: leaf[-1], found.corrected)
        states, _, _ = estimator._states(last.window.errors, last.window, exact=True)
        np.testing.assert_allclose(states, smoothed(kalman, exact).mean, atol=1e-8)


PENDULUM = tw.Twin(
    lambda x: jnp.stack([x[1], -9.0 * jnp.sin(x[0])]), observe=lambda x: jnp.sin(x[:1]), integrator=tw.Midpoint()
)
SENSOR, PUSH = 0.05, 0.3
TS = np.cumsum(np.r_[0.0, np.random.default_rng(0).uniform(0.05, 0.15, 11)])


def pendulum_runs(count):
    """The pendulum far from rest, its start known badly; only the sine of the angle is measured."""
    rng = np.random.default_rng(1)
    x, rows = np.array([1.5, 0.0]) + np.array([0.4, 1.0]) * rng.normal(size=(count, 2)), []
    for k in range(len(TS)):
        rows.append(x)
        if k + 1 < len(TS):
            dt = TS[k + 1] - TS[k]
            middle = x + dt / 2 * np.stack([x[:, 1], -9.0 * np.sin(x[:, 0])], axis=1)
            x = x + dt * np.stack([middle[:, 1], -9.0 * np.sin(middle[:, 0])], axis=1)
            x = x + np.sqrt(dt) * np.array([0.0, PUSH]) * rng.normal(size=(count, 2))
    xs = np.stack(rows, axis=1)
    return xs, np.sin(xs[..., :1]) + SENSOR * rng.normal(size=(count, len(TS), 1))


@pytest.fixture(scope="module")
def swings():
    """Eighty runs: moving horizon with all samples and with four, and the extended filter."""
    xs, y = pendulum_runs(80)
    noise, found = Noise([0.0, PUSH], [SENSOR]), {}
    for name, estimator in {
        "whole": MovingHorizon(PENDULUM, noise, window=len(TS), tolerance=1e-9, max_steps=100),
        "four": MovingHorizon(PENDULUM, noise, window=4),
        "extended": ExtendedKalmanFilter(PENDULUM, noise),
    }.items():
        belief = estimator.init(0.0, [1.5, 0.0], [0.4, 1.0])
        run = jax.jit(jax.vmap(lambda y, e=estimator, b=belief: filtered(e, b, jnp.asarray(TS), y).corrected))
        found[name] = run(jnp.asarray(y))
    return xs, y, found


@pytest.mark.slow
def test_the_optimum_of_a_nonlinear_window_is_that_of_another_solver(swings):
    """SciPy on all states as unknowns (multiple shooting) minimises the same cost."""
    _, y, found = swings

    def step(x, dt):
        middle = x + dt / 2 * np.array([x[1], -9.0 * np.sin(x[0])])
        return x + dt * np.array([middle[1], -9.0 * np.sin(middle[0])])

    def cost(flat, y):
        # The angle has no process noise: each velocity before the noise is an unknown, and its jump a residual.
        start, jumps = flat[:2], flat[2:]
        rows, x = [(start - [1.5, 0.0]) / [0.4, 1.0]], start
        rows.append((np.sin(x[:1]) - y[0]) / SENSOR)
        for k in range(len(TS) - 1):
            dt = TS[k + 1] - TS[k]
            x = step(x, dt) + np.array([0, jumps[k]])
            rows += [jumps[k : k + 1] / (np.sqrt(dt) * PUSH), (np.sin(x[:1]) - y[k + 1]) / SENSOR]
        return np.concatenate(rows), x

    for run in range(5):
        first = np.r_[1.5, 0.0, np.zeros(len(TS) - 1)]
        best = least_squares(lambda v, y=y[run]: cost(v, y)[0], first, xtol=1e-12, ftol=1e-12, gtol=1e-12)
        np.testing.assert_allclose(found["whole"].mean[run, -1], cost(best.x, y[run])[1], atol=1e-6)


@pytest.mark.slow
def test_a_short_window_is_close_to_a_whole_one_and_better_than_a_filter(swings):
    xs, _, found = swings
    error = {name: np.asarray(each.mean[:, -1]) - xs[:, -1] for name, each in found.items()}
    rms = {name: np.sqrt(np.mean(each**2)) for name, each in error.items()}
    assert rms["four"] < 1.2 * rms["whole"]
    assert rms["four"] < 0.5 * rms["extended"]


@pytest.mark.slow
def test_on_a_manifold_with_an_uncertain_level_and_a_parameter():
    """A free body whose inertia is followed: every estimate has the estimated energy and momentum, to rounding."""
    inertia = jnp.array([1.6, 1.0, 2 / 3])

    def body(p):
        return jnp.stack([p["first"], inertia[1], inertia[2]])

    twin = tw.Twin(
        lambda x, p: jnp.cross(body(p) * x, x) / body(p),
        params={"first": tw.Unknown(1.5, positive=True, spread=0.1)},
        observe=lambda x: x[:2],
        constraint=tw.Conserved(lambda x, p: jnp.stack([body(p) @ x**2 / 2, (body(p) * x) @ (body(p) * x)])),
        projection=tw.Newton(),
    )
    estimator = MovingHorizon(twin, Noise([0.01] * 3, [0.02] * 2, drift={"first": 0.0}), window=6)
    ts = jnp.linspace(0, 6, 31)
    y = twin.simulate([0.9, 0.2, 0.6], ts, p={"first": 1.6}).ys + 0.02 * np.random.default_rng(3).normal(size=(31, 2))
    found = filtered(estimator, estimator.init(0.0, [0.8, 0.1, 0.7], [0.2] * 3), ts, y)
    assert np.asarray(found.innovation.result == tw.RESULTS.successful).all()
    for belief in (found.predicted, found.corrected):
        x, level, raw = np.split(np.asarray(belief.mean), [3, 5], axis=1)
        values = np.stack([1.5 * np.exp(raw[:, 0]), np.full(31, 1.0), np.full(31, 2 / 3)], axis=1)
        exact = np.stack([np.sum(values * x**2, axis=1) / 2, np.sum((values * x) ** 2, axis=1)], axis=1)
        np.testing.assert_allclose(exact, level, rtol=1e-12)
    estimate = jax.vmap(estimator.estimate)(found.corrected)
    std = float(estimate.parameters_std["first"][-1])
    assert std < 0.5 * 0.15
    assert abs(float(estimate.parameters["first"][-1]) - 1.6) < 3.5 * std


def tank():
    return tw.Twin(
        lambda x, w: w - jnp.sqrt(x),  # not defined below zero
        constraint=tw.Bounds(lambda x: x, lower=0.0),
        projection=tw.Newton(),
        integrator=tw.Euler(),
    )


@pytest.mark.slow
def test_bounds_hold_and_are_left_when_measurements_say_so():
    estimator = MovingHorizon(tank(), Noise([0.1], [0.1]), window=4)
    ts, w = jnp.linspace(0, 1, 11), jnp.zeros((11, 1))
    y = jnp.asarray([0.1, -0.2, -0.3, -0.2, -0.1, 0.0, 0.3, 0.5, 0.5, 0.5, 0.5])[:, None]
    found = filtered(estimator, estimator.init(0.0, [0.1], [0.2], w=w[0]), ts, y, w)
    for belief in (found.predicted, found.corrected):
        assert np.asarray(belief.mean).min() >= 0
    mean, variance = np.asarray(found.corrected.mean[:, 0]), np.asarray(found.corrected.covariance[:, 0, 0])
    assert mean[2] < 1e-6
    assert variance[2] > 1e-4
    assert mean[-1] > 0.1


@pytest.mark.slow
def test_in_a_follower_saved_and_restored_bit_for_bit():
    _, y = pendulum_runs(1)
    estimator = MovingHorizon(PENDULUM, Noise([0.0, PUSH], [SENSOR]), window=4, gate=1e-6)
    one, other = (Follower(estimator, [1.5, 0.0], [0.4, 1.0]) for _ in range(2))
    for k in range(6):
        one.step(TS[k], y=y[0, k] if k != 3 else [np.nan])
    other.restore(json.loads(json.dumps(one.state())))
    assert one.step(TS[6], y=[5.0]).message == "Output 0 was refused as an outlier."
    other.step(TS[6], y=[5.0])
    for k in range(7, 10):
        a, b = one.step(TS[k], y=y[0, k]), other.step(TS[k], y=y[0, k])
        np.testing.assert_array_equal(a.x, b.x)
        np.testing.assert_array_equal(a.x_std, b.x_std)
    assert one.state() == other.state()
    ahead = one.ahead(TS[10:12])
    assert np.isfinite(ahead.y_std).all()


@pytest.mark.slow
def test_float32_agrees_with_float64():
    _, y = pendulum_runs(1)
    estimator = MovingHorizon(PENDULUM, Noise([0.0, PUSH], [SENSOR]), window=4)
    means = []
    for dtype in (jnp.float32, jnp.float64):
        belief = estimator.init(0.0, jnp.asarray([1.5, 0.0], dtype), [0.4, 1.0])
        found = filtered(estimator, belief, jnp.asarray(TS, dtype), jnp.asarray(y[0], dtype))
        assert found.corrected.mean.dtype == dtype
        assert np.asarray(found.innovation.result == tw.RESULTS.successful).all()
        means.append(np.asarray(found.corrected.mean, float))
    np.testing.assert_allclose(means[0], means[1], atol=2e-3)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="window=0"):
        MovingHorizon(PENDULUM, Noise([0.0, 0.1], [0.1]), window=0)
    estimator = MovingHorizon(PENDULUM, Noise([0.0, 0.1], [0.1]))
    with pytest.raises(ValueError, match="it has no window"):
        estimator.update(estimator.filter.init(0.0, [1.0, 0.0], [0.1, 0.1]), [0.1])
