"""Rollouts against closed forms and plain loops, their gradients, and a bad trajectory in a batch."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.cases import energy, spring_energy

from twinfold._core import outcome_codes
from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Conserved, Constraint
from twinfold.model._fields import GreyBox
from twinfold.model._learned.mlp import MLP
from twinfold.model._simulation import SimulationError, simulate_unchecked
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown
from twinfold.numerics._cell import Cell
from twinfold.numerics._integrate.explicit import RK4, Euler
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent
from twinfold.numerics._rollout import rollout

TS = jnp.array([0.0, 0.1, 0.25, 0.3, 0.5, 0.6])
LONG = np.linspace(0, 40, 16)


def oscillate(x):
    return jnp.stack([x[1], -x[0]])


def spring(t, x, w, p):
    return jnp.stack([x[2], x[3], -p["k"] * x[0] * (x[:2] @ x[:2]), -p["k"] * x[1] * (x[:2] @ x[:2])])


CIRCLE = Cell(oscillate, integrator=RK4(), constraint=Conserved(energy), projection=Newton())


def test_rollout_is_a_loop_of_cell_steps():
    cell = Cell(
        lambda t, x, w, p: spring(t, x, w, p) + w[0],
        integrator=RK4(substeps=2),
        constraint=Conserved(spring_energy),
        projection=Newton(),
        input_interpolation="linear",
    )
    x0, p, w = jnp.array([0.7, -0.4, 0.3, 0.6]), {"k": jnp.array(1.3)}, jnp.sin(TS)[:, None]
    trajectory = eqx.filter_jit(rollout)(cell, x0, TS, w, p=p)
    level = cell.constraint.level(TS[0], x0, p)
    step = jax.jit(lambda t, t1, x, w0, w1: cell.step(t, t1 - t, x, w0, w1, p, level)[0])
    x = trajectory.xs[0]
    np.testing.assert_allclose(x, x0, rtol=0, atol=1e-15)
    for i in range(len(TS) - 1):
        out = step(TS[i], TS[i + 1], x, w[i], w[i + 1])
        x = out.x
        np.testing.assert_allclose(trajectory.xs[i + 1], x, rtol=0, atol=1e-14)
        np.testing.assert_allclose(trajectory.violation[i + 1], out.violation, rtol=0, atol=1e-15)
        assert trajectory.steps[i + 1] == out.steps
    np.testing.assert_allclose(trajectory.scale, max(abs(float(level[0])), gradient_times_size(x0)), rtol=1e-14)
    assert trajectory.relative_violation.max() <= 1e-12


def gradient_times_size(x):
    return np.linalg.norm(jax.grad(spring_energy)(x)) * np.linalg.norm(x)


@pytest.mark.parametrize("between", ["hold", "linear"])
def test_inputs_between_samples(between):
    """x' = w(t): the integral of the staircase, or of the polygon, through irregular samples."""
    w = np.array([[1.0], [-2.0], [0.5], [3.0], [-1.0], [7.0]])
    steps = np.diff(TS)
    area = w[:-1, 0] * steps if between == "hold" else 0.5 * (w[:-1, 0] + w[1:, 0]) * steps
    cell = Cell(lambda x, w: w, integrator=RK4(), input_interpolation=between)
    trajectory = rollout(cell, jnp.array([0.4]), TS, jnp.asarray(w))
    np.testing.assert_allclose(trajectory.xs[:, 0], 0.4 + np.r_[0, np.cumsum(area)], rtol=1e-14, atol=1e-15)


def test_input_is_sampled_at_the_stages_of_a_substep():
    """x' = -x + w with an input linear between samples, against its closed form on each interval."""
    w = np.array([[1.0], [-2.0], [0.5], [3.0], [-1.0], [7.0]])
    exact = [0.4]
    for i, dt in enumerate(np.diff(TS)):
        slope = (w[i + 1, 0] - w[i, 0]) / dt
        forced = w[i, 0] - slope
        exact.append(forced + slope * dt + (exact[-1] - forced) * np.exp(-dt))
    cell = Cell(lambda x, w: w - x, integrator=RK4(substeps=40), input_interpolation="linear")
    trajectory = rollout(cell, jnp.array([0.4]), TS, jnp.asarray(w))
    np.testing.assert_allclose(trajectory.xs[:, 0], exact, rtol=1e-9)


