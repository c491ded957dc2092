"""Every projection on every constraint: the value, the nearest point, the derivative, and the failures."""

from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import BY_NAME, Case, energy, kepler_energy
from jax.flatten_util import ravel_pytree

from twinfold.constraint.base import Conserved, Constraint, violation_scale
from twinfold.project.base import NoProjection
from twinfold.project.newton import Newton
from twinfold.project.tangent import Tangent
from twinfold.result import RESULTS

STEP = 1e-5  # of the central differences
QUICK = {"xla_backend_optimization_level": 0}  # these programs run once: compiling them is what takes the time
LOOP = ["circle", "two_body_LE", "robot_arm"]

every_case = pytest.mark.parametrize("name", list(BY_NAME))


def some_cases(names):
    """Those by default, the rest with the slow tests."""
    return pytest.mark.parametrize(
        "name", [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in BY_NAME]
    )


def flat_problem(case: Case, dtype=jnp.float64):
    """The differentiable inputs (x, level, p, and t where it matters) as one vector, and its inverse."""
    t, off, p, level = case.arguments(dtype)
    theta, back = ravel_pytree((off, level, p, t) if case.timed else (off, level, p))

    def parts(theta):
        values = back(theta)
        x, level, p = values[:3]
        return (values[3] if case.timed else t), x, p, level

    return theta, parts


def with_jacobians(case: Case, projection, thetas, *, anchored=False):
    """At each theta: the projection, and dx/dtheta forward and in reverse from one linearisation."""
    _, parts = flat_problem(case, thetas.dtype)
    anchor = jnp.asarray(case.on, thetas.dtype) if anchored else None

    def one(theta):
        def run(theta):
            t, x, p, level = parts(theta)
            out = projection.project(case.constraint, t, x, p, level, anchor=anchor)
            return out.x, out

        x, push, out = jax.linearize(run, theta, has_aux=True)
        forward = jax.vmap(push, out_axes=1)(jnp.eye(theta.shape[0], dtype=theta.dtype))
        pull = jax.linear_transpose(push, theta)
        (reverse,) = jax.vmap(pull)(jnp.eye(x.shape[0], dtype=x.dtype))
        return out, forward, reverse

    return jax.jit(jax.vmap(one), compiler_options=QUICK)(thetas)


def stencil(theta):
    """theta, and its neighbours for central differences."""
    shifts = STEP * np.eye(theta.shape[0])
    return np.concatenate([theta[None], theta + shifts, theta - shifts])


def central_difference(xs, size):
    """dx/dtheta from the projections of a stencil."""
    return (np.asarray(xs[1 : size + 1]) - np.asarray(xs[size + 1 : 2 * size + 1])).T / (2 * STEP)


def far_predictors(case: Case, count: int):
    """Predictors from 1e-2 to 10 times the size of the state away from the one on the manifold."""
    keys = jax.random.split(jax.random.key(7))
    reach = 10 ** jax.random.uniform(keys[0], (count, 1), minval=-2.0, maxval=1.0) * np.linalg.norm(case.on)
    ways = jax.random.normal(keys[1], (count, case.n))
    return case.on + reach * ways / jnp.linalg.norm(ways, axis=1, keepdims=True)


def distance(a, b):
    return np.linalg.norm(np.asarray(a) - np.asarray(b), axis=-1)


def relative(case: Case, xs, dtype=jnp.float64):
    """The violation of each state, as DESIGN section 3 defines it."""
    t, _, p, level = case.arguments(dtype)
    scale = violation_scale(case.constraint, t, jnp.asarray(case.on, dtype), p, level)
    return np.max(np.abs(jax.vmap(lambda x: case.constraint.residual(t, x, p, level))(xs)) / scale, axis=1)


def relative_error(a, b):
    return np.linalg.norm(np.asarray(a) - np.asarray(b)) / np.linalg.norm(np.asarray(b))


@cache
def robust(name: str):
    """Everything the tests need of `Newton()` on one constraint, compiled once."""
    case = BY_NAME[name]
    theta, _ = flat_problem(case)
    points = stencil(np.asarray(theta))
    predictors = far_predictors(case, 100 if case.n > 8 else 2000)
    far = np.tile(np.asarray(theta), (len(predictors), 1))
    far[:, : case.n] = predictors
    out, forward, reverse = with_jacobians(case, Newton(), jnp.asarray(np.concatenate([points, far])), anchored=True)
    near = len(points)
    return SimpleNamespace(
        case=case,
        size=theta.shape[0],
        out=jax.tree.map(lambda leaf: leaf[0], out),
        forward=forward[0],
        reverse=reverse[0],
        difference=central_difference(out.x[:near], theta.shape[0]),
        predictors=predictors,
        far=jax.tree.map(lambda leaf: leaf[near:], out),
        far_forward=forward[near:],
    )


