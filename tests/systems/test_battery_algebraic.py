"""The battery with an asymmetric reaction: against the closed form, the Butler-Volmer equation, and in a fit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.model import simulate_unchecked
from twinfold.model._learned.base import learned_parts
from twinfold.systems import Interaction, battery, charged
from twinfold.systems._battery.parameters import FARADAY, GAS, KELVIN

TS = np.arange(0.0, 3000.0, 20.0)
# Rest, discharge, rest and charge.
CURRENT = np.select([TS < 100, TS < 1500, TS < 2000], [0.0, 2.0, 0.0], -1.5)
W = np.stack([CURRENT, np.full_like(TS, 24.0)], axis=1)


@functools.cache
def simulate(kinetics):
    twin = battery(kinetics=kinetics, integrator=tw.Heun(4))
    p = twin.parameters()

    @jax.jit
    def run(alpha_p, alpha_n):
        values = p | ({"alpha_p": alpha_p, "alpha_n": alpha_n} if kinetics != "symmetric" else {})
        return simulate_unchecked(twin, charged(p["x_n"], p), jnp.asarray(TS), jnp.asarray(W), values, None)

    return run


def test_alpha_of_one_half_equals_the_closed_form():
    closed, solved = (simulate(kinetics)(0.5, 0.5) for kinetics in ("symmetric", "butler-volmer"))
    assert bool(jnp.all(solved.trajectory.result == tw.RESULTS.successful))
    np.testing.assert_allclose(solved.ys, closed.ys, rtol=0, atol=1e-14)
    np.testing.assert_allclose(solved.xs, closed.xs, rtol=1e-14, atol=1e-14)
    assert set(solved.zs) == set(closed.zs)
    for name, values in closed.zs.items():
        # Without current, flux and overpotential are zero; the closed form, too, is off by rounding.
        rounding = 8 * np.finfo(float).eps * max(1.0, float(jnp.max(jnp.abs(values))))
        np.testing.assert_allclose(solved.zs[name], values, rtol=1e-13, atol=rounding, err_msg=name)


def test_the_solution_satisfies_butler_volmer():
    """The equation holds at the solution for two coefficients; without current there is no overpotential; a larger
    exponent in the direction of the current makes it smaller."""
    out = simulate("butler-volmer")(0.3, 0.6)
    p = {name: np.asarray(value) for name, value in battery().parameters().items()}
    unit = GAS * (24.0 + KELVIN) / FARADAY
    for side, alpha in (("p", 0.3), ("n", 0.6)):
        v, x = np.asarray(out.zs[f"V_eta_{side}"]) / unit, np.asarray(out.zs[f"x_s{side}"])
        exchange = p[f"k_{side}"] * (1 - x) ** alpha * x ** (1 - alpha)
        density = exchange * (np.exp((1 - alpha) * v) - np.exp(-alpha * v))
        np.testing.assert_allclose(density * p[f"S_{side}"], CURRENT, rtol=1e-13, atol=1e-13)
        assert np.all(np.abs(v[CURRENT == 0]) < 1e-15)
        assert np.all(v[CURRENT > 0] > 0.1)
    flat = simulate("butler-volmer")(0.5, 0.5)
    assert np.all((out.zs["V_eta_p"] < flat.zs["V_eta_p"])[(TS > 100) & (TS < 300)])


@pytest.mark.slow
def test_the_derivative_in_a_transfer_coefficient():
    run = simulate("butler-volmer")
    slope = jax.jit(jax.jacfwd(lambda alpha: run(alpha, 0.6).ys[:, 0]))(0.3)
    difference = (run(0.3 + 1e-5, 0.6).ys[:, 0] - run(0.3 - 1e-5, 0.6).ys[:, 0]) / 2e-5
    assert np.abs(slope).max() > 1e-3
    np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_a_transfer_coefficient_is_identified_from_voltages():
    """With the other parameters known: 0.5 is the guess, 0.35 the truth."""
    truth = simulate("butler-volmer")(0.35, 0.5)
    twin = battery(kinetics="butler-volmer", unknown={"alpha_p": tw.Unknown(0.5, bounds=(0.05, 0.95))})
    data = tw.Dataset.from_arrays(TS, np.asarray(truth.ys)[None], inputs=W[None])
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(10), progress=False)
    np.testing.assert_allclose(fit.twin.parameters()["alpha_p"], 0.35, rtol=1e-6)


def test_learned_parts_and_unknown_coefficients():
    twin = battery(kinetics="butler-volmer", positive=Interaction(tw.Network(1, 1, 4, 1)))
    assert len(learned_parts(twin)) == 1
    with pytest.raises(ValueError, match="no parameter 'alpha_p'"):
        battery(unknown={"alpha_p": 0.4})