def test_algebraic_variables_are_evaluated_in_each_stage():
    """z(t, x, w, p) substituted by hand into the field gives the same trajectory."""

    def algebraic(t, x, w, p):
        return {"force": p["k"] * jnp.sin(x[0]) + w[0] * t}

    def field(x, z):
        return jnp.stack([x[1], -z["force"]])

    def substituted(t, x, w, p):
        return jnp.stack([x[1], -(p["k"] * jnp.sin(x[0]) + w[0] * t)])

    p, w, x0 = {"k": jnp.array(2.0)}, jnp.cos(TS)[:, None], jnp.array([1.0, 0.2])
    with_z = rollout(Cell(field, algebraic, input_interpolation="linear"), x0, TS, w, p=p)
    without = rollout(Cell(substituted, input_interpolation="linear"), x0, TS, w, p=p)
    np.testing.assert_allclose(with_z.xs, without.xs, rtol=0, atol=1e-15)
    frozen = rollout(Cell(lambda x: field(x, algebraic(TS[0], x0, w[0], p))), x0, TS, w, p=p)
    assert np.abs(frozen.xs - without.xs).max() > 1e-3


@pytest.mark.parametrize(
    "projection",
    [pytest.param(Newton(), marks=pytest.mark.slow), Tangent(derivative="implicit")],
    ids=["newton", "fast"],
)
def test_gradients_of_a_rollout_three_ways(projection):
    """In x0, p, the level and the weights: reverse, forward and central differences."""
    residual = MLP(states=[0, 1], adds_to=[2, 3], width=3, depth=1)
    twin = Twin(
        GreyBox(spring, residual),
        constraint=Conserved(spring_energy),
        projection=projection,
        integrator=RK4(),
    ).initialise(jax.random.key(0), states=4)
    weights, rest = eqx.partition(twin, eqx.is_inexact_array)
    x0 = jnp.array([0.7, -0.4, 0.3, 0.6])
    level = twin.constraint.level(0.0, x0, {}) + 0.02
    theta, back = ravel_pytree((x0, {"k": jnp.array(1.3)}, level, weights))
    ts = jnp.linspace(0.0, 1.0, 6)

    def loss(theta):
        x0, p, level, weights = back(theta)
        simulation = simulate_unchecked(eqx.combine(weights, rest), x0, ts, None, p, level)
        return jnp.sum((simulation.xs - jnp.sin(ts)[:, None]) ** 2)

    shifts = 1e-5 * jnp.eye(theta.shape[0])
    values = jax.jit(jax.vmap(loss))(jnp.concatenate([theta + shifts, theta - shifts]))
    difference = (values[: len(theta)] - values[len(theta) :]) / 2e-5
    reverse = jax.jit(jax.grad(loss))(theta)
    forward = jax.jit(jax.jacfwd(loss))(theta)
    assert (np.abs(difference) > 1e-7).all()
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-12 * np.abs(forward).max())
    assert np.linalg.norm(forward - difference) <= 1e-8 * np.linalg.norm(difference)


# --- failures ---


def blow_up(x, p):
    return p["a"] * x**2


def root(x, p):
    return -p["a"] * jnp.sqrt(x)  # below zero in finite time


def overflow(x, p):
    return 0.1 * p["a"] * jnp.exp(x**2)


BAD = {"blow_up": (blow_up, 60.0), "root": (root, 1e-4), "overflow": (overflow, 12.0)}


