"""The benchmark systems: their split, their invariants, and how exact their reference trajectories are."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipj
from twinfold_studies.numerics import orbit
from twinfold_studies.systems import SYSTEMS, system
from twinfold_studies.systems.lotka_volterra import lotka_volterra
from twinfold_studies.systems.mass_spring import mass_spring
from twinfold_studies.systems.nonlinear_spring import nonlinear_spring
from twinfold_studies.systems.rigid_body import rigid_body
from twinfold_studies.systems.robot_arm import robot_arm
from twinfold_studies.systems.truth import truth

from twinfold.numerics._cell import Cell
from twinfold.numerics._constraint import check_constraint
from twinfold.numerics._integrate.explicit import RK4
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._rollout import rollout
from twinfold.systems._two_body import two_body

COUNT = 20


def random_states(name, count=COUNT):
    """Times and states off the trajectories: drawn initial states, each moved by up to 0.2."""
    a, b, c = jax.random.split(jax.random.key(11), 3)
    x = system(name).draw(a, count)
    return jax.random.uniform(b, (count,), maxval=5.0), x + jax.random.uniform(c, x.shape, maxval=0.2)


@functools.cache
def training_set(name):
    """Sample times and reference trajectories over the training horizon."""
    of = system(name)
    ts = of.dt * jnp.arange(round(of.horizon / of.dt) + 1)
    return ts, truth(of, of.draw(jax.random.key(5), COUNT), ts)


def relative_error(xs, reference):
    size = np.linalg.norm(reference, axis=-1).max(axis=1)[:, None, None]
    return np.max(np.abs(np.asarray(xs) - reference) / size)


# The paper's two tables, written out a second time.


def arm_rates(t, x, lengths=(1.0, 1.0, 1.0)):
    jacobian = np.array(lengths) * np.array([-np.sin(x), np.cos(x)])
    return np.linalg.pinv(jacobian) @ np.array([-np.cos(2 * np.pi * t), 0])


def gravity(x):
    return -x[:2] / np.hypot(x[0], x[1]) ** 3


WHOLE = {
    "mass_spring": lambda t, x: np.array([x[1], -x[0]]),
    "lotka_volterra": lambda t, x: np.array([1.5 * x[0] - x[0] * x[1], x[0] * x[1] - 3 * x[1]]),
    "two_body": lambda t, x: np.array([*x[2:], *gravity(x)]),
    "nonlinear_spring": lambda t, x: np.array([*x[2:], *(-x[:2] * (x[0] ** 2 + x[1] ** 2))]),
    "robot_arm": arm_rates,
    "rigid_body": lambda t, x: np.cross(x, x / np.array([1.6, 1.0, 2 / 3])),
}
UNKNOWN = {
    "mass_spring": lambda t, x: np.array([0, -x[0]]),
    "lotka_volterra": lambda t, x: np.array([-x[0] * x[1], x[0] * x[1]]),
    "two_body": lambda t, x: np.array([0, 0, *gravity(x)]),
    "nonlinear_spring": lambda t, x: np.array([0, 0, *(-x[:2] * (x[0] ** 2 + x[1] ** 2))]),
    "robot_arm": lambda t, x: np.zeros(3),
    "rigid_body": WHOLE["rigid_body"],
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_split_is_the_papers(name):
    of = system(name)
    ts, xs = random_states(name)
    whole, known = (np.asarray(jax.jit(jax.vmap(field))(ts, xs)) for field in (of.truth, of.physics))
    unknown = whole - known
    for i, (t, x) in enumerate(zip(np.asarray(ts), np.asarray(xs), strict=True)):
        np.testing.assert_allclose(whole[i], WHOLE[name](t, x), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(unknown[i], UNKNOWN[name](t, x), rtol=1e-12, atol=1e-12)
    known_exactly = [i for i in range(xs.shape[1]) if i not in of.residual_adds_to]
    assert np.all(unknown[:, known_exactly] == 0)
    assert of.residual_states == tuple(range(xs.shape[1]))
    assert len(of.state_names) == xs.shape[1]


def test_informative_splits():
    ts, xs = random_states("robot_arm")
    arm = robot_arm(assumed_links=(1.0, 1.1, 1.0))
    expected = [
        arm_rates(t, x) - arm_rates(t, x, (1.0, 1.1, 1.0)) for t, x in zip(np.array(ts), np.array(xs), strict=True)
    ]
    unknown = jax.vmap(arm.truth)(ts, xs) - jax.vmap(arm.physics)(ts, xs)
    np.testing.assert_allclose(unknown, expected, rtol=1e-10, atol=1e-12)
    ts, xs = random_states("rigid_body")
    body = rigid_body(assumed_inertia=(1.6, 1.2, 2 / 3))
    expected = np.cross(xs, xs * np.array([0, 1 - 1 / 1.2, 0]))
    unknown = jax.vmap(body.truth)(ts, xs) - jax.vmap(body.physics)(ts, xs)
    np.testing.assert_allclose(unknown, expected, rtol=1e-12, atol=1e-13)


VARIANTS = {
    **{name: (build, m) for (name, build), m in zip(SYSTEMS.items(), (1, 1, 1, 2, 2, 1), strict=True)},
    "mass_spring, omega": (lambda: mass_spring(omega=2.0), 1),
    "lotka_volterra, parameters": (lambda: lotka_volterra(alpha=1.1, beta=0.7, gamma=2.0, delta=1.3), 1),
    "two_body, energy": (lambda: two_body(energy=True, gm=1.4), 2),
    "nonlinear_spring, energy only": (lambda: nonlinear_spring(energy_only=True, stiffness=0.6), 1),
    "robot_arm, links": (lambda: robot_arm(links=(0.9, 1.2, 0.8)), 2),
    "rigid_body, inertia": (lambda: rigid_body(inertia=(2.0, 1.0, 0.5)), 1),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_truth_keeps_the_invariants(variant):
    """dg/dt + G f = 0."""
    build, count = VARIANTS[variant]
    of = build()
    ts, xs = random_states(of.name)
    assert check_constraint(of.constraint, 0.0, xs[0], {}) == count

    def drift(t, x):
        level = of.constraint.level(0.0, x, {})
        _, rate = jax.jvp(
            lambda t, x: of.constraint.residual(t, x, {}, level), (t, x), (jnp.ones_like(t), of.truth(t, x))
        )
        return rate

    np.testing.assert_allclose(jax.jit(jax.vmap(drift))(ts, xs), 0, atol=1e-12)


def test_invariants_are_the_papers():
    x = jnp.array([0.3, 0.5, -0.7, 0.2])

    def level(of, x):
        return of.constraint.level(0.0, x, {})

    np.testing.assert_allclose(level(mass_spring(), x[:2]), [(0.09 + 0.25) / 2])
    prey_predators = 0.3 - 3 * np.log(0.3) + 0.5 - 1.5 * np.log(0.5)
    np.testing.assert_allclose(level(lotka_volterra(), x[:2]), [prey_predators])
    momentum = 0.3 * 0.2 + 0.5 * 0.7
    np.testing.assert_allclose(level(two_body(), x), [momentum])
    kinetic = (0.49 + 0.04) / 2
    np.testing.assert_allclose(level(two_body(energy=True), x), [momentum, kinetic - 1 / np.sqrt(0.34)])
    np.testing.assert_allclose(level(nonlinear_spring(), x), [kinetic + 0.34**2 / 4, momentum])
    np.testing.assert_allclose(level(rigid_body(), x[:3]), [(0.09 + 0.25 + 0.49) / 2])
    hand = [np.cos(x[:3]).sum(), np.sin(x[:3]).sum()]
    np.testing.assert_allclose(level(robot_arm(), x[:3]), hand)
    later = robot_arm().constraint.residual(0.2, x[:3], {}, jnp.array(hand))
    np.testing.assert_allclose(later, [np.sin(0.4 * np.pi) / (2 * np.pi), 0], atol=1e-15)


# Reference trajectories: closed forms, and an integration that shares nothing with the library.


def harmonic(x0, ts):
    position, velocity = x0
    cos, sin = np.cos(ts), np.sin(ts)
    return np.stack([position * cos + velocity * sin, velocity * cos - position * sin], axis=1)


def kepler(x0, ts):
    """From the pericentre, a = GM = 1: M = E - e sin E, solved by Newton's method."""
    e = 1 - x0[0]
    anomaly = np.where(e * np.sin(ts) > 0, ts + e, ts)
    for _ in range(50):
        anomaly = anomaly - (anomaly - e * np.sin(anomaly) - ts) / (1 - e * np.cos(anomaly))
    cos, sin, minor = np.cos(anomaly), np.sin(anomaly), np.sqrt(1 - e**2)
    rate = 1 / (1 - e * cos)
    return np.stack([cos - e, minor * sin, -sin * rate, minor * cos * rate], axis=1)


