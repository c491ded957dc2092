"""Dependent constraints in any order: Kepler's orbit with energy, angular momentum and the Laplace-Runge-Lenz vector.

Of these four invariants three are independent, everywhere: A^2 = 1 + 2 E L^2. Where A points along x, A_x depends on E
and L alone, so that not every three of them will do.
"""

import itertools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.jacobians import QUICK
from twinfold_studies.numerics.orbit import kepler

import twinfold as tw
from twinfold.model import Conserved
from twinfold.numerics import RK4, Cell, Newton, Projected, Tangent, rollout
from twinfold.systems import two_body

ORDERS = np.array(list(itertools.permutations(range(4))))
INDEPENDENT = np.array([0, 1, 3])  # E, L, A_y
FIELD = two_body().truth


def invariants(x):
    q, v = x[:2], x[2:]
    r, momentum = jnp.sqrt(q @ q), q[0] * v[1] - q[1] * v[0]
    energy = 0.5 * v @ v - 1 / r
    return jnp.stack([energy, momentum, v[1] * momentum - q[0] / r, -v[0] * momentum - q[1] / r])


CONSTRAINT = Conserved(lambda x, p: invariants(x)[p["order"]])


def predictors(e, longest, count=60):
    """States of an orbit, and where one step of RK4 leads from each, up to `longest` in units of the local period."""
    rng = np.random.default_rng(0)
    xs = jnp.asarray(kepler(rng.uniform(0, 2 * np.pi, count), e))
    steps = jnp.asarray(rng.uniform(0, longest, count)) * jnp.sum(xs[:, :2] ** 2, axis=1) ** 0.75
    free = Cell(FIELD, integrator=RK4())
    return xs, jax.vmap(lambda x, dt: free.step(0.0, dt, x, None, None, {}, jnp.zeros(0))[0].x)(xs, steps)


@pytest.mark.parametrize("projection", [Newton(), Tangent(max_steps=20)], ids=["robust", "frozen"])
def test_the_order_of_dependent_constraints_does_not_matter(projection):
    """Far predictors too: the iterations are the same ones, not only what they converge to."""
    anchors, xs = predictors(0.9, 1.5)
    level = invariants(jnp.asarray(kepler(np.zeros(1), 0.9)[0]))

    def project(order, x, anchor):
        return projection.project(CONSTRAINT, 0.0, x, {"order": order}, level[order], anchor=anchor)

    run = jax.vmap(jax.vmap(project, (None, 0, 0)), (0, None, None))
    out = jax.jit(run, compiler_options=QUICK)(jnp.asarray(ORDERS), xs, anchors)
    solved = np.asarray(out.result == tw.RESULTS.successful)
    assert (solved == solved[0]).all()
    assert solved[0].mean() >= (1 if isinstance(projection, Newton) else 0.5)
    assert np.linalg.norm(out.x[0] - xs, axis=1).max() > 0.1
    np.testing.assert_array_equal(out.steps, np.broadcast_to(out.steps[0], out.steps.shape))
    np.testing.assert_allclose(out.x, np.broadcast_to(out.x[0], out.x.shape), rtol=0, atol=1e-11)
    np.testing.assert_array_equal(np.asarray(out.redundant)[solved], 1)


@pytest.mark.slow
@pytest.mark.parametrize(("e", "tolerance"), [(0.6, 1e-6), (0.9, 1e-6), (0.6, 1e-4)])
def test_adaptive_steps_are_the_same_in_any_order(e, tolerance):
    periods = 100
    ts = np.linspace(0, 2 * np.pi * periods, 8 * periods + 1)
    truth = kepler(ts, e)
    solver = Projected(diffrax.Tsit5(), CONSTRAINT)

    @eqx.filter_jit
    def run(order):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, x, p: FIELD(t, x)),
            solver,
            0.0,
            ts[-1],
            None,
            jnp.asarray(truth[0]),
            args={"order": order},
            saveat=diffrax.SaveAt(ts=jnp.asarray(ts)),
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            max_steps=None,
        )

    counts, errors = [], []
    for order in (INDEPENDENT, *ORDERS):
        solution = run(jnp.asarray(order))
        counts.append(int(solution.stats["num_steps"]))
        errors.append(np.abs(np.asarray(solution.ys) - truth).max())
    assert len(set(counts)) == 1, counts
    np.testing.assert_allclose(errors, errors[0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dt", [0.01, 0.03])
def test_no_step_of_an_eccentric_orbit_is_flagged_in_any_order(dt):
    """4000 steps at e = 0.9. The longer ones end far from the orbit in time, but on it."""
    ts = dt * jnp.arange(4001)
    x0 = jnp.asarray(kepler(np.zeros(1), 0.9)[0])
    cell = Cell(FIELD, integrator=RK4(), constraint=CONSTRAINT, projection=Newton())
    run = jax.jit(lambda order: rollout(cell, x0, ts, p={"order": order}, throw=False))
    independent = run(jnp.asarray(INDEPENDENT))
    assert not independent.failed
    for order in ORDERS:
        out = run(jnp.asarray(order))
        assert np.asarray(out.result == tw.RESULTS.successful).all(), order
        assert out.relative_violation.max() <= 2e-15
        np.testing.assert_array_equal(out.redundant, 1)
        np.testing.assert_allclose(out.xs, independent.xs, rtol=0, atol=1e-8)
