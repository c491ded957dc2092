"""Filters and smoother without a manifold: the exact posterior, the steady state, and dynamax."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag, solve_discrete_are

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise, UnscentedKalmanFilter, filtered, smoothed

FILTERS = {
    "extended": ExtendedKalmanFilter,
    "unscented": lambda *arguments: UnscentedKalmanFilter(*arguments, alpha=3**0.5, beta=2.0, kappa=1.0),
}
RATES = np.array([[0.0, 1.0, 0.0], [-2.0, -0.3, 1.0], [0.0, 0.0, -0.5]])
SEEN = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]])
PROCESS = np.array([[0.2, 0.05, 0.0], [0.05, 0.1, 0.02], [0.0, 0.02, 0.3]])  # covariances
MEASUREMENT = np.array([[0.02, 0.01], [0.01, 0.05]])
START = np.diag([0.5, 0.8, 0.3])
MEAN = np.array([1.0, -0.5, 0.2])

each_filter = pytest.mark.parametrize("name", FILTERS)


def linear_twin():
    return tw.Twin(
        lambda x, w: jnp.asarray(RATES) @ x + jnp.stack([0 * w[0], w[0], 0 * w[0]]),
        observe=lambda x: jnp.asarray(SEEN) @ x,
        integrator=tw.Euler(),
    )


def record(seed=0, count=12):
    """Irregular times, with an input; of the measurements some channels and whole samples are missing."""
    rng = np.random.default_rng(seed)
    ts = np.cumsum(rng.uniform(0.05, 0.4, count))
    y, w = rng.normal(size=(count, 2)), rng.normal(size=(count, 1))
    y[2, 0] = y[5] = y[-5, 1] = np.nan
    return ts, y, w


def exact_posterior(ts, y, w):
    """Mean and covariance of all states together: the solution of one weighted least-squares problem."""
    count, n = len(ts), 3
    rows, sides, weights = [np.eye(n, n * count)], [MEAN], [np.linalg.inv(START)]
    for k in range(count - 1):
        dt = ts[k + 1] - ts[k]
        row = np.zeros((n, n * count))
        row[:, n * k : n * k + n] = -(np.eye(n) + dt * RATES)
        row[:, n * k + n : n * k + 2 * n] = np.eye(n)
        rows.append(row)
        sides.append(dt * np.array([0, w[k, 0], 0]))
        weights.append(np.linalg.inv(dt * PROCESS))
    for k in range(count):
        used = ~np.isnan(y[k])
        row = np.zeros((used.sum(), n * count))
        row[:, n * k : n * k + n] = SEEN[used]
        rows.append(row)
        sides.append(y[k, used])
        weights.append(np.linalg.inv(MEASUREMENT[np.ix_(used, used)]))
    a, b, weight = np.concatenate(rows), np.concatenate(sides), np.asarray(block_diag(*filter(np.size, weights)))
    covariance = np.linalg.inv(a.T @ weight @ a)
    return (covariance @ a.T @ weight @ b).reshape(count, n), covariance.reshape(count, n, count, n)


@each_filter
def test_the_posterior_of_a_linear_twin_is_exact(name):
    ts, y, w = record()
    estimator = FILTERS[name](linear_twin(), Noise(PROCESS, MEASUREMENT))
    found = filtered(
        estimator, estimator.init(ts[0], MEAN, START, w=w[0]), jnp.asarray(ts), jnp.asarray(y), jnp.asarray(w)
    )
    means, covariances = exact_posterior(ts, y, w)
    after = smoothed(estimator, found)
    np.testing.assert_allclose(after.mean, means, rtol=1e-9, atol=1e-10)
    for k in range(len(ts)):
        np.testing.assert_allclose(after.covariance[k], covariances[k, :, k], rtol=1e-9, atol=1e-11)
    # The last filtered belief knows all that the smoother does; one before it, all up to there.
    means, covariances = exact_posterior(ts[:9], y[:9], w[:9])
    np.testing.assert_allclose(found.corrected.mean[8], means[-1], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.corrected.covariance[8], covariances[-1, :, -1], rtol=1e-9, atol=1e-11)


def test_the_likelihood_is_that_of_all_measurements_together():
    """The innovations are independent: their density is that of the measured values, N(H m, H P H' + R) jointly."""
    ts, y, w = record()
    estimator = ExtendedKalmanFilter(linear_twin(), Noise(PROCESS, MEASUREMENT))
    found = filtered(
        estimator, estimator.init(ts[0], MEAN, START, w=w[0]), jnp.asarray(ts), jnp.asarray(y), jnp.asarray(w)
    )
    means, covariances = exact_posterior(ts, np.full_like(y, np.nan), w)  # before any measurement
    count, used = len(ts), ~np.isnan(y.ravel())
    observe = np.kron(np.eye(count), SEEN)[used]
    joint = observe @ covariances.reshape(3 * count, 3 * count) @ observe.T
    joint = joint + np.kron(np.eye(count), MEASUREMENT)[np.ix_(used, used)]
    residual = y.ravel()[used] - observe @ means.ravel()
    _, volume = np.linalg.slogdet(2 * np.pi * joint)
    exact = -0.5 * (residual @ np.linalg.solve(joint, residual) + volume)
    np.testing.assert_allclose(found.log_likelihood, exact, rtol=1e-10)


DEGREES = 180 / np.pi


def pendulum_problem():
    """Hidden velocity, nonlinear output, an input; as a twin and as functions of one step. Angles in degrees."""
    dt, ts = 0.1, 0.1 * np.arange(30)
    rng = np.random.default_rng(1)

    def rate(x, w):
        return jnp.stack([x[1], w[0] - 4 * DEGREES * jnp.sin(x[0] / DEGREES) - 0.01 * x[1] * jnp.abs(x[1])])

    def observe(x):
        return jnp.stack([DEGREES * jnp.sin(x[0] / DEGREES), x[0] * x[1] / DEGREES])

    twin = tw.Twin(rate, observe=observe, integrator=tw.Euler())
    y, w = DEGREES * 0.5 * rng.normal(size=(30, 2)), DEGREES * rng.normal(size=(30, 1))
    return twin, lambda x, u: x + dt * rate(x, u), lambda x, u: observe(x), ts, y, w


def linear_problem():
    dt, ts = 0.2, 0.2 * np.arange(30)
    rng = np.random.default_rng(2)
    step = jnp.asarray(np.eye(3) + dt * RATES)

    def move(x, u):
        return step @ x + dt * jnp.stack([0 * u[0], u[0], 0 * u[0]])

    y, w = DEGREES * rng.normal(size=(30, 2)), DEGREES * rng.normal(size=(30, 1))
    return linear_twin(), move, lambda x, u: jnp.asarray(SEEN) @ x, ts, y, w


@pytest.mark.slow
@pytest.mark.parametrize("problem", [linear_problem, pendulum_problem])
@each_filter
def test_agreement_with_dynamax(name, problem):
    """To 1e-8; numbers of this size since dynamax adds 1e-9 to the diagonal of what it inverts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ssm = pytest.importorskip("dynamax.nonlinear_gaussian_ssm", reason="pip install dynamax")
    twin, step, observe, ts, y, w = problem()
    n, dt = (3 if problem is linear_problem else 2), ts[1] - ts[0]
    process, measurement, start = (DEGREES**2 * each for each in (PROCESS[:n, :n], MEASUREMENT, START[:n, :n]))
    mean = DEGREES * MEAN[:n]
    estimator = FILTERS[name](twin, Noise(process, measurement))
    belief = estimator.init(ts[0], mean, start, w=w[0])
    found = filtered(estimator, belief, jnp.asarray(ts), jnp.asarray(y), jnp.asarray(w))
    after = smoothed(estimator, found)
    model = ssm.ParamsNLGSSM(
        initial_mean=jnp.asarray(mean),
        initial_covariance=jnp.asarray(start),
        dynamics_function=step,
        dynamics_covariance=jnp.asarray(dt * process),
        emission_function=observe,
        emission_covariance=jnp.asarray(measurement),
    )
    inputs = jnp.asarray(np.roll(w, 1, axis=0))  # an input is held until the next sample
    if name == "extended":
        theirs = ssm.extended_kalman_smoother(model, jnp.asarray(y), inputs=inputs)
    else:
        theirs = ssm.unscented_kalman_smoother(model, jnp.asarray(y), ssm.UKFHyperParams(), inputs=inputs)
    np.testing.assert_allclose(found.log_likelihood, theirs.marginal_loglik, rtol=1e-8)
    for ours, other in (
        (found.corrected.mean, theirs.filtered_means),
        (found.corrected.covariance, theirs.filtered_covariances),
        (after.mean, theirs.smoothed_means),
        (after.covariance, theirs.smoothed_covariances),
    ):
        np.testing.assert_allclose(ours, other, rtol=1e-8, atol=1e-8 * np.abs(other).max())


def test_float32_reaches_the_steady_state_of_the_riccati_equation_and_stays_there():
    """10,000 updates with a precise sensor beside an uncertain state, where a covariance in float32 loses its sign."""
    dt, process, sensor = 0.01, np.array([0.0, 1.0]), 1e-3
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), observe=lambda x: x[:1], integrator=tw.Euler())
    estimator = ExtendedKalmanFilter(twin, Noise(process, [sensor]))
    ts = jnp.asarray(dt * np.arange(10_000), jnp.float32)
    belief = estimator.init(0.0, jnp.zeros(2, jnp.float32), [1e3, 1e3])
    found = filtered(estimator, belief, ts, jnp.zeros((10_000, 1), jnp.float32))
    assert found.corrected.root.dtype == jnp.float32
    roots = np.asarray(found.corrected.root, float)
    covariances = roots @ roots.swapaxes(1, 2)
    assert np.isfinite(covariances).all()
    sizes = np.linalg.eigvalsh(covariances)
    assert (sizes[:, 0] >= -1e-15 * sizes[:, 1]).all()
    step, seen = np.array([[1, dt], [-dt, 1]]), np.array([[1.0, 0.0]])
    steady = solve_discrete_are(step.T, seen.T, np.diag(dt * process**2), np.array([[sensor**2]]))
    np.testing.assert_allclose(
        np.asarray(found.predicted.root[-1], float) @ np.asarray(found.predicted.root[-1], float).T, steady, rtol=2e-3
    )


@each_filter
def test_a_parameter_that_is_followed_is_a_state(name):
    """The same as a twin in which the raw value of the parameter is written down as a third state."""
    noise = Noise([0.1, 0.2], [0.1], drift={"k": 0.3})
    first = FILTERS[name](
        tw.Twin(
            lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
            params={"k": tw.Unknown(2.0, positive=True, spread=0.2)},
            observe=lambda x, p: p["k"] * x[:1],
        ),
        noise,
    )
    second = FILTERS[name](
        tw.Twin(
            lambda x: jnp.stack([x[1], -2 * jnp.exp(x[2]) * x[0], 0 * x[0]]),
            observe=lambda x: 2 * jnp.exp(x[2]) * x[:1],
        ),
        Noise([0.1, 0.2, 0.3], [0.1]),
    )
    ts = jnp.linspace(0, 2, 21)
    y = 2.2 * jnp.cos(1.5 * ts)[:, None]
    found = filtered(first, first.init(0.0, [1.0, 0.0], [0.3, 0.3]), ts, y)
    other = filtered(second, second.init(0.0, [1.0, 0.0, 0.0], [0.3, 0.3, 0.2]), ts, y)
    np.testing.assert_allclose(found.corrected.mean, other.corrected.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.corrected.covariance, other.corrected.covariance, rtol=1e-9, atol=1e-12)
    estimate = first.estimate(jax.tree.map(lambda leaf: leaf[-1], found.corrected))
    raw, spread = other.corrected.mean[-1, 2], np.sqrt(other.corrected.covariance[-1, 2, 2])
    np.testing.assert_allclose(estimate.parameters["k"], 2 * np.exp(raw), rtol=1e-10)
    np.testing.assert_allclose(estimate.parameters_std["k"], 2 * np.exp(raw) * spread, rtol=1e-9)


def test_the_gate_refuses_an_outlier_and_keeps_the_other_channel():
    ts, y, w = record()
    plain = ExtendedKalmanFilter(linear_twin(), Noise(PROCESS, MEASUREMENT))
    belief = plain.init(ts[0], MEAN, START, w=w[0])
    blind = filtered(plain, belief, jnp.asarray(ts), jnp.full_like(y, jnp.nan), jnp.asarray(w))
    y = np.asarray(blind.innovation.y) + 0.1 * y
    y[5] = blind.innovation.y[5]
    wild, missing = y.copy(), y.copy()
    wild[5, 0], missing[5, 0] = 50.0, np.nan
    found = {}
    for gate, values in ((1e-6, wild), (None, missing), (None, wild)):
        estimator = ExtendedKalmanFilter(linear_twin(), Noise(PROCESS, MEASUREMENT), gate=gate)
        belief = estimator.init(ts[0], MEAN, START, w=w[0])
        found[gate, values is wild] = filtered(estimator, belief, jnp.asarray(ts), jnp.asarray(values), jnp.asarray(w))
    gated, left_out, hit = found[1e-6, True], found[None, False], found[None, True]
    assert gated.innovation.accepted[5].tolist() == [False, True]
    np.testing.assert_allclose(gated.corrected.mean, left_out.corrected.mean, rtol=1e-12)
    np.testing.assert_allclose(gated.log_likelihood, left_out.log_likelihood, rtol=1e-12)
    assert np.abs(hit.corrected.mean[5] - left_out.corrected.mean[5]).max() > 5


@pytest.mark.slow
def test_assets_side_by_side():
    """One model, several assets under vmap: each as by itself."""
    ts, y, w = record(count=6)
    estimator = ExtendedKalmanFilter(linear_twin(), Noise(PROCESS, MEASUREMENT))
    starts = jnp.asarray(np.stack([MEAN, -MEAN, 2 * MEAN]))
    ys = jnp.asarray(np.stack([y, 2 * y, 1 - y]))

    def follow(x0, y):
        return filtered(estimator, estimator.init(ts[0], x0, START, w=w[0]), jnp.asarray(ts), y, jnp.asarray(w))

    together = jax.vmap(follow)(starts, ys)
    for place in range(3):
        alone = follow(starts[place], ys[place])
        np.testing.assert_allclose(together.corrected.mean[place], alone.corrected.mean, rtol=1e-12)
        np.testing.assert_allclose(together.corrected.covariance[place], alone.corrected.covariance, rtol=1e-12)


@each_filter
def test_a_twin_that_diverges_is_reported_and_held(name):
    twin = tw.Twin(lambda x: x**3, integrator=tw.Euler())
    estimator = FILTERS[name](twin, Noise([0.1], [0.1]))
    ts = jnp.arange(12.0)
    found = filtered(estimator, estimator.init(0.0, [3.0], [0.1]), ts, jnp.full((12, 1), jnp.nan))
    failed = np.asarray(found.result == tw.RESULTS.nonfinite)
    assert failed.any()
    assert not failed[:3].any()
    first = int(failed.argmax())
    assert failed[first:].all()
    assert not np.asarray(found.corrected.alive)[first:].any()
    assert np.isfinite(found.corrected.mean).all()
    np.testing.assert_array_equal(found.corrected.mean[first], found.corrected.mean[first - 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Noise([0.1], [0.0]), "Noise.measurement=.*positive"),
        (lambda: Noise([[1.0, 2.0], [2.0, 1.0]], [0.1]), "Noise.process=.*semidefinite"),
        (lambda: Noise([-1.0], [0.1]), "Noise.process="),
        (lambda: Noise([0.1], [0.1], drift={"k": -1.0}), "drift=.*'k'"),
        (
            lambda: ExtendedKalmanFilter(linear_twin(), Noise([0.1] * 3, [0.1] * 2, drift={"k": 0.1})),
            "no unknown.*'?none",
        ),
        (lambda: ExtendedKalmanFilter(linear_twin(), Noise([0.1] * 3, [0.1] * 2), gate=2.0), "gate=2.0"),
        (lambda: UnscentedKalmanFilter(linear_twin(), Noise([0.1] * 3, [0.1] * 2), alpha=1e-3), "larger alpha"),
        (
            lambda: ExtendedKalmanFilter(linear_twin(), Noise([0.1] * 3, [0.1] * 2)).init(0.0, [1.0], [1.0]),
            "x0 has shape",
        ),
        (
            lambda: ExtendedKalmanFilter(linear_twin(), Noise([0.1] * 3, [0.1] * 2)).init(0.0, MEAN, [1.0]),
            "std is that of 1",
        ),
        (
            lambda: ExtendedKalmanFilter(
                tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0)}), Noise([0.1], [0.1], drift={"k": 0.1})
            ).init(0.0, [1.0], [1.0]),
            "how uncertain is 'k'",
        ),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
