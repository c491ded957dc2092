"""When the projection of a twin takes part in its training."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.numerics import NoProjection
from twinfold.train import prepare

TIMES = np.linspace(0, 2, 21)
CIRCLE = tw.Conserved(lambda x: x @ x)
QUIET: dict[str, Any] = {"progress": False}


def turning(projection=None):
    """A turn at a rate that the network has to find, on a circle."""
    network = tw.MLP(states=[0, 1], adds_to=[0, 1], width=4, depth=1)
    return tw.phrpinn(
        lambda x: 0 * x,
        network,
        constraint=CIRCLE,
        projection=tw.Newton() if projection is None else projection,
        integrator=tw.Euler(),
    )


def measured():
    ys = [[np.cos(TIMES + phase), np.sin(TIMES + phase)] for phase in (0.0, 1.0)]
    return tw.Dataset.from_arrays(TIMES, np.transpose(ys, (0, 2, 1)))


STAGES = (tw.Adam(5, learning_rate=1e-2), tw.LevenbergMarquardt(3), tw.LevenbergMarquardt(3))
TWO = (tw.LevenbergMarquardt(4), tw.LevenbergMarquardt(4))


@pytest.mark.parametrize(
    ("project", "projection", "expected"),
    [("late", None, [False, False, True]), ("always", None, [True] * 3), ("late", NoProjection(), [True] * 3)],
)
def test_which_stages_are_projected(project, projection, expected):
    _, problems, params = prepare(turning(projection), measured(), methods=STAGES, project=project)
    assert [problem.projected for problem in problems] == expected
    first = jax.tree.map(lambda leaf: leaf[0], params)
    used = [isinstance(problem.estimate(first).twin.projection, NoProjection) for problem in problems]
    assert used == [not each or projection is not None for each in expected]


@pytest.fixture(scope="module")
def late():
    return tw.fit(turning(), measured(), valid=measured(), method=TWO, seeds=2, **QUIET)


def test_an_unprojected_stage_trains_as_the_twin_without_projection(late):
    """Its losses are those of HRPINN, bit for bit; the fitted twin keeps its projection."""
    plain = tw.fit(turning(NoProjection()), measured(), valid=measured(), method=TWO[0], seeds=2, **QUIET)
    stage = late.history["stage"][:, 0]
    assert set(stage) == {0, 1}
    np.testing.assert_array_equal(late.history["loss"][stage == 0], plain.history["loss"])
    assert late.twin.simulate([1.0, 0.0], TIMES).trajectory.relative_violation.max() <= 1e-12


def test_scores_are_those_of_the_projected_twin(late):
    last = late.history["stage"][:, 0] == 1
    assert (late.scores <= late.history["score"][last].min(axis=0) + 1e-15).all()


class Escaping(tw.numerics.AbstractIntegrator):
    """Explicit Euler in a field that is not defined off the circle."""

    def step(self, field, t, dt, x, w, p):
        return tw.numerics.IntegratorResult(x + dt * field(t, x, w(t), p), tw.RESULTS.successful)


def leaving():
    """Off the circle by more than 8 % its field is not a number: without projection no trajectory gets far."""

    def physics(x):
        return jnp.where(x @ x < 1.08, jnp.stack([-x[1], x[0]]), jnp.nan)

    network = tw.MLP(states=[0, 1], adds_to=[0, 1], width=4, depth=1, zero_last=True)
    return tw.phrpinn(physics, network, constraint=CIRCLE, projection=tw.Newton(), integrator=Escaping())


def test_a_stage_that_fails_without_projection_is_repeated_with_it(tmp_path):
    path = tmp_path / "fit.npz"
    with pytest.warns(UserWarning, match="2 of 2 seeds failed without projection in stage 1"):
        fit = tw.fit(leaving(), measured(), method=TWO, seeds=2, checkpoint=path, **QUIET)
    assert not fit.failures
    assert np.isfinite(fit.scores).all()
    assert fit.history["failed_runs"][-1].max() == 0
    assert (fit.scores < 1e-8).all()  # the network has learned what Euler's method leaves
    again = tw.fit(leaving(), measured(), method=TWO, seeds=2, checkpoint=path, **QUIET)
    np.testing.assert_array_equal(again.scores, fit.scores)
    np.testing.assert_array_equal(again.history["loss"], fit.history["loss"])
