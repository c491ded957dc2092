"""Estimates on the manifold: the constraint holds, the covariance is tangent, and the filter is consistent."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise, UnscentedKalmanFilter, filtered, smoothed

FILTERS = {"extended": ExtendedKalmanFilter, "unscented": UnscentedKalmanFilter}
AXIS = jnp.array([0.3, -0.5, 1.0])
DT, PROCESS, SENSOR = 0.1, 0.2, 0.1
SPHERE = tw.Constraint(lambda x: x @ x - 1)

# The points of the unscented filter are projected too: that takes long to compile.
each_filter = pytest.mark.parametrize("name", ["extended", pytest.param("unscented", marks=pytest.mark.slow)])


def compass():
    """A direction that turns at a known rate; two of its three components are measured."""
    return tw.Twin(
        lambda x: jnp.cross(AXIS, x),
        observe=lambda x: x[:2],
        integrator=tw.Midpoint(),
        constraint=SPHERE,
        projection=tw.Newton(),
    )


def compass_runs(count, samples, seed):
    """Directions that obey the model: process noise in the tangent plane, then back to the sphere."""
    rng = np.random.default_rng(seed)
    cell = tw.Cell(lambda t, x: jnp.cross(AXIS, x), integrator=tw.Midpoint())
    step = jax.jit(jax.vmap(lambda x: tw.rollout(cell, x, jnp.array([0.0, DT])).xs[-1]))
    mean = np.array([1.0, 0.0, 0.0])

    def moved(x, deviation):
        x = x + deviation - np.sum(deviation * x, axis=1, keepdims=True) * x
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    xs = [moved(np.tile(mean, (count, 1)), 0.2 * rng.normal(size=(count, 3)))]
    for _ in range(samples - 1):
        xs.append(moved(np.asarray(step(xs[-1])), np.sqrt(DT) * PROCESS * rng.normal(size=(count, 3))))
    xs = np.stack(xs, axis=1)
    return mean, xs, xs[..., :2] + SENSOR * rng.normal(size=(count, samples, 2))


@functools.cache
def compass_record(name):
    """Ten runs side by side, with missing values: filtered and smoothed."""
    mean, _, y = compass_runs(10, 15, seed=0)
    y[0, 3] = y[1, 5:8, 0] = np.nan
    estimator = FILTERS[name](compass(), Noise([PROCESS] * 3, [SENSOR] * 2))
    belief, ts = estimator.init(0.0, mean, [0.2] * 3), jnp.asarray(DT * np.arange(15))

    @jax.jit
    @jax.vmap
    def both(y):
        found = filtered(estimator, belief, ts, y)
        return found, smoothed(estimator, found)

    return both(jnp.asarray(y))


@each_filter
def test_every_estimate_is_on_the_manifold_and_its_covariance_tangent(name):
    found, after = compass_record(name)
    for belief in (found.predicted, found.corrected, after):
        x, covariance = np.asarray(belief.mean), np.asarray(belief.covariance)
        np.testing.assert_allclose(np.sum(x**2, axis=-1), 1, atol=1e-12)
        assert np.isfinite(covariance).all()
        normal = np.einsum("rtij,rtj->rti", covariance, x)
        np.testing.assert_allclose(normal, 0, atol=1e-14)
        # Two dimensions are left, and both are uncertain.
        assert np.linalg.eigvalsh(covariance)[..., 1].min() > 1e-4
    assert np.asarray(found.result == tw.RESULTS.successful).all()
    assert (
        np.trace(after.covariance[:, 0], axis1=1, axis2=2).max()
        < np.trace(found.corrected.covariance[:, 0], axis1=1, axis2=2).min()
    )


@pytest.mark.slow
def test_consistent_on_the_sphere():
    """NEES with n - m = 2 degrees of freedom and NIS with 2, averaged over runs, within their 99.9 % bounds."""
    count, samples = 200, 20
    mean, xs, y = compass_runs(count, samples, seed=1)
    estimator = ExtendedKalmanFilter(compass(), Noise([PROCESS] * 3, [SENSOR] * 2))
    belief, ts = estimator.init(0.0, mean, [0.2] * 3), jnp.asarray(DT * np.arange(samples))
    found = jax.jit(jax.vmap(lambda y: filtered(estimator, belief, ts, y)))(jnp.asarray(y))
    error = xs[:, -1] - np.asarray(found.corrected.mean[:, -1])
    inverse = np.linalg.pinv(np.asarray(found.corrected.covariance[:, -1]), rcond=1e-8, hermitian=True)
    nees = np.einsum("ri,rij,rj->r", error, inverse, error)
    low, high = chi2.ppf([0.0005, 0.9995], 2 * count) / count
    assert low < nees.mean() < high
    nis = np.asarray(found.innovation.nis)  # innovations are independent in time as well
    low, high = chi2.ppf([0.0005, 0.9995], 2 * nis.size) / nis.size
    assert low < nis.mean() < high


@functools.cache
def free_body():
    """Euler's equations: energy and angular momentum are conserved, at levels that nobody knows."""
    inertia = jnp.array([1.6, 1.0, 2 / 3])
    return tw.Twin(
        lambda x: jnp.cross(inertia * x, x) / inertia,
        observe=lambda x: x[:1],
        constraint=tw.Conserved(lambda x: jnp.stack([inertia @ x**2 / 2, (inertia * x) @ (inertia * x)])),
        projection=tw.Newton(metric=[1.0, 2.0, 3.0]),
    )