def euler_top(x0, ts):
    """Jacobi's elliptic functions, from y2 = 0; the axis circled depends on the side of the separatrix."""
    (y1, _, y3), (a, b, c) = x0, 1 / np.array([1.6, 1.0, 2 / 3])
    slow, fast = (b - a) * y1**2, (c - b) * y3**2
    m = slow / fast
    if m > 1:  # the same formulas with axes 1 and 3 exchanged
        return euler_top_around(ts, y1, y3, a, b, c, fast / slow, swap=True)
    return euler_top_around(ts, y1, y3, a, b, c, m, swap=False)


def euler_top_around(ts, y1, y3, a, b, c, m, swap):
    circled, other = (y1, y3) if swap else (y3, y1)
    frequency = np.sqrt((c - a) * ((b - a) if swap else (c - b))) * circled
    sn, cn, dn, _ = ellipj(frequency * ts, m)
    height = -other * np.sqrt((c - a) / ((b - a) if swap else (c - b)))
    ordered = (circled * dn, height * sn, other * cn) if swap else (other * cn, height * sn, circled * dn)
    return np.stack(ordered, axis=1)


@pytest.mark.parametrize(
    ("name", "solution"), [("mass_spring", harmonic), ("two_body", kepler), ("rigid_body", euler_top)]
)
def test_truth_is_the_closed_form(name, solution):
    ts, xs = training_set(name)
    exact = np.stack([solution(x0, np.asarray(ts)) for x0 in np.asarray(xs[:, 0])])
    assert relative_error(xs, exact) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lotka_volterra", "nonlinear_spring", "robot_arm"])
