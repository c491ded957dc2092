"""Every projection on every constraint: the value, the nearest point and the derivative."""

from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import BY_NAME, Case, energy
from support.jacobians import (
    QUICK,
    central_difference,
    distance,
    far_predictors,
    flat_problem,
    relative,
    relative_error,
    stencil,
    with_jacobians,
)

from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Constraint
from twinfold.numerics._project.base import NoProjection
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent

LOOP = ["circle"]
LONG = [
    "wide",
    "two_body_L",
    "two_body_LE",
    "spring_EL",
    "robot_arm",
    "rigid_body",
]  # to compile; each has a shorter relative


def some_cases(names):
    """Those by default, the rest with the slow tests."""
    return pytest.mark.parametrize(
        "name", [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in BY_NAME]
    )


every_case = some_cases([name for name in BY_NAME if name not in LONG])


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
    rounding = 4 * np.finfo(float).eps * max(1, np.abs(run.case.arguments()[3]).max())  # of g, which is a difference
    np.testing.assert_allclose(run.out.violation, np.abs(residual(run.case, run.out.x)), rtol=0, atol=rounding)


def residual(case: Case, x):
    t, _, p, level = case.arguments()
    return case.constraint.residual(t, x, p, level)


@pytest.mark.slow
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


@some_cases(["circle", "ellipse", "affine", "lotka_volterra", "rigid_body"])
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_manifold_that_moves_takes_no_detour():
    """The anchor is left behind, nearer to the predictor than the manifold is: Newton steps are enough all the same."""
    circle = Constraint(lambda t, x: x @ x - (1 + t) ** 2)
    anchor, target = jnp.array([1.0, 0.0]), jnp.array([1.02, 0.1])
    out = jax.jit(lambda x: Newton().project(circle, 0.3, x, {}, jnp.zeros(1), anchor=anchor))(target)
    np.testing.assert_allclose(out.x, 1.3 * target / np.linalg.norm(target), rtol=1e-14)
    assert np.linalg.norm(out.x - target) > 2 * np.linalg.norm(anchor - target)
    assert out.steps <= 6