@pytest.fixture(scope="module")
def tumbling():
    """One run of the free body from an uncertain start."""
    truth, ts = jnp.array([0.9, 0.2, 0.6]), jnp.linspace(0, 6, 31)
    y = free_body().simulate(truth, ts).ys + 0.02 * np.random.default_rng(3).normal(size=(31, 1))
    estimator = ExtendedKalmanFilter(free_body(), Noise([0.01] * 3, [0.02]))
    belief = estimator.init(0.0, [0.8, 0.1, 0.7], [0.2] * 3)
    return estimator, belief, filtered(estimator, belief, ts, y)


def test_an_uncertain_level_is_a_state_with_its_own_variance(tumbling):
    estimator, belief, found = tumbling
    assert estimator.space.conserved == (0, 1)
    inertia = np.array([1.6, 1.0, 2 / 3])
    # At first the level is as uncertain as the state: G P G', and the state keeps its three dimensions.
    slopes = np.stack([inertia * belief.mean[:3], 2 * inertia**2 * belief.mean[:3]])
    np.testing.assert_allclose(belief.covariance[3:, 3:], 0.04 * slopes @ slopes.T, rtol=1e-12)
    np.testing.assert_allclose(belief.covariance[:3, :3], 0.04 * np.eye(3), atol=1e-15)
    for each in (found.predicted, found.corrected):
        x, level = np.asarray(each.mean[:, :3]), np.asarray(each.mean[:, 3:])
        values = np.stack([x**2 @ inertia / 2, x**2 @ inertia**2], axis=1)
        np.testing.assert_allclose(values, level, rtol=1e-12)
        slopes = np.stack([inertia * x, 2 * inertia**2 * x], axis=1)
        joint = np.concatenate([slopes, -np.tile(np.eye(2), (len(x), 1, 1))], axis=2)
        np.testing.assert_allclose(joint @ np.asarray(each.covariance), 0, atol=1e-14)
    # Process noise does not touch a level: its variance never grows, and the truth is found.
    spread = np.sqrt(np.diagonal(found.corrected.covariance, axis1=1, axis2=2))[:, 3:]
    assert (np.diff(spread, axis=0) <= 1e-12).all()
    assert (spread[-1] < 0.5 * spread[0]).all()
    truth = np.array([0.9, 0.2, 0.6])
    exact = np.array([inertia @ truth**2 / 2, inertia**2 @ truth**2])
    assert (np.abs(found.corrected.mean[-1, 3:] - exact) < 3.5 * spread[-1]).all()


def test_the_tangent_projector_is_the_derivative_of_the_projection():
    """In the metric of the twin, with respect to state, level and parameters."""
    twin = tw.Twin(
        lambda x: x,
        params={"a": tw.Unknown(2.0, positive=True)},
        constraint=tw.Conserved(lambda x, p: p["a"] * x[0] ** 2 + x[1] * x[2]),
        projection=tw.Newton(metric=[1.0, 2.0, 3.0]),
    )
    space = ExtendedKalmanFilter(twin, Noise([0.1] * 3, [0.1] * 3, drift={"a": 0.1})).space
    x = jnp.array([0.5, 1.0, -0.4])
    level = twin.constraint.level(0.0, x, twin.parameters())
    s = jnp.concatenate([x, level, jnp.zeros(1)])
    exact = jax.jit(jax.jacfwd(lambda s: space.project(s, jnp.zeros(()), level, s)[0]))(s)
    found = jax.jit(lambda s: space.tangent(s, jnp.zeros(()), level)(jnp.eye(5)))(s)
    np.testing.assert_allclose(found, exact, atol=1e-12)


