"""Correlations of residuals: noise that is white by construction, noise that is not, and an input left over."""

import numpy as np
import pytest

from twinfold.identify import correlate_residual
from twinfold.report._residuals import ResidualTest, describe_residuals

N = 800


def slow(rng: np.random.Generator, count: int = N, a: float = 0.95) -> np.ndarray:
    """A first-order process."""
    out = np.zeros(count)
    for t in range(1, count):
        out[t] = a * out[t - 1] + rng.normal()
    return out


def sentence(e: np.ndarray, u: np.ndarray | None) -> str:
    names = () if u is None else tuple(f"u{index}" for index in range(u.shape[1]))
    test = ResidualTest("a", "test", ("y",), names, (correlate_residual(e, u),))
    (text,) = describe_residuals(test)
    return text


def test_correlations_against_direct_sums():
    rng = np.random.default_rng(0)
    e, u = rng.normal(size=40), rng.normal(size=(40, 1))
    found = correlate_residual(e, u, max_lag=6)
    assert found.auto.lags.tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(found.auto.values, [e[k:] @ e[:-k] / (e @ e) for k in range(1, 7)], atol=1e-14)
    # The input is filtered to what its last two samples do not predict, and the residual likewise.
    v = u[:, 0] - u.mean()
    (a, b), *_ = np.linalg.lstsq(np.stack([v[1:-1], v[:-2]], axis=1), v[2:], rcond=None)
    v, f = (x[2:] - a * x[1:-1] - b * x[:-2] for x in (v, e))
    size = np.sqrt((f @ f) * (v @ v))
    later = [f[: 38 - k] @ v[k:] / size for k in range(6, 0, -1)]
    earlier = [f[k:] @ v[: 38 - k] / size for k in range(7)]
    np.testing.assert_allclose(found.inputs[0].values, [*later, *earlier], atol=1e-12)
    assert found.auto.band == pytest.approx(2.5758 / np.sqrt(40), rel=1e-4)


def test_white_residuals_pass_as_often_as_promised():
    """99 of 100, whatever the input is like; each draw is independent."""
    rng, draws = np.random.default_rng(1), 300
    coloured = followed = 0
    for _ in range(draws):
        u = np.stack([slow(rng, 300), np.sign(slow(rng, 300))], axis=1)
        found = correlate_residual(rng.normal(size=300), u)
        coloured += not found.is_white
        followed += bool(found.follows)
    assert coloured <= 9  # 3 expected, 9.5 at three standard deviations
    assert followed <= 15  # two inputs
    assert "is white and not correlated" in sentence(rng.normal(size=N), slow(rng)[:, None])


def test_a_slow_residual_that_does_not_follow_a_slow_input_is_not_blamed_on_it():
    rng, draws = np.random.default_rng(2), 100
    found = [correlate_residual(slow(rng, 600, 0.8), slow(rng, 600, 0.9)[:, None]) for _ in range(draws)]
    assert not any(each.is_white for each in found)
    assert sum(bool(each.follows) for each in found) <= 5
    text = sentence(slow(rng, a=0.8), slow(rng, a=0.9)[:, None])
    assert "is not white" in text
    assert "no correlation with the inputs can be shown" in text


def test_a_delay_of_a_slow_input_is_found_though_the_residual_is_slow():
    """Steps of the input reach a first-order system three samples late, the model knows no delay; 120 samples."""
    rng = np.random.default_rng(6)
    for _ in range(10):
        u = np.repeat(rng.choice([0.0, 4.0, 8.0, 12.0], size=14), 9)[:120]
        late = np.r_[np.full(3, u[0]), u[:-3]]
        y, model = np.zeros(120), np.zeros(120)
        for t in range(1, 120):
            y[t] = 0.9 * y[t - 1] + 0.1 * late[t - 1]
            model[t] = 0.9 * model[t - 1] + 0.1 * u[t - 1]
        text = sentence(y + 0.05 * rng.normal(size=120) - model, u[:, None])
        assert "is not white" in text
        assert "is correlated with u0" in text


def test_an_input_left_over_is_found_at_its_lag():
    rng = np.random.default_rng(3)
    u = rng.normal(size=(N, 2))
    e = rng.normal(size=N)
    e[4:] += 0.4 * u[:-4, 1]
    found = correlate_residual(e, u)
    assert found.follows == (1,)
    assert found.inputs[1].significant.tolist() == [4]
    assert "is correlated with u1, so the output still follows it" in sentence(e, u)
    # A slow input makes the residual slow too.
    u = slow(rng)[:, None]
    text = sentence(0.5 * u[:, 0] + rng.normal(size=N), u)
    assert "is not white" in text
    assert "is correlated with u0" in text


def test_feedback_is_no_input_left_over():
    """The input answers to the output: it is correlated with earlier residuals only."""
    rng = np.random.default_rng(4)
    e = rng.normal(size=N)
    u = np.r_[0, 0, e[:-2]][:, None] + 0.3 * rng.normal(size=(N, 1))
    found = correlate_residual(e, u)
    assert found.is_white
    assert found.follows == ()
    assert np.abs(found.inputs[0].values[found.inputs[0].lags == -2]) > 0.9


def test_missing_values_and_inputs_that_stand_still():
    rng = np.random.default_rng(5)
    e = rng.normal(size=N)
    e[rng.uniform(size=N) < 0.3] = np.nan
    found = correlate_residual(e, np.ones((N, 1)))
    assert found.is_white
    assert found.follows == ()
    assert found.auto.band == pytest.approx(2.5758 / np.sqrt(np.isfinite(e).sum()), rel=1e-4)
    for bad in (np.zeros(50), np.full(50, np.nan), np.ones(3)):
        with pytest.raises(ValueError, match="at least 8"):
            correlate_residual(bad)
    with pytest.raises(ValueError, match=r"give \[T\] and \[T, d\]"):
        correlate_residual(np.ones(20), np.ones((19, 1)))
