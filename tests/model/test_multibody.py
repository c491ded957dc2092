"""Constrained mechanics: accelerations against Lagrange's equations in minimal coordinates, RATTLE, friction laws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from twinfold_studies.systems.double_pendulum import double_pendulum, double_pendulum_state
from twinfold_studies.systems.pendulum import pendulum, pendulum_period, pendulum_state
from twinfold_studies.systems.skate import skate, skate_motion
from twinfold_studies.systems.slider_crank import slider_crank, slider_crank_state

import twinfold as tw
from twinfold.model._constraint.hidden import constraint_of
from twinfold.model._mechanics.friction import Friction
from twinfold.model._mechanics.multibody import Multibody
from twinfold.numerics._constraint import residual_and_jacobian, violation_scale
from twinfold.numerics._integrate.rattle import Rattle
from twinfold.numerics._mechanism import split_state as split

GRAVITY = 9.81


def crank_point(t, angle):
    """Slider-crank from the angle of its crank."""
    s, c = 0.5 * jnp.sin(angle[0]), 0.5 * jnp.cos(angle[0])
    return jnp.stack([c, s, c + jnp.sqrt(1.5**2 - s**2), jnp.zeros_like(s)])


def reeled(t, angle):
    """A pendulum whose rod is drawn in, from its angle."""
    return (1 + 0.2 * jnp.sin(3 * t)) * jnp.stack([jnp.sin(angle[0]), -jnp.cos(angle[0])])


def reeling():
    """The same, as a mechanism whose constraint moves."""
    return Multibody(
        [2.0, 2.0],
        lambda t, q: 0.5 * (q @ q - (1 + 0.2 * jnp.sin(3 * t)) ** 2),
        potential=lambda q: 2 * GRAVITY * q[1],
    )


def polar():
    """A pendulum in polar coordinates (r, angle): a mass matrix that varies with q."""
    return Multibody(
        lambda q, p: p["m"] * jnp.stack([jnp.ones_like(q[0]), q[0] ** 2]),
        lambda q: q[0] - 1.0,
        potential=lambda q, p: -p["m"] * GRAVITY * q[0] * jnp.cos(q[1]),
    )


def simulate(mechanism, integrator, x0, total, count, length=None):
    """Padded to `length` steps by repeating the last time, so that several counts compile once."""
    ts = jnp.minimum(jnp.arange((length or count) + 1) / count, 1) * total
    cell = tw.Cell(mechanism, integrator=integrator, constraint=constraint_of(mechanism))
    return eqx.filter_jit(tw.rollout)(cell, x0, ts, throw=False)


MINIMAL = {
    "slider-crank": (slider_crank(), crank_point, [2.2], [5.0], {}),
    "moving": (reeling(), reeled, [1.1], [2.0], {}),
    "polar": (polar(), lambda t, angle: jnp.stack([jnp.ones_like(angle[0]), angle[0]]), [1.1], [2.0], {"m": 2.0}),
}


@pytest.mark.parametrize("name", MINIMAL)
def test_accelerations_are_those_of_minimal_coordinates(name):
    """Lagrange's equations of T - V in angles, without multipliers, carried back to the redundant coordinates."""
    mechanism, embed, angle, rate, p = MINIMAL[name]

    def state(t, angle, rate):
        q, v = jax.jvp(embed, (t, angle), (jnp.ones_like(t), rate))
        return jnp.concatenate([q, v])

    def lagrangian(t, angle, rate):
        x = state(t, angle, rate)
        resting = jnp.concatenate([split(x)[0], jnp.zeros_like(split(x)[1])])
        return mechanism.energy(x, p) - 2 * mechanism.energy(resting, p)

    @jax.jit
    def accelerations(t, angle, rate):
        momentum = jax.grad(lagrangian, argnums=2)
        mass = jax.jacfwd(momentum, argnums=2)(t, angle, rate)
        _, carried = jax.jvp(lambda t, angle: momentum(t, angle, rate), (t, angle), (jnp.ones_like(t), rate))
        turn = jnp.linalg.solve(mass, jax.grad(lagrangian, argnums=1)(t, angle, rate) - carried)
        x, expected = jax.jvp(state, (t, angle, rate), (jnp.ones_like(t), rate, turn))
        found, multipliers = mechanism.solve(t, x, None, None, p)
        return split(expected)[1], found, split(mechanism.released(t, x, multipliers, None, p))[1]

    expected, found, released = accelerations(jnp.array(0.37), jnp.array(angle), jnp.array(rate))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    # What the multipliers are: with their reactions in place of the constraints, the accelerations are the same.
    np.testing.assert_allclose(released, found, rtol=1e-11, atol=1e-11)


