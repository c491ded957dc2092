"""Constraints with slack: the minimiser against a closed form, derivatives three ways, and what a fit makes of it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.jacobians import QUICK

import twinfold as tw

PLANE = tw.Constraint(lambda x: x[0] + 2 * x[1] - 1)
CIRCLE = tw.Constraint(lambda x: x @ x - 1)


@eqx.filter_jit
def projected(projection, constraint, x, level=None):
    zero = jnp.zeros(1) if level is None else level
    return projection.project(constraint, jnp.array(0.0), x, {}, zero, anchor=x)


@pytest.mark.parametrize("size", [1e-3, 1.0, 20.0])
@pytest.mark.parametrize("projection", [tw.Newton(), tw.Tangent(), tw.Adaptive()], ids=lambda each: type(each).__name__)
def test_the_state_moves_by_a_fraction_of_the_way(projection, size):
    """For a plane: x = x~ - (g / |n|^2) n / (1 + size^2)."""
    x, normal = jnp.array([1.5, 0.7]), np.array([1.0, 2.0])
    out = projected(projection, tw.Slack(PLANE, tw.Unknown(size, positive=True)), x)  # one program for all sizes
    g = float(PLANE.residual(0.0, x, {}, jnp.zeros(1))[0])
    np.testing.assert_allclose(out.x, x - g * normal / 5 / (1 + size**2), rtol=1e-12)
    np.testing.assert_allclose(out.violation, abs(g) * size**2 / (1 + size**2), rtol=1e-9)
    assert bool(out.result == tw.RESULTS.successful)


def test_it_is_the_minimiser_on_a_curved_manifold():
    x, size = np.array([1.4, 0.3]), 0.8
    slope = 2 * np.linalg.norm(x)

    def cost(y):
        return np.sum((y - x) ** 2) + ((y @ y - 1) / (size * slope)) ** 2

    found = np.asarray(projected(tw.Newton(), tw.Slack(CIRCLE, size), jnp.asarray(x)).x)
    for step in 1e-4 * np.array([[1, 0], [0, 1], [1, 1], [1, -1]]):
        assert cost(found) < cost(found + step)
        assert cost(found) < cost(found - step)


def test_without_slack_it_stays_exact():
    both = tw.Stack([tw.Slack(tw.Constraint(lambda x: x[0] - 1), 1.0), tw.Constraint(lambda x: x[1])])
    out = projected(tw.Newton(), both, jnp.array([2.0, 0.5]), jnp.zeros(2))
    np.testing.assert_allclose(out.x, [1.5, 0.0], atol=1e-15)


@pytest.mark.parametrize("metric", [None, [1.0, 4.0]])
def test_derivatives_three_ways(metric):
    """In the raw size and in both states."""

    def end(v):
        constraint = eqx.tree_at(lambda slack: slack.size.raw, tw.Slack(CIRCLE), v[0])
        return projected(tw.Newton(metric=metric), constraint, v[1:]).x

    v, h = np.array([0.3, 1.2, 0.4]), 1e-6
    ends = jax.jit(jax.vmap(end), compiler_options=QUICK)(np.concatenate([v + h * np.eye(3), v - h * np.eye(3)]))
    differences = np.asarray(ends[:3] - ends[3:]).T / (2 * h)
    for found in jax.jit(lambda v: (jax.jacfwd(end)(v), jax.jacrev(end)(v)), compiler_options=QUICK)(v):
        np.testing.assert_allclose(found, differences, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("weight", "integrator", "confirmed"), [(1.0, tw.Euler(), True), (1.3, tw.RK4(2), False)])
def test_a_fit_finds_how_much_slack_the_data_ask_for(weight, integrator, confirmed):
    """Data on circles. Their radius corrects Euler's steps; an ellipse only takes exact steps away from the data."""
    ts = np.linspace(0, 6, 61)
    data = tw.Dataset.from_arrays(ts, [np.stack([a * np.cos(ts), -a * np.sin(ts)], 1) for a in (0.5, 1.0)])
    twin = tw.Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
        params={"k": tw.Unknown(1.1, positive=True)},
        constraint=tw.Slack(tw.Conserved(lambda x: weight * x[0] ** 2 + x[1] ** 2)),
        projection=tw.Newton(),
        integrator=integrator,
    )
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(40), progress=False)
    constraint = fit.twin.constraint
    assert isinstance(constraint, tw.Slack)
    assert isinstance(constraint.size, tw.Unknown)
    size = float(constraint.size.value())
    assert size < 0.1 if confirmed else size > 10
    assert fit.scores[0] < 1e-3


def test_what_cannot_have_slack():
    with pytest.raises(ValueError, match="positive number"):
        tw.Slack(CIRCLE, 0.0)
    with pytest.raises(ValueError, match="cannot contain Bounds"):
        tw.Slack(tw.Bounds(lambda x: x, lower=0.0))