@every_case
def test_newton_lands_on_the_manifold(name):
    run = robust(name)
    assert run.out.result == RESULTS.successful
    assert relative(run.case, run.out.x[None])[0] <= 1e-12
    np.testing.assert_allclose(run.out.violation, np.abs(residual(run.case, run.out.x)), rtol=0, atol=1e-15)


def residual(case: Case, x):
    t, _, p, level = case.arguments()
    return case.constraint.residual(t, x, p, level)


@every_case
def test_newton_is_a_strict_local_minimum(name):
    """x - x~ + G'lambda = 0, and the Hessian of the Lagrangian is positive definite along the manifold."""
    run = robust(name)
    x, multiplier = run.out.x, run.out.multiplier
    jacobian = jax.jacfwd(lambda x: residual(run.case, x))(x)
    stationary = x - run.case.off + jacobian.T @ multiplier
    assert np.linalg.norm(stationary) <= 1e-13 * np.linalg.norm(run.case.off)
    hessian = np.eye(run.case.n) + jax.hessian(lambda x: multiplier @ residual(run.case, x))(x)
    along = np.linalg.svd(jacobian)[2][jacobian.shape[0] :]
    assert np.linalg.eigvalsh(along @ hessian @ along.T).min() > 1e-3


@every_case
def test_no_other_point_found_is_nearer(name):
    run = robust(name)
    feasible = run.far.x[np.asarray(run.far.result == RESULTS.successful)]
    assert len(feasible) >= 90
    assert distance(feasible, run.case.off).min() >= distance(run.out.x, run.case.off) - 1e-12


@every_case
def test_newton_derivative_is_that_of_central_differences(name):
    run = robust(name)
    assert relative_error(run.forward, run.difference) <= 1e-8
    np.testing.assert_allclose(run.reverse, run.forward, rtol=0, atol=1e-13 * np.abs(run.forward).max())


@every_case
def test_far_predictors_are_all_projected(name):
    """The anchor is on the manifold: what is returned must be there too, and no farther than it."""
    run = robust(name)
    solved = np.asarray(run.far.result == RESULTS.successful)
    assert solved.all(), f"{np.sum(~solved)} of {solved.size} flagged, the first {run.predictors[~solved][0]}"
    assert relative(run.case, run.far.x).max() <= 1e-12
    allowed = distance(run.predictors, run.case.on) * (1 + 1e-9)
    farther = distance(run.far.x, run.predictors) > allowed
    assert not farther.any(), f"{farther.sum()} farther, the first {run.predictors[farther][0]}"


@every_case
def test_derivative_of_far_predictors_is_finite(name):
    assert np.isfinite(robust(name).far_forward).all()


@some_cases(LOOP)
def test_newton_through_the_loop_equals_implicit(name):
    run = robust(name)
    theta, _ = flat_problem(run.case)
    out, forward, reverse = with_jacobians(run.case, Newton(derivative="loop", max_steps=12), theta[None])
    assert (out.result == RESULTS.successful).all()
    np.testing.assert_allclose(out.x[0], run.out.x, rtol=0, atol=1e-14 * float(np.linalg.norm(run.out.x)))
    assert relative_error(forward[0], run.difference) <= 1e-8
    assert relative_error(forward[0], run.forward) <= 1e-11
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-13 * np.abs(forward).max())


@some_cases(["circle", "spring_EL", "affine"])
def test_newton_tangent_derivative_neglects_curvature(name):
    """Eq. 7: dx = P dx~ - G+ dg, exact where the manifold is flat and visibly not where it is curved."""
    run = robust(name)
    theta, _ = flat_problem(run.case)
    out, forward, reverse = with_jacobians(run.case, Newton(derivative="tangent"), theta[None])
    x, n = out.x[0], run.case.n
    jacobian = np.asarray(jax.jacfwd(lambda x: residual(run.case, x))(x))
    inverse = np.linalg.pinv(jacobian)
    np.testing.assert_allclose(forward[0, :, :n], np.eye(n) - inverse @ jacobian, rtol=0, atol=1e-13)
    np.testing.assert_allclose(forward[0, :, n : n + len(jacobian)], inverse, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-13)
    if run.case.affine:
        assert relative_error(forward[0], run.forward) <= 1e-13
    else:
        assert relative_error(forward[0], run.forward) > 1e-3


