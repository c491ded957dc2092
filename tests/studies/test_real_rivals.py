"""The rivals of the studies of public measurements, on data with a known answer."""

import numpy as np
import pytest
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import MAX_SAMPLES, StateSpace

A = np.array([[0.9, 0.2], [-0.2, 0.85]])
B = np.array([[0.1], [0.5]])
C = np.array([[1.0, 0.3]])


def linear(u, x=(0.4, -0.2), *, a=A):
    x, ys = np.asarray(x), []
    for now in u:
        ys.append(C @ x)
        x = a @ x + B @ now
    return 3.0 + np.array(ys)


def excitation(count, seed):
    return 2.0 + np.random.default_rng(seed).normal(size=(count, 1))


def test_the_state_space_model_recovers_a_linear_system():
    u = excitation(400, 0)
    # The means of a finite record are not an equilibrium: one more state, which is constant, holds the difference.
    found = StateSpace.identify([(u, linear(u))], order=3, block_rows=5)
    expected = np.sort_complex(np.append(np.linalg.eigvals(A), 1.0))
    np.testing.assert_allclose(np.sort_complex(np.linalg.eigvals(found.a)), expected, rtol=1e-6)
    new = excitation(200, 1)
    y = linear(new, (-1.0, 2.0))
    np.testing.assert_allclose(found.simulate(new, y[:5]), y, rtol=1e-6)


def test_the_state_space_model_needs_no_input():
    none = np.zeros((60, 0))
    free = np.array([C @ np.linalg.matrix_power(A, k) @ [1.0, 0.5] for k in range(60)])
    found = StateSpace.identify([(none, free - free.mean())], order=3, block_rows=5)
    np.testing.assert_allclose(found.simulate(none, free[:6] - free.mean()), free - free.mean(), atol=1e-6)


def test_the_state_space_model_says_how_far_to_thin_out():
    count = 2 * MAX_SAMPLES + 1
    with pytest.raises(ValueError, match="keep one in 3"):
        StateSpace.identify([(np.zeros((count, 0)), np.zeros((count, 1)))], order=1, block_rows=2)


def bilinear(u):
    y = np.zeros((len(u), 1))
    for k in range(2, len(u)):
        y[k] = 0.5 * y[k - 1] - 0.2 * y[k - 2] + 0.1 * y[k - 1] * u[k - 1] + 0.9 * u[k - 2]
    return y


def test_narx_recovers_a_bilinear_system():
    u = excitation(300, 2)
    found = Narx.identify([(u, bilinear(u))], lags=2, degree=2, terms=8)
    new = excitation(100, 3)
    y = bilinear(new)
    np.testing.assert_allclose(found.simulate(new, y[:2]), y, atol=1e-6)
    with pytest.raises(ValueError, match="needs 2"):
        found.simulate(new, y[:1])


def test_narx_runs_two_coupled_outputs_without_input():
    y = np.empty((300, 2))
    y[0] = 0.3, 0.1
    for k in range(1, 300):  # a Henon map: neither output can be predicted without the other
        y[k] = 1 - 1.4 * y[k - 1, 0] ** 2 + y[k - 1, 1], 0.3 * y[k - 1, 0]
    found = Narx.identify([(np.zeros((300, 0)), y)], lags=1, degree=2, terms=6)
    free = found.simulate(np.zeros((300, 0)), y[:1])
    np.testing.assert_allclose(free[:10], y[:10], atol=1e-6)  # chaotic: rounding grows


def test_a_narx_model_that_diverges_is_infinite():
    y = 1.5 ** np.arange(20.0)[:, None]
    found = Narx.identify([(np.zeros((20, 0)), y)], lags=1, degree=1, terms=2)
    free = found.simulate(np.zeros((100, 0)), y[:1])
    assert np.isfinite(free[:20]).all()
    assert np.isinf(free[-1]).all()
