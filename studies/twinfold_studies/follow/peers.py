"""The same filters in dynamax, on a linear and on a nonlinear problem without a manifold."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise, UnscentedKalmanFilter, filtered, smoothed

SEED, SAMPLES, DT = 2120, 100, 0.1
SIZE = 60.0  # of the numbers: dynamax adds 1e-9 to the diagonal of what it inverts
RATES = np.array([[0.0, 1.0, 0.0], [-2.0, -0.3, 1.0], [0.0, 0.0, -0.5]])
SEEN = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0]])
PROCESS = np.array([[0.2, 0.05, 0.0], [0.05, 0.1, 0.02], [0.0, 0.02, 0.3]])
MEASUREMENT = np.array([[0.02, 0.01], [0.01, 0.05]])


def linear() -> tuple[int, Any, Any]:
    """Three states, two outputs."""
    rates, seen = jnp.asarray(RATES), jnp.asarray(SEEN)
    return 3, lambda x: rates @ x, lambda x: seen @ x


def pendulum() -> tuple[int, Any, Any]:
    """A pendulum with quadratic drag; its outputs are nonlinear too. Angles in units of 1/60."""

    def rate(x: Any) -> Any:
        return jnp.stack([x[1], -4 * SIZE * jnp.sin(x[0] / SIZE) - 0.01 * x[1] * jnp.abs(x[1])])

    return 2, rate, lambda x: jnp.stack([SIZE * jnp.sin(x[0] / SIZE), x[0] * x[1] / SIZE])


def differences() -> list[dict[str, Any]]:
    """The largest difference of means and covariances, filtered and smoothed, relative to the largest number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dynamax import nonlinear_gaussian_ssm as ssm

    rng, rows = np.random.default_rng(SEED), []
    ts = DT * np.arange(SAMPLES)
    for problem, (n, rate, observe) in {"linear": linear(), "pendulum": pendulum()}.items():
        y = jnp.asarray(0.5 * SIZE * rng.normal(size=(SAMPLES, 2)))
        mean = SIZE * np.array([1.0, -0.5, 0.2])[:n]
        process, measurement, start = (
            SIZE**2 * each for each in (PROCESS[:n, :n], MEASUREMENT, np.diag([0.5, 0.8, 0.3])[:n, :n])
        )
        twin = tw.Twin(rate, observe=observe, integrator=tw.Euler())
        model = ssm.ParamsNLGSSM(
            initial_mean=jnp.asarray(mean),
            initial_covariance=jnp.asarray(start),
            dynamics_function=lambda x, rate=rate: x + DT * rate(x),
            dynamics_covariance=jnp.asarray(DT * process),
            emission_function=observe,
            emission_covariance=jnp.asarray(measurement),
        )
        noise = Noise(process, measurement)
        unscented = UnscentedKalmanFilter(twin, noise, alpha=3**0.5, beta=2.0, kappa=1.0)
        for name, estimator, theirs in (
            ("extended", ExtendedKalmanFilter(twin, noise), ssm.extended_kalman_smoother(model, y)),
            ("unscented", unscented, ssm.unscented_kalman_smoother(model, y, ssm.UKFHyperParams())),
        ):
            found = filtered(estimator, estimator.init(0.0, mean, start), jnp.asarray(ts), y)
            after = smoothed(estimator, found)
            pairs = {
                "filtered_mean": (found.corrected.mean, theirs.filtered_means),
                "filtered_covariance": (found.corrected.covariance, theirs.filtered_covariances),
                "smoothed_mean": (after.mean, theirs.smoothed_means),
                "smoothed_covariance": (after.covariance, theirs.smoothed_covariances),
            }
            apart = {key: float(np.abs(a - b).max() / np.abs(b).max()) for key, (a, b) in pairs.items()}
            rows.append({"problem": problem, "filter": name, **apart})
    return rows
