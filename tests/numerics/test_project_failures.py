"""A projection that cannot be done: flagged, returned as it was, and none of its neighbours' business."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import BY_NAME, kepler_energy
from support.jacobians import QUICK, distance, relative, with_jacobians

from twinfold._core import outcome_codes
from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Conserved, Constraint
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent

CIRCLE = Constraint(lambda x: x @ x - 1)
PARALLEL = Constraint(lambda x: jnp.stack([x @ x - 1, 2 * (x @ x) - 2]))
LOG = Constraint(lambda x: jnp.log(x[0]) + x[1])
# The constraint, its m, and states with the level asked for and the result expected.
FAILURES = {
    "circle": (
        CIRCLE,
        1,
        [
            ([0.0, 0.0], 0.0, RESULTS.singular),
            ([0.3, 0.4], -2.0, RESULTS.not_converged),
            ([np.inf, 0.0], 0.0, RESULTS.nonfinite),
            ([np.nan, 0.0], 0.0, RESULTS.nonfinite),
        ],
    ),
    "logarithm": (
        LOG,
        1,
        [([-0.5, 0.2], 0.0, RESULTS.outside_domain), ([0.0, 0.2], 0.0, RESULTS.outside_domain)],
    ),
}
PROJECTIONS = {
    "newton": Newton(),
    "newton_loop": Newton(derivative="loop", max_steps=8),
    "frozen": Tangent(max_steps=40, derivative="implicit"),
    "frozen_tangent": Tangent(max_steps=40),
    "frozen_loop": Tangent(max_steps=40, derivative="loop"),
}


def contained_run(projection, constraint):
    """One program for a batch: projections, dx/dx~ of each both ways, and d(sum of the good ones)/dlevel."""

    def run(xs, levels, good):
        def batch(shared, xs):
            def one(x, level):
                return projection.project(constraint, jnp.array(0.0), x, {}, level + shared)

            out = jax.vmap(one)(xs, levels)
            return out.x, out

        shared = jnp.zeros(levels.shape[1])
        _, push, out = jax.linearize(batch, shared, xs, has_aux=True)
        pull = jax.linear_transpose(push, shared, xs)
        units = jnp.broadcast_to(jnp.eye(2)[:, None, :], (2, *xs.shape))
        forward = jax.vmap(lambda unit: push(jnp.zeros_like(shared), unit), out_axes=2)(units)
        reverse = jax.vmap(lambda unit: pull(unit)[1], out_axes=1)(units)
        return out, forward, reverse, pull(jnp.ones_like(xs) * good[:, None])[0]

    return jax.jit(run, compiler_options=QUICK)


@pytest.mark.parametrize(
    "projection",
    [pytest.param(name, marks=pytest.mark.slow if name == "newton_loop" else ()) for name in PROJECTIONS],
)
@pytest.mark.parametrize("family", list(FAILURES))
def test_failures_are_flagged_and_contained(family, projection):
    """The state is returned as it was with identity derivative, and the neighbours do not notice."""
    constraint, size, bad = FAILURES[family]
    if family == "logarithm" and projection.endswith("loop"):
        bad = bad[:1]  # at x = 0 exactly the derivative of each iteration divides by zero: implicit rules do not
    good = np.array([[0.8, 0.3], [0.9, 0.05], [0.7, 0.4]])
    run = contained_run(PROJECTIONS[projection], constraint)
    xs = np.array([good[0], *(state for state, _, _ in bad), *good[1:]])
    levels = np.zeros((len(xs), size))
    levels[1:-2] += np.array([level for _, level, _ in bad])[:, None]
    is_good = np.array([True, *[False] * len(bad), True, True])
    out, forward, reverse, shared = run(xs, levels, is_good)
    codes = np.asarray(outcome_codes(out.result))
    np.testing.assert_array_equal(codes[~is_good], [int(outcome_codes(result)) for _, _, result in bad])
    np.testing.assert_array_equal(out.x[~is_good], xs[~is_good])
    for jacobian in (forward, reverse):
        np.testing.assert_array_equal(jacobian[~is_good], np.tile(np.eye(2), (len(bad), 1, 1)))
    assert (codes[is_good] == 0).all()
    # The same program with good states in the place of the bad ones, weighted zero as the bad ones were.
    alone, forward_alone, reverse_alone, shared_alone = run(
        np.where(is_good[:, None], xs, good[0]), np.zeros_like(levels), is_good
    )
    for with_bad, without in ((out.x, alone.x), (forward, forward_alone), (reverse, reverse_alone)):
        np.testing.assert_array_equal(with_bad[is_good], without[is_good])
    np.testing.assert_array_equal(shared, shared_alone)
    assert np.abs(shared).min() > 1e-3


@pytest.mark.parametrize(
    "projection", ["newton", pytest.param("newton_loop", marks=pytest.mark.slow), "frozen", "frozen_loop"]
)
def test_redundant_constraints_are_no_obstacle(projection):
    """The same constraint twice: state and derivative of the one alone, and the report counts the other."""
    xs = np.array([[0.9, 0.2], [0.8, 0.5]])
    out, forward, reverse, _ = contained_run(PROJECTIONS[projection], PARALLEL)(xs, np.zeros((2, 2)), np.ones(2))
    assert (out.result == RESULTS.successful).all()
    np.testing.assert_array_equal(out.redundant, [1, 1])
    size = np.linalg.norm(xs, axis=1)[:, None]
    np.testing.assert_allclose(out.x, xs / size, rtol=0, atol=1e-12)
    expected = (np.eye(2) - xs[:, :, None] * xs[:, None] / size[..., None] ** 2) / size[..., None]
    for jacobian in (forward, reverse):
        np.testing.assert_allclose(jacobian, expected, rtol=0, atol=1e-11)


def test_single_step_from_an_infeasible_level_is_reported_by_its_violation():
    """One step promises no convergence: it is not flagged, but its violation says how far it is."""
    out = Tangent().project(CIRCLE, jnp.array(0.0), jnp.array([0.3, 0.4]), {}, jnp.array([-2.0]))
    np.testing.assert_allclose(out.violation[0], out.x @ out.x + 1)
    assert out.violation[0] >= 1


def test_lotka_volterra_predictors_outside_the_domain_are_projected():
    """The paper's NaN: one or both populations negative or zero."""
    case = BY_NAME["lotka_volterra"]
    _, _, _, level = case.arguments()
    xs = jnp.array([[-0.2, 1.0], [1.5, -1e-3], [0.0, 0.8], [-3.0, -2.0], [1e-12, 5.0], [-50.0, 4.0]])
    out, forward, reverse = with_jacobians(
        case, Newton(), jnp.concatenate([xs, jnp.full((6, 1), level)], axis=1), anchored=True
    )
    assert (out.result == RESULTS.successful).all()
    assert relative(case, out.x).max() <= 1e-12
    assert (out.x > 0).all()
    assert (distance(out.x, xs) <= distance(case.on, xs)).all()
    assert np.isfinite(forward).all()
    np.testing.assert_allclose(reverse, forward, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("anchored", [True, False])
def test_beyond_the_centre_of_curvature(anchored):
    """Inside the evolute of an ellipse, symmetry leads to a saddle: solved or flagged, never returned."""
    case = BY_NAME["ellipse"]
    t, _, p, level = case.arguments()
    xs = jnp.array([[0.3, 0.0], [-0.5, 0.0], [1.2, 0.0], [0.3, 1e-9]])
    angles = np.linspace(0, 2 * np.pi, 200001)
    around = np.stack([2 * np.cos(angles), 0.5 * np.sin(angles)], axis=1)
    anchor = jnp.asarray(case.on) if anchored else None
    run = jax.jit(jax.vmap(lambda x: Newton().project(case.constraint, t, x, p, level, anchor=anchor)))
    out = run(xs)
    for x, end, result in zip(xs, out.x, out.result == RESULTS.successful, strict=True):
        if result:
            assert distance(end, x) <= distance(around, x).min() + 1e-9
        else:
            np.testing.assert_array_equal(end, x)
    assert not anchored or (out.result == RESULTS.successful).all()
    allowed = [int(outcome_codes(result)) for result in (RESULTS.successful, RESULTS.second_order)]
    assert np.isin(outcome_codes(out.result), allowed).all()


def test_units_of_the_constraint_do_not_matter():
    """A constraint in joules or in gigajoules has the same nearest point."""
    case = BY_NAME["two_body_LE"]
    _, off, _, _ = case.arguments()
    constraint = Conserved(lambda x, p: p["unit"] * kepler_energy(x))

    def nearest(unit):
        p = {"unit": unit}
        level = constraint.level(0.0, jnp.asarray(case.on), p)
        return Newton().project(constraint, 0.0, off, p, level)

    out = jax.jit(jax.vmap(nearest))(jnp.array([1e-9, 1.0, 1e9]))
    assert (out.result == RESULTS.successful).all()
    np.testing.assert_allclose(out.x, np.tile(out.x[1], (3, 1)), rtol=1e-14)
