"""The first steps of the robust projection: the answers of the whole search, at half the cost."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import BY_NAME, energy
from support.jacobians import far_predictors

from twinfold._core import outcome_codes
from twinfold.model._constraint.base import Conserved, Stack
from twinfold.numerics._project import newton
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.kkt import point
from twinfold.numerics._project.near import approach, may_be_near
from twinfold.numerics._project.newton import Newton

TOLERANCE = 4 * float(np.finfo(float).eps)


def projected(case, predictors):
    t, _, p, level = case.arguments()

    def one(x):
        return Newton().project(case.constraint, t, x, p, level, anchor=jnp.asarray(case.on))

    return jax.jit(jax.vmap(one))(predictors)


@pytest.mark.parametrize(
    "name",
    [
        "lotka_volterra",
        "ellipse",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("circle", "two_body_LE", "spring_EL", "robot_arm")),
    ],
)
def test_the_answers_are_those_of_the_search_without_it(name, monkeypatch):
    """From 1e-2 to 10 times the size of the state away: the same point, or the same failure."""
    case = BY_NAME[name]
    predictors = far_predictors(case, 500)
    quick = projected(case, predictors)
    monkeypatch.setattr(newton, "may_be_near", lambda problem: False)
    whole = projected(case, predictors)
    np.testing.assert_array_equal(outcome_codes(quick.result), outcome_codes(whole.result))
    np.testing.assert_allclose(quick.x, whole.x, rtol=1e-12, atol=1e-13)
    # Those that are solved there take as many evaluations; the others take some more.
    assert np.all(quick.steps >= whole.steps - 1)
    assert np.mean(quick.steps == whole.steps) > 0.3


@eqx.filter_jit
def near(constraint, on, predictor, p=None):
    on, predictor, p = jnp.asarray(on), jnp.asarray(predictor), {} if p is None else p
    problem = ProjectionProblem(constraint, 0.0, predictor, p, constraint.level(0.0, on, p), on)
    assert may_be_near(problem)
    return approach(problem, point(problem, problem.target, TOLERANCE), TOLERANCE, 50)


def test_a_predictor_beside_the_circle():
    out = near(Conserved(energy), np.array([0.8, -0.6]), np.array([0.95, -0.5]))
    assert out.arrived
    np.testing.assert_allclose(out.x, np.array([0.95, -0.5]) / np.hypot(0.95, -0.5), rtol=1e-15)
    assert out.steps <= 4


def test_dependent_constraints_are_left_to_the_search():
    twice = Stack([Conserved(energy), Conserved(lambda x: 3 * energy(x))])
    out = near(twice, np.array([0.6, 0.0, 0.8]), np.array([0.7, 0.1, 0.8]))
    assert not out.arrived
    assert out.steps == 0


@pytest.mark.parametrize(("predictor", "least"), [(1.9, True), (1.8, False)])
def test_a_saddle_is_left_to_the_search(predictor, least):
    """The end of the major axis is nearest to what lies beyond its centre of curvature, at 2 - 0.5^2 / 2 = 1.875."""
    ellipse, p = BY_NAME["ellipse"].constraint, {"axes": jnp.array([2.0, 0.5])}
    out = near(ellipse, np.array([2.0, 0.0]), np.array([predictor, 0.0]), p)
    np.testing.assert_allclose(out.x, [2.0, 0.0], atol=0.02)
    assert out.arrived == least


def test_large_problems_are_left_to_the_search():
    case = BY_NAME["wide"]
    t, x, p, level = case.arguments()
    assert not may_be_near(ProjectionProblem(case.constraint, t, x, p, level, None))
