"""Implicit steps that are too long say so, and those that are not are left alone."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

# Michaelis-Menten kinetics; enzyme and substrate are conserved in all their forms.
RATES = {"bind": 1000.0, "release": 1.0, "convert": 1.0}
START = jnp.array([10.0, 1.0, 0.0, 0.0])  # substrate, enzyme, complex, product
SAMPLES = np.concatenate([[0.0], np.geomspace(1e-3, 30, 12)])
MOIETIES = tw.Conserved(lambda x: jnp.stack([x[1] + x[2], x[0] + x[2] + x[3]]))


def enzyme(x):
    binding, release, turnover = RATES["bind"] * x[0] * x[1], RATES["release"] * x[2], RATES["convert"] * x[2]
    return jnp.stack([release - binding, release + turnover - binding, binding - release - turnover, turnover])


def run(integrator, constraint: Any = MOIETIES, projection: Any = None):
    # The constraint is linear: one linearised step projects exactly, and compiles in a fraction of the time.
    projection = tw.Tangent() if projection is None else projection
    cell = tw.Cell(lambda t, x: enzyme(x), integrator=integrator, constraint=constraint, projection=projection)
    return tw.rollout(cell, START, jnp.asarray(SAMPLES), throw=False)


@pytest.fixture(scope="module")
def exact():
    out = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, x, _: enzyme(x)),
        diffrax.Kvaerno5(),
        0.0,
        30.0,
        1e-4,
        START,
        saveat=diffrax.SaveAt(ts=jnp.asarray(SAMPLES)),
        stepsize_controller=diffrax.PIDController(rtol=1e-10, atol=1e-12),
        max_steps=100_000,
    )
    return np.asarray(out.ys)


COARSE = {
    "Radau": tw.Radau(),
    "Radau, 4 substeps": tw.Radau(4),
    "BDF": tw.BDF(2, 4),
    "Kvaerno5": tw.DiffraxStep(diffrax.Kvaerno5()),
    "implicit Euler": tw.DiffraxStep(diffrax.ImplicitEuler()),
}


@pytest.mark.parametrize("name", list(COARSE))
def test_a_step_across_the_depletion_of_the_substrate_is_flagged(name, exact):
    """The substrate becomes negative, on a branch that no solution follows; the step that leads there is flagged."""
    out = run(COARSE[name])
    assert out.violation.max() <= 1e-12  # the constraint alone says nothing
    negative = np.flatnonzero(np.asarray(out.xs)[:, 0] < -0.1)
    assert negative.size
    assert exact[:, 0].min() > -1e-6
    assert (out.result == tw.RESULTS.inaccurate)[negative[0]]


@pytest.mark.parametrize("integrator", [tw.Radau(100), tw.BDF(2, 400), tw.DiffraxStep(diffrax.Kvaerno5(), 100)])
def test_steps_that_are_short_enough_are_not_flagged(integrator, exact):
    out = run(integrator)
    assert not out.failed
    np.testing.assert_allclose(out.xs, exact, rtol=0, atol=2e-3)


def test_bounds_do_not_hide_it():
    bounded = tw.Stack([MOIETIES, tw.Bounds(lambda x: x, lower=0.0)])
    out = run(tw.Radau(), bounded, tw.Newton())
    assert out.xs.min() >= 0
    assert (out.result == tw.RESULTS.inaccurate).any()


def test_the_check_can_be_turned_off():
    assert not run(tw.Radau(max_error=None)).failed
    with pytest.raises(ValueError, match=r"max_error=0.0: give a positive part"):
        tw.Radau(max_error=0.0)


def test_the_estimate_of_radau_has_the_order_of_its_embedded_formula():
    """A step of x' = x^2 of half the length has an estimate that is 2^4 times smaller, and is above the true error."""
    from twinfold.numerics._integrate.radau import radau_error, radau_increments

    def field(t, x, w, p):
        return x**2

    @jax.jit
    def estimate(h):
        x = jnp.array([1.0])
        z, _ = radau_increments(field, 0.0, h, x, lambda t: None, {})
        return radau_error(field, 0.0, h, x, z, lambda t: None, {}), jnp.abs(1 / (1 - h) - (x + z[-1])[0])

    lengths = np.array([0.2, 0.1, 0.05])
    found, true = np.array([estimate(h) for h in lengths]).T
    np.testing.assert_allclose(np.log2(found[:-1] / found[1:]), 4, atol=0.5)
    assert (found > true).all()
