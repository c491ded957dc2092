"""The iteration of one asset: it ends at the minimum of a long valley, and goes on after a stop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from twinfold.fleet import _least_squares
from twinfold.fleet._least_squares import FIRST_DAMPING, OFFSET, Start, fit_asset

TS = np.linspace(0, 4, 60)
SAMPLES = 0.6 * np.exp(-0.6 * TS) + 0.4 * np.exp(-1.6 * TS) + 4e-3 * np.random.default_rng(3).normal(size=60)


def residuals(v):
    """Two exponentials with similar rates: a long, curved valley."""
    c, d, k, m = (jnp.exp(v[index]) * scale for index, scale in enumerate((0.5, 0.5, 0.7, 1.4)))
    return (jnp.asarray(SAMPLES) - c * jnp.exp(-k * TS) - d * jnp.exp(-m * TS))[:, None]


def start() -> Start:
    return Start(jnp.zeros(4), jnp.array(FIRST_DAMPING), jnp.array(0))


@pytest.fixture(scope="module")
def fit():
    return jax.jit(lambda start, limit: fit_asset(residuals, start, jnp.array(60), limit))


@pytest.mark.parametrize("limits", [(80,), (4, 8, 80)])
def test_it_ends_at_the_minimum_within_a_fraction_of_a_standard_error(fit, limits):
    found, at = fit(start(), jnp.array(limits[0]))
    for limit in limits[1:]:
        found, at = fit(at, jnp.array(limit))
    best = scipy.optimize.least_squares(
        lambda v: np.asarray(residuals(jnp.asarray(v)))[:, 0], np.asarray(found.v), xtol=1e-15
    )
    covariance = np.linalg.inv(best.jac.T @ best.jac) * 2 * best.cost / 56
    errors = np.sqrt(np.diag(covariance))
    assert found.converged
    assert errors.max() > 0.05  # a small step is not what it can stop at
    assert (np.abs(found.v - best.x) < 4 * OFFSET * errors).all()  # sqrt(4) for four variables, and some curvature
    np.testing.assert_allclose(found.residual[:, 0], residuals(found.v)[:, 0])


def test_it_stops_at_the_limit_and_says_so(fit):
    found, at = fit(start(), jnp.array(3))
    assert not found.converged
    assert found.steps == at.steps == 3
    assert np.sum(found.residual**2) < np.sum(np.asarray(residuals(jnp.zeros(4))) ** 2)


def test_steps_follow_a_curved_valley(monkeypatch):
    """The valley b = a^2, with a slight fall to a = 3: straight steps leave it sooner."""

    def evaluations() -> int:
        begin = Start(jnp.zeros(2), jnp.array(FIRST_DAMPING), jnp.array(0))
        problem = lambda v: jnp.stack([1e-3 * (v[0] - 3), v[1] - v[0] ** 2])  # noqa: E731
        found, _ = fit_asset(problem, begin, jnp.array(3), jnp.array(1000))
        assert found.converged
        np.testing.assert_allclose(found.v, [3, 9], rtol=1e-5)
        return int(found.steps)

    curved = evaluations()
    monkeypatch.setattr(_least_squares, "MAX_BEND", 0.0)
    assert curved < evaluations() / 3
