"""Weights of the loss that are estimated: the correlation of errors, and the l2 of the largest evidence."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import twinfold as tw
from twinfold.model._learned.base import learned_parts
from twinfold.train._evidence import Weights, _most_evident, _neighbours, coloured, whitened
from twinfold.train._problem import network_weights


def correlated(rng: np.random.Generator, samples: int, rho: float) -> np.ndarray:
    errors = [rng.normal()]
    for white in rng.normal(size=samples - 1):
        errors.append(rho * errors[-1] + np.sqrt(1 - rho**2) * white)
    return np.array(errors)


def test_whitening_removes_the_correlation_and_is_inverted():
    rng = np.random.default_rng(0)
    error = jnp.stack([jnp.asarray(np.stack([correlated(rng, 4000, rho) for rho in (0.9, 0.3)], 1)) for _ in range(2)])
    mask, rho = jnp.ones(error.shape, bool), jnp.array([0.9, 0.3])
    white = whitened(error, mask, rho)
    np.testing.assert_allclose(_neighbours(error, mask), rho, atol=0.02)
    np.testing.assert_allclose(_neighbours(white, mask), 0, atol=0.03)
    np.testing.assert_allclose(jnp.mean(white**2, (0, 1)), 1, atol=0.03)
    np.testing.assert_allclose(coloured(white, mask, rho), error, atol=1e-12)


def test_a_sample_after_a_missing_one_counts_as_it_is():
    mask = jnp.array([True, False, True, True])[None, :, None]
    error = jnp.where(mask, jnp.array([1.0, 0.0, 2.0, 3.0])[None, :, None], 0)
    white = whitened(error, mask, jnp.array([0.6]))
    np.testing.assert_allclose(white[0, :, 0], [1, 0, 2, (3 - 0.6 * 2) / 0.8])
    np.testing.assert_allclose(coloured(white, mask, jnp.array([0.6])), error, atol=1e-15)


def test_l2_is_that_of_the_largest_evidence():
    """A linear model y = A v + noise, whose evidence is known: y ~ N(0, q I + s^2 A_w A_w'), with l2 = q / (N s^2)."""
    rng = np.random.default_rng(1)
    samples, weights = 80, 12
    a = rng.normal(size=(samples, weights)) / np.arange(1, weights + 1)
    y = a @ rng.normal(size=weights) * 0.3 + 0.5 * rng.normal(size=samples)

    def negative(log_l2: float) -> float:  # with the noise at its best for each l2: a profile
        unit = np.eye(samples) + a @ a.T / (np.exp(log_l2) * samples)
        return samples * np.log(y @ np.linalg.solve(unit, y) / samples) + np.linalg.slogdet(unit)[1]

    found: Any = minimize_scalar(negative, (-12.0, -2.0))
    best = np.exp(found.x)
    l2 = 1e-6
    for _ in range(200):
        gramian = a.T @ a / samples + l2 * np.eye(weights)
        v = np.linalg.solve(gramian, a.T @ y / samples)
        problem = SimpleNamespace(
            weights=Weights(jnp.asarray(l2), jnp.zeros(1)),
            changes=lambda params: [params],
            batch=SimpleNamespace(mask=jnp.ones((1, samples, 1), bool)),
        )
        loss = jnp.asarray(np.sum((y - a @ v) ** 2) / samples)
        l2 = float(_most_evident(problem, jnp.asarray(v), loss, jnp.asarray(gramian)))  # pyright: ignore
    assert l2 == pytest.approx(best, rel=1e-3)


TS = np.linspace(0, 6, 121)


def decay(net: bool = True) -> tw.Twin:
    part = tw.MLP(width=3, depth=1, zero_last=True)
    params = {"k": tw.Unknown(0.5, positive=True)}
    physics = lambda x, p: -p["k"] * x  # noqa: E731
    return tw.Twin(tw.GreyBox(physics, residual=part) if net else physics, params=params)


@pytest.fixture(scope="module")
def record() -> tw.Dataset:
    rng = np.random.default_rng(3)
    noise = 0.02 * np.stack([correlated(rng, len(TS), 0.8) for _ in range(3)])
    noise[:, 0] = 0
    return tw.Dataset.from_arrays(
        TS, np.exp(-0.7 * TS)[None, :, None] * np.array([1, 2, 3])[:, None, None] + noise[..., None]
    )


@pytest.fixture(scope="module")
def estimated(record: tw.Dataset) -> tw.train.Fit:
    loss = tw.Loss(l2="auto", correlation="auto")
    return tw.fit(decay(), record, seeds=2, loss=loss, method=tw.LevenbergMarquardt(40), progress=False)


def test_a_fit_finds_the_correlation_of_the_noise(estimated: tw.train.Fit):
    assert estimated.weights is not None
    np.testing.assert_allclose(estimated.weights.correlation, 0.8, atol=0.1)
    assert estimated.twin.parameters()["k"] == pytest.approx(0.7, abs=0.1)
    assert np.all(np.asarray(estimated.weights.l2) > 1e-6)  # the truth needs no network


def test_the_posterior_has_the_weights_of_the_fit(estimated: tw.train.Fit, record: tw.Dataset):
    loss = tw.Loss(l2="auto", correlation="auto")
    found = tw.identify.posterior(estimated, record, loss=loss)
    sigma = np.concatenate([run.y for run in record.runs]).std()
    assert found.error == pytest.approx(0.02 / sigma, rel=0.15)  # of the errors as they are
    assert found.samples > 0.7 * 363  # what is left of them is white
    given = estimated.loss_of(0, loss)
    assert given.estimated == ()
    same = tw.identify.posterior(estimated, record, loss=given)
    np.testing.assert_array_equal(found.covariance, same.covariance)


def test_l2_keeps_weights_where_they_were_drawn(record: tw.Dataset):
    run = lambda l2: tw.fit(  # noqa: E731
        decay(), record, loss=tw.Loss(l2=l2), method=tw.LevenbergMarquardt(2), progress=False
    )
    drawn = decay().initialise(jax.random.key(0), states=1, dtype=jnp.float64)
    for now, then in zip(network_weights(run(1e6).twin), network_weights(drawn), strict=True):
        np.testing.assert_allclose(now, then, atol=1e-6)
    assert any(np.abs(leaf).max() > 0.1 for leaf in network_weights(drawn))
    assert len(learned_parts(drawn)) == 1


def test_validation_runs_judge_errors_alone(record: tw.Dataset):
    train, valid = record.split(valid=["2"])
    options = {"valid": valid, "method": tw.LevenbergMarquardt(2), "progress": False}
    fit = tw.fit(decay(net=False), train, loss=tw.Loss(correlation=0.5), **options)
    found = tw.predict(fit.twin, valid)
    sigma = np.concatenate([run.y for run in train.runs]).std()
    assert float(fit.scores[0]) == pytest.approx(float(np.mean((found.predicted - found.y) ** 2)) / sigma**2, rel=1e-9)


def test_what_cannot_be_estimated_is_refused(record: tw.Dataset):
    with pytest.raises(ValueError, match='l2="auto" is estimated by Levenberg-Marquardt, and the last stage is Adam'):
        tw.fit(decay(), record, loss=tw.Loss(l2="auto"), method=tw.Adam(2), progress=False)
    method = tw.LevenbergMarquardt(2, solver="cg")
    with pytest.raises(ValueError, match='solver="dense"'):
        tw.fit(decay(), record, loss=tw.Loss(l2="auto"), method=method, progress=False)
    with pytest.raises(ValueError, match="from 0 to below 1"):
        tw.Loss(correlation=1.0)