def test_truth_is_another_integrators(name):
    ts, xs = training_set(name)
    others = [
        solve_ivp(WHOLE[name], (0, ts[-1]), x0, "DOP853", np.asarray(ts)[::10], rtol=1e-13, atol=1e-15).y.T
        for x0 in np.asarray(xs[:2, 0])
    ]
    assert relative_error(xs[:2, ::10], np.stack(others)) < 3e-12


@pytest.mark.parametrize(
    "name",
    [  # those whose trajectories other tests of the ordinary run need too, and one more
        pytest.param(name, marks=pytest.mark.slow if name in ("lotka_volterra", "robot_arm") else ())
        for name in SYSTEMS
    ],
)
def test_truth_is_on_the_invariants(name):
    constraint = system(name).constraint
    ts, xs = training_set(name)
    level = jax.vmap(lambda x0: constraint.level(ts[0], x0, {}))(xs[:, 0])
    along = jax.vmap(jax.vmap(lambda t, x, level: constraint.residual(t, x, {}, level), (0, 0, None)), (None, 0, 0))
    np.testing.assert_allclose(jax.jit(along)(ts, xs, level), 0, atol=1e-14)


def test_truth_at_irregular_times_far_apart():
    """The number of steps follows the samples, not the system's dt."""
    ts = np.array([1.0, 1.3, 4.0, 11.0])
    x0 = np.array([0.6, -0.3])
    xs = truth(system("mass_spring"), x0[None], ts)
    np.testing.assert_allclose(xs[0], harmonic(x0, ts - 1), atol=1e-14)


def test_truth_refuses_what_it_cannot_do():
    of = system("mass_spring")
    x0s, ts = np.array([[1.0, 0.0]]), np.array([0.0, 1.0])
    with pytest.raises(ValueError, match=r"x0s has shape \(2,\); mass_spring requires \(count, 2\)"):
        truth(of, x0s[0], ts)
    with pytest.raises(ValueError, match="ts must increase"):
        truth(of, x0s, 0 * ts)
    with pytest.raises(RuntimeError, match="not smooth or not finite"):
        truth(dataclasses.replace(of, truth=lambda t, x: jnp.sqrt(-x)), x0s, ts)
    with jax.enable_x64(False), pytest.raises(RuntimeError, match=r"call twinfold\.enable_x64\(\) first"):
        truth(of, x0s, ts)


# Initial states


