"""What is computed once and used twice: projections of a trial step, validation runs beside training windows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import twinfold as tw
from twinfold.train import prepare

TIMES = np.linspace(0, 2, 21)
STARTS = np.array([[1.0, 0.0], [0.6, -0.3], [-0.2, 0.8]])


def runs(count: int, samples: int = 21) -> tw.Dataset:
    ts = TIMES[:samples]
    x, v = STARTS[:count, :1], STARTS[:count, 1:]
    xs = np.stack([x * np.cos(ts) + v * np.sin(ts), v * np.cos(ts) - x * np.sin(ts)], axis=-1)
    return tw.Dataset.from_arrays(ts, xs)


def pendulum(projection: tw.numerics.AbstractProjection) -> tw.Twin:
    """x'' = -k x with a residual, on the circle of its energy."""
    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    field = tw.GreyBox(lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]), tw.MLP(width=4, depth=1))
    return tw.Twin(field, params={"k": tw.Unknown(0.8)}, constraint=energy, projection=projection)


def problem_of(twin: tw.Twin, data: tw.Dataset, valid: tw.Dataset | None = None):
    _, (problem,), params = prepare(twin, data, valid=valid, methods=(tw.LevenbergMarquardt(3),), project="always")
    return problem, jax.tree.map(lambda leaf: leaf[0], params)


@pytest.mark.parametrize(
    "projection",
    [tw.Newton(), tw.Newton(metric=[1.0, 3.0]), tw.Tangent(), tw.Adaptive(), tw.Newton(derivative="tangent")],
    ids=["newton", "metric", "tangent", "adaptive", "tangent derivative"],
)
def test_the_jacobian_at_known_projections_is_that_of_the_whole_step(projection):
    problem, params = problem_of(pendulum(projection), runs(3))
    _, evaluation = problem.evaluate(params)
    whole = jax.jit(lambda params: problem.residuals_and_jacobian(params))(params)
    known = jax.jit(lambda *given: problem.residuals_and_jacobian(*given))(params, evaluation.projected)
    for ours, theirs in zip(known, whole, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    v, unravel = ravel_pytree(params)
    gradient = jax.jit(jax.grad(lambda v: problem.training_loss(unravel(v))))(v)
    np.testing.assert_allclose(2 * known[1].T @ known[0], gradient, rtol=1e-8, atol=1e-12)


def test_a_known_projection_is_not_solved_again(monkeypatch):
    problem, params = problem_of(pendulum(tw.Newton()), runs(2))
    _, evaluation = problem.evaluate(params)

    def refuse(*_):
        raise AssertionError("solved again")

    monkeypatch.setattr(tw.Newton, "solve", refuse)
    jax.make_jaxpr(problem.residuals_and_jacobian)(params, evaluation.projected)
    with pytest.raises(AssertionError, match="solved again"):
        jax.make_jaxpr(lambda params: problem.residuals_and_jacobian(params))(params)


@pytest.mark.parametrize("samples", [None, 9, 21])
def test_validation_runs_beside_training_windows_have_the_score_of_their_own(samples):
    """No validation runs, shorter ones, and as long ones; their weights and penalties are those of validation."""
    valid = None if samples is None else runs(3, samples)
    problem, params = problem_of(pendulum(tw.Newton()), runs(2), valid)
    loss, evaluation = problem.evaluate(params)
    np.testing.assert_allclose(loss, problem.training_loss(params), rtol=1e-12)
    np.testing.assert_allclose(evaluation.score, problem.score(params), rtol=1e-12)
    assert (problem._rows_together() is None) == (samples is None)
    assert evaluation.projected is not None
    assert evaluation.projected.x.shape == (2, 21, 2)


def test_longer_validation_runs_are_unrolled_by_themselves():
    problem, params = problem_of(pendulum(tw.Newton()), runs(2, 9), runs(3))
    assert problem._rows_together() is None
    _, evaluation = problem.evaluate(params)
    np.testing.assert_allclose(evaluation.score, problem.score(params), rtol=1e-12)


def test_without_validation_runs_the_last_stage_decides():
    """The loss of short windows is smaller than that of whole runs, and no reason to keep their parameters."""
    stages = (tw.LevenbergMarquardt(20, window=3), tw.LevenbergMarquardt(20))
    twin = pendulum(tw.NoProjection())
    fit = tw.fit(twin, runs(3), method=stages, progress=False)
    last = fit.history["stage"][:, 0] == 1
    assert fit.scores[0] == fit.history["score"][last].min()
    _, problems, _ = prepare(twin, runs(3), methods=stages)
    np.testing.assert_allclose(fit.scores[0], problems[1].training_loss(jax.tree.map(lambda x: x[0], fit.params)))
