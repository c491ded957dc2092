"""Projections for many constraints: the same point and derivatives as the dense ones, and the same honesty."""

import functools
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.systems.chain import Chain
from twinfold_studies.systems.power_grid import PowerGrid

from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Conserved, Constraint
from twinfold.numerics._cell import Cell
from twinfold.numerics._constraint import violation_scale
from twinfold.numerics._integrate.explicit import RK4
from twinfold.numerics._linalg.banded import apply_band, factorise_band, probe_band
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.krylov import Krylov
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.pattern import NotSparseError, find_pattern
from twinfold.numerics._project.primal_dual import PrimalDual
from twinfold.numerics._project.select import select_projection
from twinfold.numerics._project.sparse import Normal, Saddle, Sparse
from twinfold.numerics._rollout import rollout

LINKS = 12
METHODS = {
    "krylov": Krylov(),
    "saddle": Sparse(factorise="saddle"),
    "normal": Sparse(factorise="normal"),
}


def project(projection, constraint, x):
    return projection.project(constraint, 0.0, x, {}, constraint.level(0.0, x, {}))


def derivatives_at(of, out):
    """The exact derivative at a projected state, and the one without curvature, by dense linear algebra."""
    n, m = len(out.x), len(out.multiplier)
    g = of.constraint.g
    slopes = jax.jit(lambda x, multiplier: (jax.jacobian(g)(x), jax.hessian(lambda x: g(x) @ multiplier)(x)))
    jacobian, bend = map(np.asarray, slopes(out.x, out.multiplier))

    def derivative(hessian):
        kkt = np.block([[hessian, jacobian.T], [jacobian, np.zeros((m, m))]])
        return np.linalg.inv(kkt)[:n, :n]

    return derivative(np.eye(n) + bend), derivative(np.eye(n))


@functools.cache
def projected_chain(name) -> tuple[Any, ...]:
    """A stretched chain projected, with its derivative in one direction and its transpose in another."""
    of = Chain(LINKS)
    x = of.predictor(0.02)
    v, u = jnp.asarray(np.random.default_rng(0).normal(size=(2, 2 * LINKS)))

    @jax.jit
    def run(x, v, u):
        def found(x):
            out = project(METHODS[name], of.constraint, x)
            return out.x, out

        _, push, out = jax.linearize(found, x, has_aux=True)
        return out, push(v), jax.linear_transpose(push, x)(u)[0]

    return of, x, v, u, *run(x, v, u)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ("krylov", "saddle") else ()) for name in METHODS]
)
def test_nearest_point_and_its_derivative(name):
    """The KKT conditions, and the derivative of a dense KKT system: forwards, and transposed."""
    of, x, v, u, out, forward, backward = projected_chain(name)
    assert out.result == RESULTS.successful
    assert float(jnp.max(out.violation)) < 1e-14
    normal = jax.jit(lambda x, multiplier: jax.vjp(of.constraint.g, x)[1](multiplier)[0])(out.x, out.multiplier)
    np.testing.assert_allclose(x - out.x, normal, rtol=0, atol=1e-15)
    exact, tangent = derivatives_at(of, out)
    np.testing.assert_allclose(forward, exact @ v, rtol=0, atol=1e-11)
    np.testing.assert_allclose(backward, exact @ u, rtol=0, atol=1e-11)  # symmetric
    # The curvature is no small matter here: without it the derivative is another one.
    assert np.max(np.abs((exact - tangent) @ v)) > 0.1
    np.testing.assert_allclose(out.x, projected_chain("saddle")[4].x, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["normal", "saddle"])
