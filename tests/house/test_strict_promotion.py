"""The library works where JAX promotes neither ranks nor dtypes by itself, as in the test suite of Diffrax.

So do the examples of all public names: see `test_examples.py`.
"""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.strict import strict_promotion

import twinfold as tw
from twinfold.numerics import Projected

TIMES = np.linspace(0, 1, 11)
SQUARE = tw.Conserved(lambda x: x @ x)
TWICE = tw.Conserved(lambda x: jnp.stack([x @ x, 2 * (x @ x)]))
BOUNDED = tw.Stack([SQUARE, tw.Bounds(lambda x: x, lower=-0.5)])
CELLS = {
    "Newton": {"projection": tw.Newton()},
    "Newton, redundant": {"projection": tw.Newton(), "constraint": TWICE},
    "Newton, bounds": {"projection": tw.Newton(), "constraint": BOUNDED},
    "Newton, by its loop": {"projection": tw.Newton(derivative="loop", max_steps=5)},
    "Tangent": {"projection": tw.Tangent()},
    "Adaptive": {"projection": tw.Adaptive()},
    "Radau": {"integrator": tw.Radau(2)},
    "BDF": {"integrator": tw.BDF(3, 20)},
    "Kvaerno5": {"integrator": tw.DiffraxStep(diffrax.Kvaerno5())},
    "Tsit5": {"integrator": tw.DiffraxStep(diffrax.Tsit5())},
}


@pytest.fixture(autouse=True)
def _strict():
    with strict_promotion():
        yield


def turn(t, x):
    return jnp.stack([x[1], -x[0]])


@pytest.mark.parametrize("name", list(CELLS))
def test_rollout_and_gradient(name):
    """JAX refuses to promote while it traces, so nothing is compiled; the rooms' tests look at the values."""
    cell = tw.Cell(turn, **({"constraint": SQUARE} | CELLS[name]))

    def last(x):
        return tw.rollout(cell, x, jnp.asarray(TIMES, jnp.float32), throw=False).xs[-1]

    # float32 where 64 bits are the default: a constant of the wrong dtype does not go unnoticed.
    value, slope = jax.eval_shape(lambda x: (last(x), jax.jacrev(last)(x)), jnp.array([1.0, 0.1], jnp.float32))
    assert (value.dtype, slope.dtype) == (jnp.float32, jnp.float32)


def test_fit_and_evaluate():
    ts = np.linspace(0, 2, 41)
    data = tw.Dataset.from_arrays(ts, [np.stack([np.cos(ts + a), -np.sin(ts + a)], axis=1) for a in (0.0, 1.0, 2.0)])
    parts = {"constraint": SQUARE, "projection": tw.Tangent(), "integrator": tw.Euler()}
    twin = tw.phrpinn(lambda x: 0 * x, tw.MLP(width=4, depth=1), **parts)
    fit = tw.fit(twin, data, method=(tw.Adam(2, window=11), tw.LevenbergMarquardt(2)), seeds=2, progress=False)
    assert np.isfinite(tw.evaluate(fit, data).by_seed()["mae"]).all()


def test_a_projected_diffrax_solver():
    out = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, x, args: turn(t, x)),
        Projected(diffrax.Tsit5(), SQUARE, tw.Newton()),
        0.0,
        1.0,
        0.1,
        jnp.array([1.0, 0.1]),
        saveat=diffrax.SaveAt(ts=jnp.asarray(TIMES)),
    )
    assert out.ys is not None
    np.testing.assert_allclose(jnp.sum(out.ys**2, axis=1), 1.01, rtol=1e-14)


def test_an_implicit_step_of_many_states():
    """Enough of them for the factorisation of LAPACK: y' = A y, with A that turns four pairs."""
    rates = jnp.repeat(jnp.arange(1.0, 5.0), 2)
    cell = tw.Cell(lambda t, x: rates * jnp.stack([x[1::2], -x[0::2]], axis=1).reshape(-1), integrator=tw.Radau(3))
    xs = jax.jit(lambda x: tw.rollout(cell, x, jnp.asarray(TIMES)).xs)(jnp.tile(jnp.array([1.0, 0.0]), 4))
    np.testing.assert_allclose(xs[-1, 0::2], np.cos(np.arange(1, 5)), atol=1e-5)


def test_violations_of_predicted_outputs():
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, [np.stack([np.cos(ts), -np.sin(ts)], axis=1)])
    # Damped, so that it stays in the range of the data.
    found = tw.predict(tw.Twin(lambda x: turn(0.0, x) - 0.2 * x, constraint=SQUARE, integrator=tw.Euler()), data)
    again = found.against(SQUARE)
    assert found.relative_violation.max() > 0.1
    np.testing.assert_allclose(again.relative_violation, found.relative_violation, rtol=1e-13)


def test_a_mechanism_with_a_mass_matrix():
    """A pendulum whose two coordinates are coupled by inertia falls, and its energy stays."""
    mass = np.array([[2.0, 0.5], [0.5, 1.0]])
    pendulum = tw.Multibody(mass, lambda q: q @ q - 1, potential=lambda q: 9.81 * q[1])
    xs = np.asarray(tw.Twin(pendulum).simulate([1.0, 0, 0, 0], jnp.linspace(0, 0.5, 51)).xs)
    energy = 0.5 * np.sum(xs[:, 2:] @ mass * xs[:, 2:], axis=1) + 9.81 * xs[:, 1]
    assert xs[-1, 1] < -0.1
    np.testing.assert_allclose(energy, 0, atol=1e-4)