@pytest.mark.parametrize(
    ("kind", "projected"),
    [
        ("blow_up", False),
        ("root", False),
        ("overflow", False),
        pytest.param("blow_up", True, marks=pytest.mark.slow),
        pytest.param("root", True, marks=pytest.mark.slow),
        pytest.param("overflow", True, marks=pytest.mark.slow),
    ],
)
def test_one_diverging_trajectory_leaves_the_others_exact(kind, projected):
    """Flagged, held at its last finite state, and absent from the gradient in a parameter that all share."""
    field, bad = BAD[kind]
    cell = Cell(field, integrator=Euler())
    if projected:  # a manifold that the first state moves along
        cell = Cell(
            lambda x, p: jnp.concatenate([field(x[:1], p), x[1:] - x[1:] + 0.1]),
            integrator=Euler(),
            constraint=Constraint(lambda x, p: x[1] - p["a"]),
            projection=Newton(),
        )
    ts = jnp.linspace(0.0, 4.0, 41)
    starts = jnp.array([[0.1], [0.11], [bad], [0.05]])
    if projected:
        starts = jnp.concatenate([starts, jnp.full((4, 1), 0.7)], axis=1)

    def loss(p, x0s):
        run = jax.vmap(lambda x0: rollout(cell, x0, ts, p=p, throw=False))(x0s)
        failed = jax.vmap(lambda trajectory: trajectory.failed)(run)
        each = jnp.where(failed, 0, jnp.sum(run.xs**2, axis=(1, 2)))
        return jnp.sum(each), run

    gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))
    p = {"a": jnp.array(0.7) if kind != "root" else jnp.array(0.05)}
    if kind == "root":
        starts = starts.at[:, 0].set(jnp.array([1.0, 1.1, bad, 0.9]))
    (value, run), slope = gradient(p, starts)
    good = np.array([0, 1, 3])
    np.testing.assert_array_equal(jax.vmap(lambda run: run.failed)(run), [False, False, True, False])
    assert np.isfinite(run.xs).all()
    codes = outcome_codes(run.result)[2]
    assert (codes == outcome_codes(RESULTS.nonfinite)).any()
    first = int(np.argmax(codes == outcome_codes(RESULTS.nonfinite)))
    assert (codes[first:] == outcome_codes(RESULTS.nonfinite)).all()
    np.testing.assert_array_equal(run.xs[2, first:], np.tile(run.xs[2, first - 1], (len(ts) - first, 1)))
    (alone_value, alone), alone_slope = gradient(p, starts[good])
    np.testing.assert_array_equal(run.xs[good], alone.xs)
    np.testing.assert_allclose(value, alone_value, rtol=1e-15)
    np.testing.assert_allclose(slope["a"], alone_slope["a"], rtol=1e-14)
    assert np.abs(slope["a"]) > 1e-3
    forward = jax.jit(jax.jacfwd(lambda p: loss(p, starts)[0]))(p)
    np.testing.assert_allclose(forward["a"], slope["a"], rtol=1e-12)


def test_gradient_of_a_held_trajectory_is_finite():
    """Even a loss that does not leave the failed trajectory out has a finite gradient."""

    cell = Cell(blow_up, integrator=Euler())

    def loss(a):
        trajectory = rollout(cell, jnp.array([60.0]), jnp.asarray(LONG), p={"a": a}, throw=False)
        return jnp.where(trajectory.failed, jnp.sum(trajectory.xs), jnp.nan)

    assert np.isfinite(jax.jit(jax.grad(loss))(100.0))
    assert np.isfinite(jax.jit(jax.jacfwd(loss))(100.0))


def test_failure_is_raised_with_its_message():
    with pytest.raises(Exception, match="non-finite state"):
        eqx.filter_jit(rollout)(Cell(blow_up, integrator=Euler()), jnp.array([1e200]), TS, p={"a": jnp.array(1.0)})