def test_reaction_of_a_pendulum():
    """lambda l is the tension of the rod: m v^2 / l + m g cos(angle)."""
    x = pendulum_state(0.7, 3.0, length=2.0)
    _, multiplier = pendulum(length=2.0, mass=1.5).solve(0.0, x, None, None, {})
    np.testing.assert_allclose(2.0 * multiplier, [1.5 * (2.0 * 3.0**2 + GRAVITY * np.cos(0.7))], rtol=1e-13)


def test_a_blade_moves_as_in_closed_form():
    """Index 2: the skate's cycloid, with order 4."""
    mechanism, errors = skate(), []
    for count in (40, 80):
        trajectory = simulate(mechanism, tw.RK4(), skate_motion(jnp.array(0.0), 1.3), 5.0, count, 80)
        errors.append(float(jnp.abs(trajectory.xs[-1] - skate_motion(jnp.array(5.0), 1.3)).max()))
    assert 3.9 <= np.log2(errors[0] / errors[1]) <= 4.3


def law(rate):
    """Coulomb friction with a smooth start, lower at speed (Stribeck), and a viscous part."""
    return 0.15 * jnp.tanh(rate / 0.3) * (1 + 0.8 * jnp.exp(-((rate / 0.8) ** 2))) + 0.08 * rate


def test_friction_takes_the_power_of_its_joints():
    """dE/dt = -sum s law(s) along the constrained motion, in whatever coordinates."""
    x = double_pendulum_state([0.8, -1.9], [1.4, 2.1])
    mechanism = double_pendulum(friction=law)
    rate = jax.jit(lambda x: mechanism(0.0, x, None, None, {}))(x)
    _, power = jax.jvp(lambda x: mechanism.energy(x, {}), (x,), (rate,))
    rates = jnp.array([1.4, 2.1 - 1.4])
    np.testing.assert_allclose(power, -rates @ law(rates), rtol=1e-12)


def test_an_odd_law_is_odd():
    friction = Friction(lambda v: v, lambda s: jnp.exp(s), odd=True)
    np.testing.assert_allclose(
        friction.resistance(jnp.array([0.4, -0.4])), jnp.sinh(jnp.array([0.4, -0.4])), rtol=1e-14
    )


def test_dependent_constraints_are_flagged():
    """Accelerations that are not determined are not a number, so that no run goes on with a guess."""
    twice = Multibody([1.0, 1.0], lambda q: jnp.stack([q @ q - 1, 2 * (q @ q - 1)]))
    assert np.isnan(twice(0.0, pendulum_state(0.3, 1.0), None, None, {})[2:]).all()


