"""Standard errors of a least-squares estimate, with residuals that follow one another."""

import numpy as np
import pytest

from twinfold.identify import uncertainty
from twinfold.identify._uncertainty import correlation_time


def correlated(rng, count, phi):
    noise = rng.normal(size=count + 300)
    for k in range(1, len(noise)):
        noise[k] += phi * noise[k - 1]
    return noise[300:]


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_standard_errors_cover_the_truth_whatever_follows_whatever(phi):
    rng = np.random.default_rng(4)
    s = np.linspace(0, 1, 150)
    jacobian = np.stack([np.ones(150), s], axis=1)
    covered, naive = [], []
    for _ in range(300):
        noise = correlated(rng, 150, phi)
        wrong = np.linalg.lstsq(jacobian, noise, rcond=None)[0]
        left = noise - jacobian @ wrong
        found = uncertainty(left, jacobian, ["level", "slope"])
        covered += [abs(wrong) < 1.96 * np.array(list(found.errors.values()))]
        naive += [abs(wrong) < 1.96 * left.std() * np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))]
    assert 0.91 < np.mean(covered) < 0.985, np.mean(covered)
    if phi:
        assert np.mean(naive) < 0.6


def test_uncertainty_of_independent_noise_is_the_textbook_one():
    rng = np.random.default_rng(0)
    jacobian, r = rng.normal(size=(400, 2)), 0.1 * rng.normal(size=400)
    r -= jacobian @ np.linalg.lstsq(jacobian, r, rcond=None)[0]
    found = uncertainty(r, jacobian, ["p", "q"])
    wanted = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)) * (r @ r) / 398)
    np.testing.assert_allclose(list(found.errors.values()), wanted, rtol=0.1)
    assert found.noise == pytest.approx(0.1, rel=0.1)
    assert 350 < found.samples <= 400
    assert found.weak == ()
    # Two outputs, the second never measured, are one.
    pair, wide = np.stack([r, r], axis=1), np.stack([jacobian, jacobian], axis=1)
    mask = np.stack([np.ones(400, bool), np.zeros(400, bool)], axis=1)
    assert uncertainty(pair, wide, ["p", "q"], mask=mask).errors == pytest.approx(found.errors)
    pair[:, 1] = np.nan
    assert uncertainty(pair, wide, ["p", "q"]).errors == pytest.approx(found.errors)


def test_correlation_time_of_a_first_order_process():
    r = correlated(np.random.default_rng(1), 20_000, 0.9)[:, None]
    mask = np.ones(r.shape, bool)
    assert correlation_time(r, mask) == pytest.approx(19, rel=0.15)
    mask[::10] = False
    assert correlation_time(r, mask) == pytest.approx(19, rel=0.2)
    assert correlation_time(np.zeros((5, 1)), np.ones((5, 1), bool)) == 1


def test_what_the_data_cannot_tell_is_flagged():
    rng = np.random.default_rng(3)
    s, r = rng.normal(size=100), rng.normal(size=100)
    jacobian = np.stack([s, 1e4 * s, rng.normal(size=100)], axis=1)
    found = uncertainty(r, jacobian, ["gain", "scale", "offset"])
    assert len(found.weak) == 1
    assert abs(found.weak[0]["gain"]) == pytest.approx(np.sqrt(0.5), rel=1e-6)
    assert found.errors["gain"] == found.errors["scale"] == np.inf
    assert found.errors["offset"] == pytest.approx(0.1, rel=0.5)
    silent = uncertainty(r, np.stack([s, 0 * s], axis=1), ["a", "b"])
    assert silent.errors["b"] == np.inf
    assert np.isfinite(silent.errors["a"])
    with pytest.raises(ValueError, match="more than 3"):
        uncertainty(r[:3], jacobian[:3], ["a", "b", "c"])
    with pytest.raises(ValueError, match="Jacobian of 100 x 2"):
        uncertainty(r, jacobian, ["a", "b"])
