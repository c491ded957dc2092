"""Bounds beside equations: the nearest state that obeys all, its derivative on the active set, and what is refused."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.jacobians import QUICK

import twinfold as tw
from twinfold._core import outcome_codes
from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.model._constraint.bounds import Bounds
from twinfold.model._constraint.hidden import WithHiddenConstraints
from twinfold.numerics._constraint import check_constraint, violation_scale
from twinfold.numerics._project.base import NoProjection
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent

SIMPLEX = Stack([Conserved(lambda x: jnp.sum(x)), Bounds(lambda x: x, lower=0.0)])
# A sphere with a band of latitudes and a saddle cut away; the saddle has no lower bound.
SPHERE = Stack(
    [
        Constraint(lambda x: x @ x - 1),
        Bounds(lambda x: jnp.stack([x[0], x[1] * x[2]]), lower=[-0.2, -np.inf], upper=[0.5, 0.1]),
    ]
)
PROJECTIONS = {
    "robust": Newton(),
    "fast": Tangent(derivative="implicit"),
    "frozen": Tangent(max_steps=30, derivative="implicit"),
}
H = 1e-6


@cache
def run(name, of):
    """Projections with derivatives, forward and in reverse, for a batch of states."""
    projection, constraint = PROJECTIONS[name], {"simplex": SIMPLEX, "sphere": SPHERE}[of]

    def one(x, level):
        def nearest(x):
            out = projection.project(constraint, jnp.zeros((), x.dtype), x, {}, level)
            return out.x, out

        _, push, out = jax.linearize(nearest, x, has_aux=True)
        units = jnp.eye(x.shape[0], dtype=x.dtype)
        (reverse,) = jax.vmap(jax.linear_transpose(push, x))(units)
        return out, jax.vmap(push, out_axes=1)(units), reverse

    return jax.jit(jax.vmap(one, in_axes=(0, None)), compiler_options=QUICK)


def nearest_of_simplex(x):
    """Sort and cut: Held, Wolfe and Crowder 1974."""
    ordered = np.sort(x)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(x) + 1)
    return np.maximum(x - excess[np.nonzero(ordered > excess)[0][-1]], 0)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param("robust", np.float64, marks=pytest.mark.slow),
        pytest.param("fast", np.float64, marks=pytest.mark.slow),
        pytest.param("robust", np.float32, marks=pytest.mark.slow),
    ],
)
def test_concentrations_that_are_not_negative_and_add_up(name, dtype):
    """Against the exact projection onto the simplex, from states with none to all but one of the bounds active."""
    xs = np.random.default_rng(0).normal(size=(100, 3)).astype(dtype)
    xs[:3] = [[0.2, 0.3, 0.6], [3.0, -0.1, -5.0], [-1.0, -1.0, -1.0]]
    out, forward, reverse = run(name, "simplex")(xs, np.array([1.0, 0, 0, 0], dtype))
    rounding = 20 * np.finfo(dtype).eps
    exact = np.stack([nearest_of_simplex(x) for x in xs.astype(float)])
    active = (exact == 0).sum(axis=1)
    assert set(active) == {0, 1, 2}
    assert (np.asarray(out.result == RESULTS.successful)).all()
    np.testing.assert_allclose(out.x, exact, rtol=0, atol=float(rounding) * 5)
    assert out.violation.max() <= rounding * 5
    np.testing.assert_array_equal(out.redundant, 0)
    # On the active set: the tangent projector of the free ones, which keep their sum.
    free = (exact > 0).astype(float)
    expected = np.stack([np.diag(one) - np.outer(one, one) / one.sum() for one in free])
    for jacobian in (forward, reverse):
        np.testing.assert_allclose(jacobian, expected, rtol=0, atol=float(rounding))
    # Multipliers push inwards: lower bounds have negative ones, and those that are not active none.
    assert (out.multiplier[:, 1:] <= rounding).all()
    np.testing.assert_array_equal(out.multiplier[:, 1:] != 0, exact == 0)


def on_sphere(count):
    ways = np.random.default_rng(4).normal(size=(count, 3))
    sizes = np.random.default_rng(5).uniform(0.7, 1.3, size=(count, 1))
    return sizes * ways / np.linalg.norm(ways, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["robust", "frozen"])
def test_curved_bounds_on_a_curved_manifold(name):
    """No feasible state is nearer, and derivatives are those of central differences away from where bounds switch."""
    xs = on_sphere(60)
    shifts = H * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    found = run(name, "sphere")((xs[:, None] + shifts).reshape(-1, 3), np.zeros(3))
    out, forward, reverse = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(60, 7, *leaf.shape[1:]), found)
    solved = np.asarray(outcome_codes(out.result) == int(outcome_codes(RESULTS.successful)))
    at = out.x[:, 0]
    assert out.violation[solved].max() <= (1e-14 if name == "robust" else 1e-11)
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-12)
    held = out.multiplier != 0
    steady = solved.all(axis=1) & (held == held[:, :1]).all(axis=(1, 2))
    difference = np.moveaxis(out.x[:, 1:4] - out.x[:, 4:7], 1, 2) / (2 * H)
    assert np.abs(difference - forward[:, 0])[steady].max() <= (2e-8 if name == "robust" else 1e-5)
    assert set(held[steady][:, 0, 1:].sum(axis=1)) == {0, 1, 2}
    if name != "robust":
        assert steady.mean() > 0.4  # its reach is shorter
        return
    assert steady.all()
    # A cloud of admissible states.
    ways = np.random.default_rng(6).normal(size=(200000, 3))
    cloud = ways / np.linalg.norm(ways, axis=1, keepdims=True)
    inside = (cloud[:, 0] >= -0.2) & (cloud[:, 0] <= 0.5) & (cloud[:, 1] * cloud[:, 2] <= 0.1)
    nearest = [np.linalg.norm(cloud[inside] - x, axis=1).min() for x in xs]
    assert (np.linalg.norm(at - xs, axis=1) <= np.array(nearest) + 1e-9).all()


def test_bounds_that_contradict_the_equations_are_flagged():
    """A negative total cannot be had from parts that are not: the state as it was, with identity derivative."""
    xs = np.tile([[0.5, 0.4, -0.3]], (100, 1))
    out, forward, reverse = run("robust", "simplex")(xs, np.array([-1.0, 0, 0, 0]))
    assert (np.asarray(out.result != RESULTS.successful)).all()
    np.testing.assert_array_equal(out.x, xs)
    for jacobian in (forward, reverse):
        np.testing.assert_array_equal(jacobian, np.tile(np.eye(3), (100, 1, 1)))
    np.testing.assert_allclose(out.violation[0], [1.6, 0, 0, 0.3], atol=1e-15)


def kinetics(x, p):
    """A -> B -> C, with a step so long that explicit Euler makes A negative."""
    first, second = p["k"] * x[0], p["s"] * x[1]
    return jnp.stack([-first, first - second, second])


@pytest.mark.slow
@pytest.mark.parametrize(
    "projection",
    [
        pytest.param(Newton(), id="robust"),
        pytest.param(Newton(metric=[1.0, 2.0, 4.0]), id="robust, in a metric", marks=pytest.mark.slow),
        pytest.param(Tangent(), id="fast", marks=pytest.mark.slow),
    ],
)
def test_a_twin_with_bounds(projection):
    """It just works: mass and bounds at every step, where the mass alone leaves a concentration negative."""
    x0, ts = jnp.array([1.0, 0.0, 0.0]), np.arange(6) * 1.0
    settings = {"params": {"k": 1.4, "s": 0.3}, "integrator": tw.Euler()}
    free = tw.Twin(kinetics, **settings).simulate(x0, ts)
    assert free.xs.min() < -0.1
    reported = tw.Twin(kinetics, constraint=SIMPLEX, **settings).simulate(x0, ts)
    np.testing.assert_allclose(reported.trajectory.violation[:, 1:], np.maximum(-free.xs, 0), rtol=0, atol=1e-15)
    twin = tw.Twin(kinetics, constraint=SIMPLEX, projection=projection, **settings)
    held = twin.simulate(x0, ts)
    assert held.xs.min() >= -1e-15
    np.testing.assert_allclose(held.xs.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert held.trajectory.relative_violation.max() <= 1e-15


@pytest.mark.slow
def test_the_gradient_of_a_rollout_along_bounds():
    """In a rate constant, through steps on and off the bounds: reverse, forward and central differences."""
    cell = tw.Twin(kinetics, integrator=tw.Euler(), constraint=SIMPLEX, projection=Newton()).cell
    x0, ts = jnp.array([1.0, 0.0, 0.0]), jnp.arange(6) * 1.0

    def loss(s):
        return jnp.sum(tw.rollout(cell, x0, ts, p={"k": jnp.array(1.4), "s": s}, throw=False).xs[:, 1] ** 2)

    s = jnp.array(0.3)
    value = jax.jit(loss)
    difference = (value(s + H) - value(s - H)) / (2 * H)
    assert difference < -1
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(s), difference, rtol=1e-7)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(loss))(s), difference, rtol=1e-7)


def test_violation_is_the_distance_outside():
    bounds = Bounds(lambda x, p: x[0] / p["q_max"], lower=0.0, upper=1.0)
    p = {"q_max": jnp.array(2.0)}
    for charge, outside in ((-0.5, 0.25), (1.0, 0.0), (2.0, 0.0), (3.0, 0.5)):
        x = jnp.array([charge, 4.0])
        out = NoProjection().project(bounds, 0.0, x, p, bounds.level(0.0, x, p))
        np.testing.assert_allclose(out.violation, [outside], rtol=1e-15)
    # Relative to c, whether the state it is taken at is inside or not.
    scale = violation_scale(bounds, 0.0, jnp.array([1.0, 0.0]), p, jnp.zeros(1))
    np.testing.assert_allclose(scale, [0.5], rtol=1e-15)


def test_bounds_that_are_made_inside_jit():
    """As in a loss that builds its solver: their numbers are numbers there too, and are checked."""

    @jax.jit
    def clipped(x):
        bounds = Bounds(lambda x: x, lower=[0.0, -np.inf], upper=1.0)
        return Tangent().project(bounds, 0.0, x, {}, jnp.zeros(2)).x

    np.testing.assert_allclose(clipped(jnp.array([-0.5, 3.0])), [0, 1], rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="at most the upper one"):
        jax.jit(lambda x: Bounds(lambda x: x, lower=2.0, upper=1.0).residual(0.0, x, {}, jnp.zeros(2)))(jnp.zeros(2))


@pytest.mark.parametrize("name", ["robust", "fast"])
def test_a_bound_alone_moves_with_its_parameter(name):
    """A state of charge in [0, 1] of a capacity: clipped, and on the upper bound it follows the capacity."""
    bounds = Bounds(lambda x, p: x[0] / p["q_max"], lower=0.0, upper=1.0)

    def one(x, q_max):
        out = PROJECTIONS[name].project(bounds, 0.0, x, {"q_max": q_max}, jnp.zeros(1))
        return out.x, out

    xs = jnp.array([[-0.5, 4.0], [1.0, 4.0], [2.0, 4.0], [3.0, 4.0]])
    run = jax.jit(jax.vmap(jax.jacfwd(one, argnums=(0, 1), has_aux=True), in_axes=(0, None)), compiler_options=QUICK)
    (in_x, in_q), out = run(xs, 2.0)
    assert (np.asarray(out.result == RESULTS.successful)).all()
    np.testing.assert_allclose(out.x, np.stack([np.clip(xs[:, 0], 0, 2), xs[:, 1]], axis=1), rtol=0, atol=1e-15)
    np.testing.assert_allclose(in_x, [np.diag([free, 1.0]) for free in (0, 1, 1, 0)], rtol=0, atol=1e-15)
    np.testing.assert_allclose(in_q, [[0, 0], [0, 0], [0, 0], [1, 0]], rtol=0, atol=1e-15)


def test_bounds_are_not_counted_as_equations():
    box = Stack([Constraint(lambda x: x[0] - x[1]), Bounds(lambda x: jnp.concatenate([x, 2 * x]), lower=-1.0)])
    assert check_constraint(box, 0.0, jnp.zeros(2), {}) == 5
    with pytest.raises(ValueError, match="3 equations for 2 states"):
        check_constraint(Constraint(lambda x: jnp.stack([x[0], x[1], x @ x])), 0.0, jnp.zeros(2), {})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bounds(lambda x: x), "nothing to bound"),
        (lambda: Bounds(lambda x: x, lower=1.0, upper=0.0), "at most the upper"),
        (lambda: Bounds(lambda x: x, lower=np.nan), "at most the upper"),
        (lambda: Bounds(lambda x: x, upper=np.ones((2, 2))), "numbers or vectors"),
        (lambda: project(Newton(), Bounds(lambda x: x, lower=[0.0, 0.0, 0.0])), "3 bounds for the 2 values"),
        (lambda: project(Newton(derivative="loop"), Bounds(lambda x: x, lower=0.0)), 'use "implicit"'),
        (
            lambda: project(Newton(), WithHiddenConstraints(Bounds(lambda x: x, lower=0.0), lambda x: x)),
            "put them beside it",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def project(projection, constraint):
    x = jnp.array([0.3, -0.2])
    return projection.project(constraint, 0.0, x, {}, constraint.level(0.0, x, {}))