def test_a_known_level_has_no_variance():
    estimator = ExtendedKalmanFilter(free_body(), Noise([0.01] * 3, [0.02]))
    belief = estimator.init(0.0, [0.8, 0.1, 0.7], [0.2] * 3, level=[0.7, 1.8])
    found = filtered(estimator, belief, jnp.linspace(0, 6, 31), jnp.full((31, 1), 0.7))  # compiled for another test
    assert np.asarray(found.result == tw.RESULTS.successful).all()
    x, inertia = np.asarray(found.corrected.mean[:, :3]), np.array([1.6, 1.0, 2 / 3])
    np.testing.assert_allclose(np.stack([x**2 @ inertia / 2, x**2 @ inertia**2], axis=1), [[0.7, 1.8]] * 31, rtol=1e-12)
    np.testing.assert_allclose(found.corrected.covariance[:, 3:], 0, atol=1e-15)
    assert np.linalg.matrix_rank(found.corrected.covariance[0], tol=1e-10) == 1


@each_filter
def test_bounds_hold_and_do_not_make_the_estimate_certain(name):
    """A tank cannot hold less than nothing; when water is measured again, the estimate leaves the bound."""
    twin = tw.Twin(
        lambda x, w: w - jnp.sqrt(x),  # not defined below zero
        constraint=tw.Bounds(lambda x: x, lower=0.0),
        projection=tw.Newton(),
        integrator=tw.Euler(),
        input_interpolation="hold",
    )
    estimator = FILTERS[name](twin, Noise([0.1], [0.1]))
    ts, w = jnp.linspace(0, 1, 11), jnp.zeros((11, 1))
    y = jnp.asarray([0.1, -0.2, -0.3, -0.2, -0.1, 0.0, 0.3, 0.5, 0.5, 0.5, 0.5])[:, None]
    found = filtered(estimator, estimator.init(0.0, [0.1], [0.2], w=w[0]), ts, y, w)
    mean, variance = np.asarray(found.corrected.mean[:, 0]), np.asarray(found.corrected.covariance[:, 0, 0])
    assert np.asarray(found.corrected.alive).all()
    assert mean.min() >= 0
    assert mean[2] < 1e-6
    assert variance[2] > 1e-4
    assert mean[-1] > 0.1


@pytest.mark.slow
def test_near_a_bound_the_error_is_at_most_what_the_covariance_says():
    """Amounts that cannot be negative, many of them nearly zero: estimates inside, and never worse than they say."""
    rng, start, sensor = np.random.default_rng(0), 0.3, 0.2
    truth = start * np.abs(rng.normal(size=(2000, 1)))
    noise, ts = Noise([1e-3], [sensor]), jnp.arange(2.0)
    y = truth[:, None] + sensor * rng.normal(size=(2000, 2, 1))
    found = {}
    for projection in (tw.Newton(), None):
        twin = tw.Twin(lambda x: 0 * x, constraint=tw.Bounds(lambda x: x, lower=0.0), projection=projection)
        estimator = ExtendedKalmanFilter(twin, noise)

        @jax.jit
        @jax.vmap
        def both(y, estimator=estimator):
            record = filtered(estimator, estimator.init(0.0, [0.0], [start]), ts, y)
            return record.corrected, smoothed(estimator, record)

        found[projection is not None] = both(jnp.asarray(y))
    for bounded, free in zip(found[True], found[False], strict=True):
        assert np.asarray(bounded.mean).min() >= 0
        assert np.asarray(free.mean).min() < -0.05
        square = np.mean((np.asarray(bounded.mean) - truth[:, None]) ** 2)
        assert square < 0.9 * np.mean((np.asarray(free.mean) - truth[:, None]) ** 2)
        assert square < np.asarray(bounded.covariance).mean()