@some_cases(["circle", "lotka_volterra", "two_body_LE", "robot_arm", "ellipse"])
def test_newton_in_single_precision(name):
    case = BY_NAME[name]
    t, off, p, level = case.arguments(jnp.float32)
    away = 0.3 * (off - jnp.asarray(case.on, jnp.float32))
    xs = off + jnp.linspace(-1, 1, 21, dtype=jnp.float32)[:, None] * away
    run = jax.vmap(lambda x: Newton().project(case.constraint, t, x, p, level))
    out = jax.jit(run, compiler_options=QUICK)(xs)
    assert out.x.dtype == jnp.float32
    assert (out.result == RESULTS.successful).all()
    assert relative(case, out.x, jnp.float32).max() <= 2e-6


@every_case
def test_fast_projection_is_one_linearised_step(name):
    """Its violation is of second order, and its derivative, implicit or through it, that of the formula."""
    case = BY_NAME[name]
    theta, _ = flat_problem(case)
    points = stencil(np.asarray(theta))
    out, forward, reverse = with_jacobians(case, Tangent(derivative="implicit"), jnp.asarray(points))
    assert (out.result == RESULTS.successful).all()
    jacobian = np.asarray(jax.jacfwd(lambda x: residual(case, x))(jnp.asarray(case.off)))
    expected = case.off - np.linalg.pinv(jacobian) @ residual(case, jnp.asarray(case.off))
    np.testing.assert_allclose(out.x[0], expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(out.violation[0], np.abs(residual(case, out.x[0])), rtol=0, atol=1e-14)
    assert relative_error(forward[0], central_difference(out.x, theta.shape[0])) <= 1e-8
    np.testing.assert_allclose(reverse[0], forward[0], rtol=0, atol=1e-13 * np.abs(forward[0]).max())


@every_case
def test_frozen_iteration_solves_the_constraint_along_the_first_normals(name):
    case = BY_NAME[name]
    theta, _ = flat_problem(case)
    points = stencil(np.asarray(theta))
    projection = Tangent(max_steps=30, derivative="implicit")
    out, forward, reverse = with_jacobians(case, projection, jnp.asarray(points))
    assert (out.result == RESULTS.successful).all()
    # The threshold that this iteration is documented to stop at.
    assert relative(case, out.x[:1])[0] <= 2 * np.finfo(float).eps ** 0.8
    jacobian = jax.jacfwd(lambda x: residual(case, x))(jnp.asarray(case.off))
    moved = case.off - jacobian.T @ out.multiplier[0]
    np.testing.assert_allclose(out.x[0], moved, rtol=0, atol=1e-14 * float(np.linalg.norm(moved)))
    # The iteration stops at 3e-13 relative: over a step of 2e-5 this is 1.5e-8 of noise in the differences.
    assert relative_error(forward[0], central_difference(out.x, theta.shape[0])) <= 1e-7
    np.testing.assert_allclose(reverse[0], forward[0], rtol=0, atol=1e-13 * np.abs(forward[0]).max())


@some_cases(LOOP)
def test_frozen_iteration_through_the_loop(name):
    """Thirty steps for every state leave no stopping noise: central differences to 1e-8."""
    case = BY_NAME[name]
    theta, _ = flat_problem(case)
    points = jnp.asarray(stencil(np.asarray(theta)))
    out, forward, reverse = with_jacobians(case, Tangent(max_steps=30, derivative="loop"), points)
    assert (out.result == RESULTS.successful).all()
    assert relative_error(forward[0], central_difference(out.x, theta.shape[0])) <= 1e-8
    np.testing.assert_allclose(reverse[0], forward[0], rtol=0, atol=1e-12 * np.abs(forward[0]).max())


@pytest.mark.parametrize("steps", [1, 30])
def test_fast_projection_with_the_tangent_derivative(steps):
    case = BY_NAME["two_body_LE"]
    theta, _ = flat_problem(case)
    out, forward, reverse = with_jacobians(case, Tangent(max_steps=steps), theta[None])
    jacobian = np.asarray(jax.jacfwd(lambda x: residual(case, x))(out.x[0]))
    inverse = np.linalg.pinv(jacobian)
    np.testing.assert_allclose(forward[0, :, :4], np.eye(4) - inverse @ jacobian, rtol=0, atol=1e-13)
    np.testing.assert_allclose(forward[0, :, 4:], inverse, rtol=0, atol=1e-13)
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-13)


