"""Where a training window starts, and that its values and its derivatives describe the same trajectory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import twinfold as tw
from twinfold.train import prepare
from twinfold.train._levenberg import _DenseSystem
from twinfold.train._window import window_start

TS = np.linspace(0, 2, 21)


def decay(observe=None):
    return tw.Twin(
        lambda x, p: -p["k"] * x,
        params={"k": tw.Unknown(0.5, positive=True)},
        observe=observe,
        initial=None if observe is None else lambda y: 0.5 * y,
    )


def states():
    """Two decays side by side: both states of one run."""
    return np.stack([np.exp(-0.7 * TS), 2 * np.exp(-0.7 * TS)], axis=1)


def problem_of(twin, ys, **options):
    data = tw.Dataset.from_arrays(TS, ys[None])
    _, (problem,), params = prepare(twin, data, methods=(tw.LevenbergMarquardt(1),), **options)
    return problem, jax.tree.map(lambda leaf: leaf[0], params)


def starts(problem, params):
    estimate = problem.estimate(params)
    return jax.vmap(lambda row, window: window_start(estimate, row, window).x)(problem.batch, problem.windows)


def test_windows_of_measured_states_start_from_them():
    problem, params = problem_of(decay(), states(), window=6)
    np.testing.assert_array_equal(starts(problem, params), states()[[0, 5, 10, 15]])


def test_outputs_are_not_taken_for_states_because_there_are_as_many():
    """y = 2 x has as many values as x: windows inside a run must not start from y."""
    twin = decay(observe=lambda x: 2 * x)
    with pytest.raises(ValueError, match=r"shooting=False: .* the outputs are not the states\. Leave `shooting` out"):
        problem_of(twin, 2 * states(), window=6, shooting=False)
    problem, params = problem_of(twin, 2 * states(), window=6)
    assert problem.frozen.shooting is not None
    # Before training the estimated states are those that the untrained twin passes through: none is an output.
    untrained = np.exp(-0.5 * TS[[0, 5, 10, 15]])[:, None] * np.array([1.0, 2.0])
    np.testing.assert_allclose(starts(problem, params), untrained, rtol=1e-6)


def test_a_window_does_not_start_at_zero_where_nothing_was_measured():
    ys = states()
    ys[5, 1] = np.nan
    with pytest.raises(ValueError, match=r"shooting=False: .* first samples were not measured"):
        problem_of(decay(), ys, window=6, shooting=False)
    problem, params = problem_of(decay(), ys, window=6)
    assert problem.frozen.shooting is not None
    assert starts(problem, params)[1, 1] > 0.5
    # A missing value elsewhere is no obstacle.
    ys = states()
    ys[7, 1] = np.nan
    problem_of(decay(), ys, window=6, shooting=False)


def test_a_derivative_that_is_not_finite_does_not_change_the_loss():
    """x' = 1 + a sqrt(x) from 0: the trajectory is finite, its derivative by x at the start is not."""
    twin = tw.Twin(
        lambda x, p: 1 + p["a"] * jnp.sqrt(x),
        params={"a": tw.Unknown(0.5)},
        observe=lambda x: x,
        initial=lambda y: 0 * y,
    )
    problem, params = problem_of(twin, (TS + 0.1)[:, None])
    v, unravel = ravel_pytree(params)
    system = jax.jit(lambda v: _DenseSystem.build(problem, unravel, 0, v, None))(v)
    residuals, failed = jax.jit(
        lambda v: problem.residuals(problem.estimate(unravel(v)), problem.batch, problem.windows)
    )(v)
    assert int(failed) == int(system.failed) == 0
    np.testing.assert_allclose(system.residuals, residuals, rtol=1e-13)
    loss = jax.jit(lambda params: problem.training_loss(params))(params)
    np.testing.assert_allclose(jnp.sum(system.residuals**2), loss, rtol=1e-13)
    assert np.all(np.isfinite(system.gramian))
    # So a step that lowers the loss is found.
    fit = tw.fit(
        twin, tw.Dataset.from_arrays(TS, (TS + 0.1)[None, :, None]), method=tw.LevenbergMarquardt(5), progress=False
    )
    assert fit.scores[0] < 0.5 * fit.history["loss"][0, 0]


def test_no_direction_goes_without_damping():
    """D = diag(J'J), of which no entry is below 1e-8 of the largest."""
    gramian = jnp.diag(jnp.array([4.0, 1e-3, 0.0]))
    system = _DenseSystem(jnp.zeros(1), jnp.ones(3), gramian, jnp.array(0))
    np.testing.assert_allclose(system.scale, [4.0, 1e-3, 4e-8], rtol=1e-12)
    assert np.all(np.isfinite(system.solve(jnp.array(1e-2))))
