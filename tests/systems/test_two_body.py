"""The two-body system: its invariants, its split into physics and residual, and its initial states."""

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.systems import two_body


def test_the_truth_conserves_angular_momentum_and_energy():
    system = two_body(energy=True, gm=2.0)
    t = jnp.array(0.0)
    for x0 in system.draw(jax.random.key(0), 3):
        x = x0 + 0.1 * jnp.array([1.0, -2.0, 0.5, 1.0])  # off the pericentre
        gradient = jax.jacfwd(lambda x: system.constraint.level(t, x, {}))(x)
        assert gradient.shape == (2, 4)
        np.testing.assert_allclose(gradient @ system.truth(t, x), 0.0, atol=1e-13)
    assert two_body().constraint.level(t, jnp.ones(4), {}).shape == (1,)


def test_physics_and_residual_are_disjoint():
    system = two_body()
    x = system.draw(jax.random.key(1), 1)[0]
    unknown = system.truth(jnp.array(0.0), x) - system.physics(jnp.array(0.0), x)
    assert np.flatnonzero(np.asarray(unknown)).tolist() == [2]  # at the pericentre the force points along q1
    assert set(np.flatnonzero(np.asarray(unknown))) <= set(system.residual_adds_to)


def test_orbits_have_a_semi_major_axis_of_one():
    system = two_body()
    xs = np.asarray(system.draw(jax.random.key(2), 100))
    energy = 0.5 * (xs[:, 2:] ** 2).sum(1) - 1 / np.hypot(xs[:, 0], xs[:, 1])
    np.testing.assert_allclose(energy, -0.5, rtol=1e-12)
    assert xs[:, 0].min() > 0.3
    assert xs[:, 0].max() < 0.5
