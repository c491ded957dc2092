"""The rivals of the paper's models: what each conserves, pulls back to, or cannot do without."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.bench.contenders import CONTENDERS, Design
from twinfold_studies.systems.registry import SYSTEMS, system

import twinfold as tw
from twinfold.model._constraint.base import Conserved
from twinfold.model._learned.base import count_parameters
from twinfold.model._learned.energy import Energy, Hamiltonian, Lagrangian
from twinfold.model._learned.trajectory import TrajectoryNetwork
from twinfold.model._recipes import hnn, pinn, snde
from twinfold.numerics._integrate.explicit import RK4
from twinfold.numerics._rollout import rollout
from twinfold.train._augmented import AugmentedLagrangian

TS = np.linspace(0.0, 4.0, 25)
CIRCLE = Conserved(lambda x: 0.5 * jnp.sum(x**2))


def oscillation(amplitudes=(0.5, 0.8, 1.1)):
    runs = np.stack([np.stack([a * np.cos(TS), -a * np.sin(TS)], 1) for a in amplitudes])
    return tw.Dataset.from_arrays(TS, runs)


def test_hamiltonian_field_is_tangent_to_its_own_energy():
    twin = hnn(Energy(8, 2)).initialise(jax.random.key(0), states=4)
    field = twin.field
    assert isinstance(field, Hamiltonian)
    for key in jax.random.split(jax.random.key(1), 5):
        x = jax.random.normal(key, (4,))
        slope, rate = jax.grad(field.energy)(x), field(x)
        assert abs(slope @ rate) <= 1e-14 * jnp.linalg.norm(slope) * jnp.linalg.norm(rate)
        np.testing.assert_array_equal(rate[:2], slope[2:])


@pytest.mark.slow
def test_lagrangian_field_solves_the_euler_lagrange_equation():
    """d/dt dL/dq' = dL/dq along the motion that the field describes."""
    energy = Energy(6, 2).initialise(jax.random.key(0), tw_context(4))
    field = Lagrangian(energy)
    x = jnp.array([0.3, -0.4, 0.7, 0.2])

    def lagrangian(x):
        return 0.5 * jnp.sum(x[2:] ** 2) + energy(x)

    rate = field(x)
    _, change = jax.jvp(lambda x: jax.grad(lagrangian)(x)[2:], (x,), (rate,))
    np.testing.assert_allclose(change, jax.grad(lagrangian)(x)[:2], rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(rate[:2], x[2:])


def tw_context(states):
    from twinfold.model._learned.base import Context

    return Context(states, 0, jnp.zeros(()).dtype)


def test_an_odd_number_of_states_is_no_mechanical_system():
    with pytest.raises(ValueError, match="as many velocities as positions"):
        hnn(Energy()).initialise(jax.random.key(0), states=3)


def test_stabilisation_pulls_a_disturbed_state_back_at_its_rate():
    gamma, turning = 5.0, lambda x: jnp.stack([x[1], -x[0]])
    twin = snde(turning, CIRCLE, gamma, integrator=RK4(4))
    ts = jnp.linspace(0.0, 1.0, 21)
    level = jnp.array([0.5])
    out = rollout(twin.cell, jnp.array([1.1, 0.0]), ts, level=level)
    residual = 0.5 * jnp.sum(out.xs**2, axis=1) - 0.5
    np.testing.assert_allclose(residual, residual[0] * jnp.exp(-gamma * ts), rtol=2e-3)


@pytest.mark.slow
def test_a_pinn_learns_a_trajectory_that_obeys_its_field():
    data = oscillation()

    def physics(x):
        return jnp.stack([x[1], -x[0]])

    twin = pinn(TrajectoryNetwork(12, 2), physics, tw.MLP(width=2, depth=1, zero_last=True), constraint=CIRCLE)
    loss = tw.Loss(collocation=1.0, constraint_penalty=1.0)
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(40), loss=loss, progress=False)
    assert fit.scores[0] < 1e-5
    found = tw.predict(fit, data)
    np.testing.assert_allclose(found.predicted[0], np.asarray(found.y), atol=2e-2)
    # Its state never moves, so only its outputs can violate: they do, a little.
    assert found.violation.max() == 0
    assert 1e-12 < found.against(CIRCLE).violation.max() < 5e-2


def test_violation_of_outputs_is_that_of_the_states_where_they_are_the_same():
    """Of a damped twin, which stays in the range of the data: beyond it `against` divides by the size of the state."""
    data = oscillation()
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]) - 0.5 * x, constraint=CIRCLE, integrator=tw.Euler())
    found = tw.predict(twin, data)
    again = found.against(CIRCLE)
    assert found.relative_violation.max() > 0.1
    np.testing.assert_allclose(again.violation, found.violation, rtol=1e-13)
    np.testing.assert_allclose(again.relative_violation, found.relative_violation, rtol=1e-13)


@pytest.mark.slow
def test_multipliers_hold_a_constraint_that_a_weak_penalty_does_not():
    """Data that contradict the constraint: the penalty gives in, the multipliers do not."""
    runs = np.stack(
        [np.stack([a * np.exp(-0.1 * TS) * np.cos(TS), -a * np.exp(-0.1 * TS) * np.sin(TS)], 1) for a in (0.5, 1.0)]
    )
    data = tw.Dataset.from_arrays(TS, runs)
    twin = tw.node(tw.MLP(width=8, depth=1), constraint=CIRCLE)
    loss, inner = tw.Loss(constraint_penalty=1e-2), tw.LevenbergMarquardt(30)
    held = {}
    for name, method in (("soft", inner), ("multipliers", AugmentedLagrangian(inner, every=3))):
        fit = tw.fit(twin, data, method=(tw.LevenbergMarquardt(10, window=11), method), loss=loss, progress=False)
        # The last parameters, not those of the lowest penalised loss, are what the multipliers arrive at.
        held[name] = tw.predict(fit, data).violation.mean()
    assert held["multipliers"] < held["soft"]


def test_multipliers_need_a_penalty():
    with pytest.raises(ValueError, match=r"give Loss\(constraint_penalty"):
        tw.fit(
            tw.node(tw.MLP(width=2, depth=1), constraint=CIRCLE),
            oscillation(),
            method=AugmentedLagrangian(tw.Adam(2)),
            progress=False,
        )


def test_a_soft_constraint_is_safe_outside_its_domain():
    """ln of a negative state: the seed goes on, with a finite loss and gradient."""
    data = oscillation()
    twin = tw.node(tw.MLP(width=4, depth=1), constraint=Conserved(lambda x: jnp.log(x[0])))
    fit = tw.fit(
        twin, data, method=tw.Adam(5, learning_rate=1e-2), loss=tw.Loss(constraint_penalty=1.0), progress=False
    )
    assert not fit.failures
    assert np.isfinite(fit.history["loss"]).all()
    assert len(set(fit.history["loss"][:, 0])) == 5  # its gradient moves it


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SYSTEMS))
def test_all_contenders_have_as_many_weights_within_ten_percent(name):
    of = system(name)
    for model, contender in CONTENDERS.items():
        if not contender.trained or contender.unsupported(name):
            continue
        twin = contender.build(Design(of, 300, None)).initialise(jax.random.key(0), states=len(of.state_names))
        assert abs(count_parameters(twin) - 300) <= 30, model