def test_tangent_derivative(name):
    of, x, v, _, out, _, _ = projected_chain(name)
    problem = ProjectionProblem(of.constraint, jnp.array(0.0), x, {}, jnp.zeros(LINKS), None)
    pattern = find_pattern(problem)
    method = Saddle(pattern) if name == "saddle" else Normal(pattern, 100)
    nothing = jax.tree.map(lambda _: None, problem)
    change = eqx.tree_at(lambda change: change.target, nothing, v, is_leaf=lambda node: node is None)
    tangent = jax.jit(lambda out: PrimalDual(method, "tangent", 1, 1e-15).sensitivity(problem, out, change))(out)
    np.testing.assert_allclose(tangent.x, derivatives_at(of, out)[1] @ v, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_derivative_in_parameter_and_level():
    """Against central differences, through the multipliers too."""
    constraint = Constraint(lambda x, p: 0.5 * jnp.sum((jnp.diff(x.reshape(-1, 2), axis=0) / p["length"]) ** 2, axis=1))
    x = Chain(8).predictor(0.02)
    weights = jnp.cos(jnp.arange(16.0))

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def loss(length, level):
        out = Sparse().project(constraint, 0.0, x, {"length": length}, level)
        return weights @ out.x + 1e3 * jnp.sum(out.multiplier[::2])

    length, level, h = jnp.array(0.125), jnp.full((7,), 0.5).at[3].set(0.51), 1e-5
    by_length, by_level = loss(length, level)[1]
    difference = (loss(length + h, level)[0] - loss(length - h, level)[0]) / (2 * h)
    np.testing.assert_allclose(by_length, difference, rtol=1e-6)
    one = jnp.zeros(7).at[3].set(h)
    difference = (loss(length, level + one)[0] - loss(length, level - one)[0]) / (2 * h)
    np.testing.assert_allclose(by_level[3], difference, rtol=1e-6)


def awkward(x):
    """Circles, without a gradient at their centres; the first of them twice; and a bowl with a kink at -2."""
    radii = jnp.sum(x[:6].reshape(-1, 2) ** 2, axis=1)
    kink = 0 * jnp.sqrt(jnp.abs(x[6:7] + 2))  # zero, but for its derivative
    return jnp.concatenate([radii - 1, 3 * (radii[:1] - 1), x[6:7] - 4 * x[7:] ** 2 + kink])


@pytest.mark.parametrize(
    "projection", [pytest.param(Krylov(bandwidth=3), marks=pytest.mark.slow), Sparse()], ids=["krylov", "sparse"]
)
def test_failures_are_flagged_and_leave_the_state(projection):
    """Side by side. Redundant constraints are no failure: the correction is the shortest all the same."""
    fine = jnp.array([2.0, 0.0, 0.0, 0.5, 1.0, 1.0, -0.1, 0.0])
    cases = {
        "redundant": (fine, RESULTS.successful),
        "far": (fine.at[4:6].multiply(50), RESULTS.successful),
        "not differentiable": (fine.at[6].set(-2.0), RESULTS.not_differentiable),
        "no gradient": (fine.at[2:4].set(0), RESULTS.singular),
        "not finite": (fine.at[5].set(jnp.nan), RESULTS.nonfinite),
        # On the axis, the bottom of the bowl is stationary, and a maximum of the distance.
        "saddle": (fine.at[6].set(1.0), RESULTS.second_order),
    }
    targets = jnp.stack([x for x, _ in cases.values()] + [fine])
    levels = jnp.zeros((7, 5)).at[6, 3].set(3.0)  # twice the same radius, but not the same one: no solution

    def run(x, level):
        def found(x):
            out = projection.project(Constraint(awkward), 0.0, x, {}, level)
            return out.x, out

        _, pull, out = jax.vjp(found, x, has_aux=True)
        return out, pull(jnp.ones(8))[0]

    out, gradient = jax.jit(jax.vmap(run))(targets, levels)
    for i, (name, (_, result)) in enumerate(cases.items()):
        assert bool((out.result == result)[i]), name
    assert bool((out.result != RESULTS.successful)[6])
    for i in (0, 1):
        pairs = targets[i, :6].reshape(-1, 2)
        nearest = pairs / jnp.linalg.norm(pairs, axis=1)[:, None]
        np.testing.assert_allclose(out.x[i, :6].reshape(-1, 2), nearest, atol=1e-12)
        assert float(jnp.max(out.violation[i])) < 1e-12
    failed = jnp.array([2, 3, 4, 5, 6])
    np.testing.assert_array_equal(out.x[failed], targets[failed])
    np.testing.assert_array_equal(gradient[failed], 1)  # of the identity
    assert bool(jnp.all(jnp.isfinite(gradient)))


@pytest.mark.parametrize("half", [1, 3])
def test_band_is_read_and_solved(half):
    m = 37
    rng = np.random.default_rng(half)
    lower = np.tril(np.triu(rng.normal(size=(m, m)), -half)) + 3 * np.eye(m)
    matrix = jnp.asarray(lower @ lower.T)
    v = jnp.asarray(rng.normal(size=m))

    @jax.jit
    def run(spoilt):
        band = probe_band(lambda v: matrix @ v, v, half)
        factor = factorise_band(band.at[5, half].add(spoilt))
        return apply_band(band, v), factor.definite, factor.solve(v)

    image, definite, solution = run(0.0)
    np.testing.assert_allclose(image, matrix @ v, atol=1e-12)
    assert bool(definite)
    np.testing.assert_allclose(matrix @ solution, v, atol=1e-11)
    # An indefinite matrix is not factorised: its diagonal is used.
    _, definite, solution = run(-1e3)
    assert not bool(definite)
    np.testing.assert_allclose(solution[6:], (v / jnp.diagonal(matrix))[6:], atol=1e-14)


@pytest.mark.slow
def test_power_grid_by_optimality():
    """x~ - x = G' lambda and g(x) = 0, for a constraint whose G G' is not narrow."""
    grid = PowerGrid(5)
    x = grid.predictor(1e-2)
    out = jax.jit(lambda x: project(Sparse(factorise="normal"), grid.constraint, x))(x)
    assert out.result == RESULTS.successful
    assert float(jnp.max(jnp.abs(grid.balance(out.x)))) < 1e-13
    np.testing.assert_allclose(x - out.x, jax.vjp(grid.balance, out.x)[1](out.multiplier)[0], atol=1e-13)


def test_choice_by_size_and_structure():
    assert isinstance(select_projection(Chain(10).constraint, Chain(10).state), Newton)
    assert isinstance(select_projection(Chain(300).constraint, Chain(300).state), Sparse)
    together = np.ones(600)
    assert isinstance(select_projection(Constraint(lambda x: together * jnp.sum(x**2)), jnp.zeros(700)), Krylov)
    few = Constraint(lambda x: together[:300] * jnp.sum(x**2))
    assert isinstance(select_projection(few, jnp.zeros(400)), Newton)


def test_indices_that_depend_on_the_state_are_refused():
    """asdex follows the computation: an index that is not constant may be any."""

    def moving(x):
        return x[jnp.argsort(x)][:300] ** 2 - 1

    with pytest.raises(NotSparseError, match="constant NumPy arrays"):
        Sparse().project(Constraint(moving), 0.0, jnp.arange(400.0), {}, jnp.zeros(300))


def test_bad_arguments_and_missing_extra(monkeypatch):
    with pytest.raises(ValueError, match=r"derivative='loop'"):
        Krylov(derivative="loop")
    with pytest.raises(ValueError, match="vector of positive weights"):
        Sparse(metric=np.eye(3))
    with pytest.raises(ValueError, match="bandwidth=-1"):
        Krylov(bandwidth=-1)
    for missing in ("asdex", "klujax"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, missing, None)
            with pytest.raises(ImportError, match=r"pip install 'twinfold\[sparse\]'"):
                project(Sparse(), Constraint(lambda x: x[:1] ** 2), jnp.ones(3))


def test_scale_of_many_constraints_is_estimated():
    of = Chain(600)
    estimated = violation_scale(of.constraint, 0.0, of.state, {}, jnp.zeros(600))
    lengths = np.full(600, 2**0.5 * 600)
    lengths[0] = 600
    exact = lengths * float(jnp.linalg.norm(of.state))
    assert np.max(np.abs(np.log(estimated / exact))) < np.log(1.6)


@pytest.mark.slow
@pytest.mark.parametrize("derivative", ["implicit", "tangent"])
@pytest.mark.parametrize("name", METHODS)
def test_agrees_with_dense_newton(name, derivative):
    """A chain of 40 links, weighted by a metric: value, multipliers, derivatives."""
    of = Chain(40)
    x, v = of.predictor(1e-3), jnp.cos(jnp.arange(80.0) ** 2)
    weights = 1 + 0.1 * (np.arange(80) % 5)
    kind = {"krylov": Krylov, "saddle": Sparse, "normal": functools.partial(Sparse, factorise="normal")}[name]

    def run(projection):
        def found(x):
            out = project(projection, of.constraint, x)
            return out.x, out

        _, push, out = jax.linearize(found, x, has_aux=True)
        return out, push(v), jax.linear_transpose(push, x)(v)[0]

    dense = jax.jit(lambda: run(Newton(derivative=derivative, metric=weights)))()
    large = jax.jit(lambda: run(kind(derivative=derivative, metric=weights)))()
    assert dense[0].result == large[0].result == RESULTS.successful
    np.testing.assert_allclose(large[0].x, dense[0].x, rtol=0, atol=1e-14)
    np.testing.assert_allclose(large[0].multiplier, dense[0].multiplier, rtol=1e-10)
    np.testing.assert_allclose(large[1], dense[1], rtol=0, atol=1e-10)
    np.testing.assert_allclose(large[2], dense[2], rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("projection", [Krylov(), Sparse()], ids=["krylov", "sparse"])
def test_float32(projection):
    of = Chain(LINKS)
    out = jax.jit(lambda x: project(projection, of.constraint, x))(of.predictor(0.02).astype(jnp.float32))
    assert out.x.dtype == jnp.float32
    assert out.result == RESULTS.successful
    assert float(jnp.max(out.violation)) < 1e-5  # 12 links: a rounding error of x is 12 of them in g
    np.testing.assert_allclose(out.x, projected_chain("saddle")[4].x, atol=1e-6)


@pytest.mark.slow
def test_power_grid_without_a_preconditioner():
    """Lengths of gradients are estimated there; the point is the same."""
    grid = PowerGrid(6)
    x = grid.predictor(1e-2)
    plain = jax.jit(lambda x: project(Krylov(bandwidth=0), grid.constraint, x))(x)
    direct = jax.jit(lambda x: project(Sparse(), grid.constraint, x))(x)
    assert plain.result == RESULTS.successful
    np.testing.assert_allclose(plain.x, direct.x, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_hundred_thousand_states():
    of = Chain(50_000)
    x = of.predictor(1e-5)
    out = jax.jit(lambda x: project(Sparse(), of.constraint, x))(x)
    assert out.result == RESULTS.successful
    assert float(jnp.max(jnp.abs(of.constraint.g(out.x)))) < 1e-10


@pytest.mark.slow
def test_a_chain_swings_through_a_rollout():
    """600 links, with the level of the start, in the recurrent cell; forwards and backwards."""
    of = Chain(600)
    cell = Cell(lambda x: jnp.tile(jnp.array([0.1, -1.0]), 600), None, RK4(), Conserved(of.constraint.g), Sparse())

    @jax.jit
    @jax.value_and_grad
    def reached(x0):
        out = rollout(cell, x0, 1e-5 * jnp.arange(4), throw=False)
        return jnp.sum(out.xs[-1] ** 2) + 1e3 * jnp.max(out.violation)

    value, gradient = reached(of.state)
    assert bool(jnp.isfinite(value)) & bool(jnp.all(jnp.isfinite(gradient)))
    assert float(jnp.max(rollout(cell, of.state, 1e-5 * jnp.arange(4)).violation)) < 1e-12


@pytest.mark.slow
def test_importing_klujax_changes_no_setting():
    code = (
        "import jax, jax.numpy as jnp\n"
        "from twinfold.numerics._project.sparse import _klujax\n"
        "before = jax.config.read('jax_enable_x64'), jax.config.read('jax_platform_name')\n"
        "_klujax()\n"
        "assert before == (jax.config.read('jax_enable_x64'), jax.config.read('jax_platform_name'))\n"
        "assert jnp.zeros(1).dtype == jnp.float32\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