def test_initial_states_are_in_their_ranges():
    count = 2000

    def drawn(name):
        return np.asarray(jax.jit(system(name).draw, static_argnums=1)(jax.random.key(3), count))

    def spans(values, low, high):
        """Inside, and close to both ends: 2000 draws leave less than 1% of the range empty."""
        margin = 0.01 * (high - low)
        assert low <= np.min(values) < low + margin
        assert high - margin < np.max(values) <= high

    for name, states in (("mass_spring", 2), ("nonlinear_spring", 4)):
        x0 = drawn(name)
        assert x0.shape == (count, states)
        for i in range(states):
            spans(x0[:, i], -1, 1)
    x0 = drawn("lotka_volterra")
    spans(x0[:, 0], 0.8, 3.0)
    spans(x0[:, 1], 0.5, 2.5)
    x0 = drawn("two_body")
    e = 1 - x0[:, 0]
    spans(e, 0.5, 0.7)
    np.testing.assert_allclose(x0[:, 3], np.sqrt((1 + e) / (1 - e)))
    assert np.all(x0[:, 1:3] == 0)
    x0 = drawn("robot_arm")
    spans(x0[:, 0], np.pi / 4, 3 * np.pi / 8)
    np.testing.assert_array_equal(x0, x0[:, :1] * [1, -1, 1])
    x0 = drawn("rigid_body")
    spans(np.arctan2(x0[:, 2], x0[:, 0]), 0.5, 1.5)
    np.testing.assert_allclose(np.linalg.norm(x0, axis=1), 1)
    assert np.all(x0[:, 1] == 0)


def test_lotka_volterra_draws_again_above_the_highest_orbit():
    def levels(of, x0):
        return np.asarray(jax.vmap(lambda x: of.constraint.level(0.0, x, {}))(x0))

    of = lotka_volterra(delta=1.8, beta=1.5)
    box = jax.random.uniform(jax.random.key(0), (500, 2), minval=jnp.array([0.8, 0.5]), maxval=jnp.array([3.0, 2.5]))
    assert 0.05 < np.mean(levels(of, box) > 4) < 0.95  # there is something to reject
    assert np.all(levels(of, of.draw(jax.random.key(1), 500)) <= 4)
    with pytest.raises(RuntimeError, match="V > 4"):
        jax.block_until_ready(lotka_volterra(delta=20.0).draw(jax.random.key(1), 5))


# The registry and the settings


def test_registry():
    papers = ["mass_spring", "lotka_volterra", "two_body", "nonlinear_spring", "robot_arm", "rigid_body"]
    assert list(SYSTEMS) == papers
    assert [system(name).name for name in papers] == papers
    assert system("two_body") is system("two_body")
    with pytest.raises(ValueError, match=r"there are: mass_spring, lotka_volterra.* Did you mean 'two_body'"):
        system("Two-Bodies")
    with pytest.raises(ValueError, match=r"there are: mass_spring"):
        system("xyz")


@pytest.mark.parametrize(
    ("name", "dt", "horizon", "long_horizon", "long_test"),
    [
        ("mass_spring", 0.1, 10, 100, 100),
        ("lotka_volterra", 0.05, 5, 100, 100),
        ("two_body", 0.1, 2 * np.pi, 100, 100),
        ("nonlinear_spring", 0.1, 10, 100, 100),
        ("robot_arm", 0.1, 5, 500, 10),
        ("rigid_body", 0.1, 15, 1000, 100),
    ],
)
def test_settings(name, dt, horizon, long_horizon, long_test):
    of = system(name)
    assert (of.dt, of.horizon, of.long_horizon, of.long_test) == (dt, horizon, long_horizon, long_test)
    assert (of.train, of.valid, of.test) == (30, 10, 100)
    assert of.residual_time == (name == "robot_arm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bound"),
    [
        pytest.param("mass_spring", 4e-6, marks=pytest.mark.slow),
        pytest.param("lotka_volterra", 4e-6, marks=pytest.mark.slow),
        ("two_body", 5e-5),
        pytest.param("nonlinear_spring", 3e-5, marks=pytest.mark.slow),
        # From symmetric initial states the constraint alone fixes the trajectory.
        ("robot_arm", 1e-14),
        pytest.param("rigid_body", 1e-7, marks=pytest.mark.slow),
    ],
)
def test_floor(name, bound):
    """What no model can be better than: the exact field in the same cell."""
    of = system(name)
    ts, xs = training_set(name)
    cell = Cell(of.truth, integrator=RK4(of.substeps), constraint=of.constraint, projection=Newton())
    run = jax.jit(jax.vmap(lambda x0: rollout(cell, x0, ts, throw=False)))(xs[:, 0])
    assert np.mean(np.abs(run.xs - xs)) < bound


def test_kepler_solves_its_own_equation():
    """The reference: the orbit's derivative is its field, at the period's ends and in between."""
    ts, h = np.linspace(0, 20, 7), 1e-5
    slope = (orbit.kepler(ts + h) - orbit.kepler(ts - h)) / (2 * h)
    field = jax.vmap(lambda x: two_body().truth(0.0, x))(jnp.asarray(orbit.kepler(ts)))
    np.testing.assert_allclose(slope, field, atol=1e-8)
