"""Hidden constraints and the index: found by differentiation, kept at the dtype's limit over the long run."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.systems.double_pendulum import double_pendulum, double_pendulum_state
from twinfold_studies.systems.pendulum import pendulum, pendulum_period, pendulum_state
from twinfold_studies.systems.skate import skate, skate_motion
from twinfold_studies.systems.slider_crank import slider_crank, slider_crank_state

import twinfold as tw
from twinfold.model._constraint.hidden import WithHiddenConstraints, constraint_of, with_hidden_constraints
from twinfold.model._constraint.index import dae_index, index_of
from twinfold.model._mechanics.multibody import Multibody, kinematics
from twinfold.numerics._constraint import violation_scale

ROD = tw.Constraint(lambda x: 0.5 * (x[0] ** 2 + x[1] ** 2 - 1))


def test_hidden_levels_with_their_explicit_time_derivative():
    """g = |q|^2/2 - l(t)^2/2 and twice its derivative, along a flow that is all known, by hand."""
    moving = tw.Constraint(lambda t, x, p: 0.5 * (x[0] ** 2 + x[1] ** 2 - p["a"] * t**3))
    found = WithHiddenConstraints(moving, lambda x, p: jnp.stack([x[2], x[3], -p["k"] * x[0], jnp.zeros(())]), times=2)
    t, x, p = jnp.array(0.7), jnp.array([0.3, -0.9, 1.2, 0.4]), {"a": jnp.array(2.0), "k": jnp.array(3.0)}
    level = found.level(t, x, p)
    np.testing.assert_array_equal(level, np.zeros(3))
    by_hand = [
        0.5 * (0.3**2 + 0.9**2 - 2 * 0.7**3),
        0.3 * 1.2 - 0.9 * 0.4 - 3 * 0.7**2,
        1.2**2 + 0.4**2 - 3 * 0.3**2 - 6 * 0.7,
    ]
    np.testing.assert_allclose(found.residual(t, x, p, level), by_hand, rtol=1e-13)


def test_level_of_a_conserved_position():
    """A run keeps its own length; what is hidden of it is zero for every run."""
    found = WithHiddenConstraints(tw.Conserved(lambda x: x[0] ** 2 + x[1] ** 2), kinematics)
    x = jnp.array([1.0, 2.0, -0.2, 0.1])
    np.testing.assert_allclose(found.level(0.0, x, {}), [5.0, 0.0])
    np.testing.assert_allclose(found.residual(0.0, x, {}, found.level(0.0, x, {})), [0, 0], atol=1e-15)


def test_hidden_is_refused_where_it_would_be_learned():
    x = pendulum_state(0.4, 1.0)
    once = with_hidden_constraints(ROD, kinematics, x, known=[0, 1])
    np.testing.assert_allclose(once.residual(0.0, x, {}, jnp.zeros(2)), [0, 0], atol=1e-15)
    with pytest.raises(ValueError, match="depends on state 2, whose rate is not known"):
        with_hidden_constraints(ROD, kinematics, x, known=[0, 1], times=2)
    # At rest the hidden level q.v does not move with q: looked at around x too, it is found to.
    with pytest.raises(ValueError, match="depends on state 0"):
        with_hidden_constraints(
            tw.Constraint(lambda x: x[0] * x[2]), kinematics, jnp.array([0.0, 1.0, 0.0, 0.0]), known=[2, 3]
        )
    with pytest.raises(ValueError, match="there is no state 4"):
        with_hidden_constraints(ROD, kinematics, x, known=[4])
    learned = tw.GreyBox(kinematics, tw.MLP(states=[0], adds_to=[2]))
    with pytest.raises(ValueError, match=r"flow=...\): it holds a learned part"):
        WithHiddenConstraints(ROD, learned)
    with pytest.raises(ValueError, match="times=0"):
        WithHiddenConstraints(ROD, kinematics, 0)


def test_index_of_mechanisms():
    found = index_of(pendulum(friction=tw.Network(1, 1)), pendulum_state(0.0))
    assert (found.index, found.hidden) == (3, 1)
    assert str(found).splitlines() == [
        "index 3: 1 constraint, 1 hidden constraint",
        "  g (position level, given): 1 equation",
        "  dg/dt (velocity level, hidden): 1 equation",
        "  d2g/dt2 (acceleration level, contains and determines the multiplier): 1 equation",
    ]
    # A blade on a hoop: one constraint on positions, one on velocities.
    mixed = Multibody([1.0, 1.0, 0.3], lambda q: q[0] ** 2 + q[1] ** 2 - 1, velocity=lambda q, v: v[2] - q[0] * v[1])
    found = index_of(mixed, jnp.array([0.6, 0.8, 0.1, 0.8, -0.6, -0.36]))
    assert (found.index, found.orders, found.hidden) == (3, (2, 1), 1)
    assert "  dg/dt (acceleration level, contains and determines the multipliers): 1 equation" in str(found)


def test_index_names_what_is_redundant():
    twice = Multibody([1.0] * 3, lambda q: jnp.stack([q[0] ** 2 + q[1] ** 2 - 1, q[2], 3 * q[2]]))
    with pytest.raises(ValueError, match=r"equations 1, 2 do not determine the multipliers here \(rank 2 of 3\)"):
        index_of(twice, jnp.array([0.6, 0.8, 0.0, 0.0, 0.0, 0.0]))


def chain(length):
    """x1' = x2, ..., x_n' = z, with x1 prescribed: index n + 1."""
    return lambda x, z: jnp.concatenate([x[1:], z + 0 * x[:1] ** 2]), lambda t, x: x[:1] - jnp.sin(t), jnp.ones(length)


def test_index_of_other_systems_and_what_is_not_supported():
    rate, g, x = chain(2)
    assert dae_index(rate, g, x, jnp.zeros(1)).index == 3
    assert dae_index(rate, lambda x, z: x[:1] - z**3 - z, x, jnp.zeros(1)).index == 1
    rate, g, x = chain(4)
    with pytest.raises(
        ValueError, match=r"index 5: equation 0 of g must be differentiated 4 times to contain z.*Instead"
    ):
        dae_index(rate, g, x, jnp.zeros(1))
    with pytest.raises(ValueError, match="index above 6: z appears neither"):
        dae_index(rate, lambda x: jnp.sum(x[:1]) * 0 + 1, x, jnp.zeros(1))
    with pytest.raises(ValueError, match="1 equations for 2 algebraic variables"):
        dae_index(lambda x, z: x, lambda x: x[:1], x, jnp.zeros(2))


class Unsure(eqx.Module):
    """A chain whose first rate has a learned part."""

    network: tw.Network

    def __call__(self, x, z):
        return jnp.concatenate([x[1:] + self.network(x[:1]), z])


def test_index_refuses_hidden_constraints_that_are_not_known():
    _, g, x = chain(2)
    with pytest.raises(ValueError, match="dg/dt = 0 of equation 0 depends on a learned part of the rate"):
        dae_index(Unsure(tw.Network(1, 1, zero_last=True)), g, x, jnp.zeros(1))
    with pytest.raises(ValueError, match="depends on the input w"):
        dae_index(lambda x, z, w: jnp.concatenate([x[1:] + w, z]), g, x, jnp.zeros(1), w=jnp.ones(1))


def test_energy_beside_a_force_is_refused():
    with pytest.raises(ValueError, match="may do work"):
        constraint_of(pendulum(friction=lambda s: s), energy=True)


def longest(mechanism, x0, total, count, constraint, projection=None):
    """Largest relative violation of all levels and of the energy over a run, and the run."""
    cell = tw.Cell(mechanism, constraint=constraint, projection=projection or tw.Newton())
    ts = jnp.linspace(0, total, count + 1)
    trajectory = eqx.filter_jit(tw.rollout)(cell, x0, ts, throw=False)
    whole = constraint_of(mechanism, energy=True)
    level = whole.level(ts[0], x0, {})
    off = jax.vmap(lambda t, x: jnp.abs(whole.residual(t, x, {}, level)))(ts, trajectory.xs)
    assert not trajectory.failed
    return np.asarray(off.max(0) / violation_scale(whole, ts[0], x0, {}, level)), trajectory


@pytest.mark.slow
def test_a_thousand_periods_of_the_pendulum():
    """Position, velocity and energy at the dtype's limit."""
    mechanism, x0, period = pendulum(), pendulum_state(2.0), pendulum_period(2.0)
    worst, trajectory = longest(mechanism, x0, 1000 * period, 50_000, constraint_of(mechanism, energy=True))
    assert worst.max() <= 1e-12
    # It has kept its phase too: the energy decides the period.
    assert float(jnp.abs(trajectory.xs[-1] - x0).max()) < 0.1