class Learned(eqx.Module):
    network: tw.Network

    def __call__(self, q):
        return self.network(q)[0]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0, 1.0],), {}, "without any"),
        (([1.0, -1.0], lambda q: q[0]), {}, "smallest entry -1"),
        (([[1.0, 2.0], [2.0, 1.0]], lambda q: q[0]), {}, "smallest eigenvalue -1"),
        (([[1.0, 2.0], [0.0, 1.0]], lambda q: q[0]), {}, "not symmetric"),
        (([1.0, 1.0], lambda x: x[0]), {}, "position: argument 'x'"),
        (([1.0, 1.0], lambda q: q[0]), {"force": lambda x: x}, "force: argument 'x'"),
        (([1.0, 1.0], Learned(tw.Network(2, 1))), {}, "learned part"),
    ],
)
def test_bad_mechanisms(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        Multibody(*arguments, **options)


def test_shapes_are_named():
    with pytest.raises(ValueError, match="mass has shape"):
        Multibody([1.0, 1.0, 1.0], lambda q: q[0])(0.0, jnp.ones(4), None, None, {})
    with pytest.raises(ValueError, match="as many velocities as positions"):
        pendulum()(0.0, jnp.ones(3), None, None, {})
    with pytest.raises(ValueError, match="the rod must be longer"):
        slider_crank(crank=2.0)


# RATTLE ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rubbed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["conservative", "friction"]
)
def test_rattle_has_order_two(rubbed):
    """Against a fine RK4, with forces of q alone and of v too; both levels at the limit of the dtype."""
    mechanism = reeling() if not rubbed else pendulum(friction=lambda s: 0.3 * s + 0.1 * s**3)
    x0 = jnp.array([1.0, 0.0, 0.6, 1.0]) if not rubbed else pendulum_state(1.5, 1.0)
    exact = simulate(mechanism, tw.RK4(), x0, 2.0, 4000).xs[-1]
    errors = []
    for count in (40, 80):
        trajectory = simulate(mechanism, Rattle(mechanism, substeps=2), x0, 2.0, count // 2, 40)
        assert not trajectory.failed
        assert float(trajectory.relative_violation.max()) <= 1e-14
        errors.append(float(jnp.abs(trajectory.xs[-1] - exact).max()))
    assert 1.9 <= np.log2(errors[0] / errors[1]) <= 2.2


@pytest.mark.slow
def test_energy_of_rattle_is_bounded_where_that_of_rk4_drifts():
    """Over 300 periods the mean error of RATTLE does not change; that of RK4 is gone after ten."""
    mechanism, x0, per = pendulum(), pendulum_state(1.2), 40

    def drift(integrator, periods):
        """Change of the mean over a period from the first tenth of the run to the last, and the spread within one."""
        total = periods * pendulum_period(1.2)
        xs = simulate(mechanism, integrator, x0, total, periods * per).xs
        energy = np.asarray(jax.vmap(lambda x: mechanism.energy(x, {}))(xs))
        every, tenth = energy[1:].reshape(periods, per), periods // 10
        return abs(every[-tenth:].mean() - every[:tenth].mean()), every[:tenth].std()

    slow, spread = drift(Rattle(mechanism), 300)
    gone, _ = drift(tw.RK4(), 10)
    assert slow < 1e-3 * spread
    assert gone > 1e3 * slow


def test_derivatives_of_a_rattle_step():
    """jvp and vjp against finite differences, in the state, the step, parameters and learned weights."""
    mechanism = Multibody(
        lambda p: p["m"] * jnp.array([1.0, 2.0]),
        lambda t, q, p: q[0] ** 2 + q[1] ** 2 - p["l"] ** 2 * t,
        force=Friction(lambda v: v, tw.Network(1, 1, 4, 1)),
    )
    cell = tw.Twin(mechanism, integrator=Rattle(mechanism)).initialise(jax.random.key(0), states=4).cell

    def step(theta):
        t, dt, x, p, bias = theta
        moved = eqx.tree_at(lambda cell: cell.field.force.law.weights.layers[0].bias, cell, bias)
        field = lambda t, x, w, p: moved.rate(t, x, w, p, jnp.zeros(0))  # noqa: E731
        return moved.integrator.step(field, t, dt, x, lambda t: None, p).x

    x0, bias = jnp.array([0.6, -0.8, 1.0, 1.375]), jnp.array([0.3, -0.2, 0.1, 0.4])
    theta = (jnp.array(1.0), jnp.array(0.1), x0, {"m": jnp.array(2.0), "l": jnp.array(1.0)}, bias)
    flat, unflatten = ravel_pytree(theta)

    @jax.jit
    def both(flat):
        value, push = jax.linearize(lambda flat: step(unflatten(flat)), flat)
        back = jax.linear_transpose(push, flat)
        return value, jax.vmap(push, out_axes=1)(jnp.eye(flat.shape[0])), jax.vmap(lambda u: back(u)[0])(jnp.eye(4))

    _, forward, reverse = both(flat)
    differences = np.stack([(both(flat + d)[0] - both(flat - d)[0]) / 2e-6 for d in 1e-6 * np.eye(len(flat))], axis=1)
    np.testing.assert_allclose(forward, differences, atol=2e-8)
    np.testing.assert_allclose(reverse, forward, atol=1e-12)
    assert np.abs(differences).max(0).min() > 1e-5  # each of them matters


@pytest.mark.slow
def test_rattle_reports_what_it_cannot_solve():
    """A step that no rod could take: flagged, finite, with finite derivatives, beside one that succeeds."""
    mechanism = pendulum()

    def one(x):
        return Rattle(mechanism).step(lambda t, x, w, p: mechanism(t, x, None, w, p), 0.0, 0.1, x, lambda t: None, {})

    x = jnp.stack([pendulum_state(0.3, 1.0), pendulum_state(0.3, 40.0), jnp.array([0.0, 0.0, 1.0, 0.0])])
    out, slope = jax.jit(lambda x: (jax.vmap(one)(x), jax.grad(lambda x: jax.vmap(one)(x).x[:2].sum())(x)))(x)
    for index, code in enumerate((tw.RESULTS.successful, tw.RESULTS.solver, tw.RESULTS.singular)):
        assert bool((out.result == code)[index])
    assert np.isfinite(out.x[:2]).all()
    assert np.isfinite(slope[:2]).all()
    assert np.abs(slope[0]).max() > 0


def test_a_step_of_length_zero_stays():
    mechanism, x = pendulum(), jnp.array([0.3, -1.2, 0.5, 0.1])  # off the manifold
    field = lambda t, x, w, p: mechanism(t, x, None, w, p)  # noqa: E731
    out = jax.jit(lambda x: Rattle(mechanism).step(field, 0.0, 0.0, x, lambda t: None, {}))(x)
    np.testing.assert_array_equal(out.x, x)
    assert bool(out.result == tw.RESULTS.successful)


def test_what_rattle_is_not_for():
    with pytest.raises(ValueError, match="positions alone"):
        Rattle(skate())
    with pytest.raises(ValueError, match="varies with q"):
        Rattle(polar())
    with pytest.raises(ValueError, match="substeps=0"):
        Rattle(pendulum(), 0)


# Learned friction --------------------------------------------------------------------------------------------------


def swings(friction, count, samples):
    """Positions of a pendulum released in several ways, and its states at the start."""
    mechanism, rng = pendulum(friction=friction), np.random.default_rng(0)
    x0 = jnp.stack([pendulum_state(*each) for each in rng.uniform([-2.5, -4], [2.5, 4], (count, 2))])
    ts = jnp.linspace(0, 0.05 * samples, samples + 1)
    cell = tw.Cell(mechanism, integrator=tw.RK4(substeps=10))
    xs = jax.jit(jax.vmap(lambda x0: tw.rollout(cell, x0, ts, throw=False).xs))(x0)
    return tw.Dataset.from_arrays(ts, np.asarray(xs[..., :2]), x0=x0)


@pytest.mark.slow
def test_a_friction_law_is_recovered_from_positions():
    data = swings(law, 24, 30)
    mechanism = pendulum(friction=tw.Network(1, 1, 8, 2))
    twin = tw.Twin(
        mechanism,
        observe=lambda x: x[:2],
        constraint=constraint_of(mechanism),
        projection=tw.Newton(),
        integrator=tw.RK4(substeps=2),
    )
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(60), progress=False)
    rates = jnp.linspace(-6, 6, 121)
    error = fit.twin.field.force.resistance(rates) - law(rates)  # pyright: ignore[reportFunctionMemberAccess]
    assert float(jnp.sqrt(jnp.mean(error**2) / jnp.mean(law(rates) ** 2))) < 0.05
    simulated = fit.twin.simulate(pendulum_state(2.0), jnp.linspace(0, 20, 401))
    assert float(simulated.trajectory.relative_violation.max()) <= 1e-12


def test_no_configuration_of_the_slider_crank_is_singular():
    """Six constraints and the energy: satisfied by the states drawn, of full rank all the way round."""
    constraint = constraint_of(slider_crank(), energy=True)

    @jax.jit
    @jax.vmap
    def at(x):
        level = constraint.level(0.0, x, {})
        residual, jacobian = residual_and_jacobian(constraint, 0.0, x, {}, level)
        return residual / violation_scale(constraint, 0.0, x, {}, level), jacobian

    residual, jacobian = at(jnp.stack([slider_crank_state(angle, 6.0) for angle in np.linspace(0.1, 6.2, 7)]))
    np.testing.assert_allclose(residual, 0, atol=1e-15)
    assert (np.linalg.matrix_rank(np.asarray(jacobian)) == 7).all()