def test_twin_says_when_it_failed():
    twin = Twin(blow_up, params={"a": 100.0}, integrator=Euler())
    with pytest.raises(SimulationError, match=r"At t = .* \(sample \d+\): A step produced a non-finite") as caught:
        twin.simulate(np.array([60.0]), LONG)
    held = caught.value.simulation
    assert np.isfinite(held.xs).all()
    np.testing.assert_array_equal(twin.simulate(np.array([60.0]), LONG, throw=False).xs, held.xs)


def test_failed_projection_inside_a_rollout_is_flagged_and_goes_on():
    """An infeasible level: every step keeps its prediction, and says so."""
    trajectory = rollout(CIRCLE, jnp.array([1.0, 0.0]), TS, level=jnp.array([-1.0]), throw=False)
    free = rollout(Cell(oscillate), jnp.array([1.0, 0.0]), TS)
    assert trajectory.failed
    assert (np.asarray(outcome_codes(trajectory.result)) == outcome_codes(RESULTS.not_converged)).all()
    np.testing.assert_allclose(trajectory.xs, free.xs, rtol=0, atol=1e-15)


OFF = np.array([1.1, 0.0])


def circle_twin():
    return Twin(oscillate, constraint=Constraint(lambda x: x @ x - 1), projection=Newton())


def test_start_off_the_manifold_is_projected_with_a_warning():
    with pytest.warns(UserWarning, match=r"violates the constraint by \[0\.21"):
        simulation = circle_twin().simulate(OFF, TS)
    np.testing.assert_allclose(simulation.xs[0], [1.0, 0.0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(simulation.trajectory.initial_violation, [0.21], rtol=1e-13)


def test_start_off_the_manifold_is_refused():
    with pytest.raises(SimulationError, match=r"initial state does not satisfy.*violation of x0 is \[0\.21"):
        circle_twin().simulate(OFF, TS, inconsistent_x0="refuse")
    held = circle_twin().simulate(OFF, TS, inconsistent_x0="refuse", throw=False)
    assert held.trajectory.failed
    np.testing.assert_allclose(held.trajectory.initial_violation, [0.21], rtol=1e-13)


def test_start_on_the_manifold_to_measurement_accuracy_is_not_refused():
    x0 = np.array([1 + 1e-9, 0.0])
    np.testing.assert_allclose(circle_twin().simulate(x0, TS, inconsistent_x0="refuse").xs[0], x0, rtol=2e-9)


def test_level_can_be_given():
    """x0 at energy 1/2, level 2: the whole trajectory has radius 2."""
    twin = Twin(oscillate, constraint=Conserved(energy), projection=Newton())
    with pytest.warns(UserWarning, match="violates"):
        simulation = twin.simulate(np.array([1.0, 0.0]), TS, level=2.0)
    np.testing.assert_allclose(np.linalg.norm(simulation.xs, axis=1), 2.0, rtol=1e-14)


def test_simulate_traces_once_for_each_shape():
    traces = []

    def field(x, p):
        traces.append(None)
        return -p["a"] * x

    twin = Twin(field, params={"a": 0.5})
    twin.simulate(np.ones(1), TS)
    first = len(traces)
    twin.simulate(2 * np.ones(1), TS + 1, p={"a": 0.7})
    # `check_model` looks at the field's shape in each call; nothing else does when nothing is compiled again.
    assert len(traces) - first <= 1
    twin.simulate(np.ones(2), TS)
    assert len(traces) - first > 2


def test_single_precision_is_kept():
    """The library follows the arrays it is given, whatever dtype the parameters were given in."""
    twin = Twin(
        lambda x, p: p["k"] / p["mass"] * jnp.stack([x[1], -x[0]]),
        params={"k": Unknown(1.0), "mass": np.ones(2)},
        constraint=Conserved(energy),
        projection=Newton(),
    )
    simulation = twin.simulate(np.array([1.0, 0.0], np.float32), np.asarray(TS, np.float32))
    assert simulation.xs.dtype == jnp.float32
    assert simulation.trajectory.relative_violation.max() <= 2e-6