@pytest.mark.slow
def test_without_its_hidden_constraint_a_pendulum_drifts():
    """Projected onto its length alone: that holds, and the velocity along the rod grows until nothing is left."""
    mechanism, x0, period = pendulum(), pendulum_state(2.0), pendulum_period(2.0)
    worst, _ = longest(mechanism, x0, 5 * period, 500, constraint_of(mechanism, hidden=False))
    assert worst[0] <= 1e-12
    assert worst[1] > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "x0", "period"),
    [
        (double_pendulum(), double_pendulum_state([0.8, 1.2]), 2.2),
        (slider_crank(), slider_crank_state(0.3, 6.0), 1.05),
        (skate(), skate_motion(jnp.array(0.0), 1.3), 4.84),
    ],
    ids=["double pendulum", "slider-crank", "skate"],
)
def test_a_hundred_periods(mechanism, x0, period):
    worst, _ = longest(mechanism, x0, 100 * period, 10_000, constraint_of(mechanism, energy=True))
    assert worst.max() <= 1e-12


def with_friction_to_learn():
    mechanism = pendulum(friction=tw.Network(1, 1, 8, 1))
    return tw.Twin(mechanism, constraint=constraint_of(mechanism), projection=tw.Newton(), integrator=tw.Euler())


def test_nothing_learned_is_in_the_constraint():
    """A second copy of the network would be trained beside the first."""
    assert tw.model.count_parameters(with_friction_to_learn().initialise(jax.random.key(0), states=4)) == 25


@pytest.mark.slow
def test_levels_hold_beside_any_learned_force():
    """Weights drawn at random, before any training: positions and velocities obey what follows from q' = v."""
    twin, x0, ts = with_friction_to_learn(), pendulum_state(1.0, 2.0), jnp.linspace(0, 2, 41)
    run = eqx.filter_jit(lambda key: tw.rollout(twin.initialise(key, states=4).cell, x0, ts, throw=False))
    for seed in range(2):
        trajectory = run(jax.random.key(seed))
        assert not trajectory.failed
        assert float(trajectory.relative_violation.max()) <= 1e-14