@every_case
def test_no_projection_reports_the_violation_and_moves_nothing(name):
    case = BY_NAME[name]
    t, off, p, level = case.arguments()
    out = NoProjection().project(case.constraint, t, off, p, level)
    np.testing.assert_array_equal(out.x, off)
    np.testing.assert_array_equal(out.violation, np.abs(residual(case, off)))
    assert np.max(out.violation) > 1e-3
    assert out.result == RESULTS.successful


SPREAD = np.random.default_rng(3).normal(size=(4, 4))
METRICS = {"vector": np.array([4.0, 1.0, 0.1, 0.5]), "matrix": SPREAD @ SPREAD.T + np.eye(4)}


@pytest.mark.parametrize("metric", list(METRICS))
def test_metric_gives_the_nearest_point_in_it(metric):
    """W (x - x~) is normal to the manifold, no feasible point is nearer in W, and the derivative is exact."""
    weights = METRICS[metric]
    matrix = np.diag(weights) if weights.ndim == 1 else weights
    case = BY_NAME["spring_EL"]
    theta, _ = flat_problem(case)
    points = jnp.asarray(stencil(np.asarray(theta)))
    out, forward, reverse = with_jacobians(case, Newton(metric=weights), points, anchored=True)
    assert (out.result == RESULTS.successful).all()
    assert relative(case, out.x[:1])[0] <= 1e-12
    jacobian = jax.jacfwd(lambda x: residual(case, x))(out.x[0])
    stationary = matrix @ (out.x[0] - case.off) + jacobian.T @ out.multiplier[0]
    assert np.linalg.norm(stationary) <= 1e-13 * np.linalg.norm(matrix) * np.linalg.norm(case.off)

    def size(x):
        return np.sqrt(np.einsum("...i,ij,...j", x - case.off, matrix, x - case.off))

    feasible = np.asarray(robust("spring_EL").far.x)
    assert size(feasible).min() >= size(np.asarray(out.x[0])) - 1e-12
    assert size(np.asarray(robust("spring_EL").out.x)) > size(np.asarray(out.x[0])) * (1 + 1e-6)
    assert relative_error(forward[0], central_difference(out.x, theta.shape[0])) <= 1e-8
    np.testing.assert_allclose(reverse[0], forward[0], rtol=0, atol=1e-12 * np.abs(forward[0]).max())


@pytest.mark.parametrize("projection", [Tangent(metric=np.array([4.0, 1.0])), Newton(metric=np.array([4.0, 1.0]))])
def test_metric_keeps_single_precision(projection):
    case = BY_NAME["circle"]
    t, off, p, level = case.arguments(jnp.float32)
    assert projection.project(case.constraint, t, off, p, level).x.dtype == jnp.float32


def test_fast_projection_in_a_metric_moves_along_the_weighted_normal():
    case = BY_NAME["circle"]
    t, off, p, level = case.arguments()
    out = Tangent(metric=np.array([4.0, 1.0])).project(case.constraint, t, off, p, level)
    normal = off / np.array([4.0, 1.0])
    expected = off - normal * (energy(off) - level[0]) / (off @ normal)
    np.testing.assert_allclose(out.x, expected, rtol=1e-14)


# --- failures ---

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

    @jax.jit
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

    return run


@pytest.mark.parametrize("projection", list(PROJECTIONS))
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
    codes = np.asarray(out.result._value)
    np.testing.assert_array_equal(codes[~is_good], [int(result._value) for _, _, result in bad])
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


@pytest.mark.parametrize("projection", ["newton", "newton_loop", "frozen", "frozen_loop"])
def test_redundant_constraints_are_singular(projection):
    xs = np.array([[0.9, 0.2], [0.8, 0.5]])
    out, forward, reverse, _ = contained_run(PROJECTIONS[projection], PARALLEL)(xs, np.zeros((2, 2)), np.ones(2))
    assert (np.asarray(out.result._value) == int(RESULTS.singular._value)).all()
    np.testing.assert_array_equal(out.x, xs)
    for jacobian in (forward, reverse):
        np.testing.assert_array_equal(jacobian, np.tile(np.eye(2), (2, 1, 1)))


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
    allowed = [int(result._value) for result in (RESULTS.successful, RESULTS.second_order)]
    assert np.isin(out.result._value, allowed).all()


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
