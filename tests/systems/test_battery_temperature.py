"""Temperature as a state: time constant, energy balance, entropy, and Arrhenius factors, for both kinds of cell."""

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.systems import OpenCircuit, battery, charged, circuit
from twinfold.systems._battery.parameters import GAS, KELVIN
from twinfold.systems._battery.temperature import check_temperature

OCV = OpenCircuit([0.0, 0.1, 1.0], [2.8, 3.4, 4.2])
THERMAL = {"C_th": 40.0, "R_th": 15.0, "dU_dT": 1e-4}


@pytest.fixture(scope="module")
def electrochemical():
    return battery(temperature="output", unknown=THERMAL, arrhenius=True, integrator=tw.RK4())


@pytest.fixture(scope="module")
def equivalent():
    return circuit(OCV, pairs=1, temperature="output", unknown=THERMAL | {"Q": 2.0}, integrator=tw.RK4())


def relations(twin):
    assert twin.algebraic is not None
    return twin.algebraic


def load(current, seconds, dt=5.0, ambient=20.0):
    ts = np.arange(0.0, seconds + dt / 2, dt)
    return ts, np.stack([np.full_like(ts, current), np.full_like(ts, ambient)], axis=1)


def start(twin, ambient=20.0, celsius=20.0):
    p = twin.parameters()
    return twin.initial_state(jnp.array(0.0), jnp.array([4.2, celsius]), jnp.array([0.0, ambient]), p)


@pytest.mark.parametrize("kind", ["electrochemical", "equivalent"])
def test_a_warm_cell_at_rest_cools_with_the_thermal_time_constant(kind, request):
    twin = request.getfixturevalue(kind)
    ts, w = load(0.0, 3000.0)
    out = twin.simulate(start(twin, celsius=45.0), ts, w)
    np.testing.assert_allclose(out.ys[:, 1], 20 + 25 * np.exp(-ts / (40.0 * 15.0)), atol=1e-7)


@pytest.mark.parametrize("kind", ["electrochemical", "equivalent"])
def test_the_heat_is_stored_or_given_to_the_surroundings(kind, request):
    twin = request.getfixturevalue(kind)
    ts, w = load(2.0, 1200.0, dt=1.0)
    out = twin.simulate(start(twin), ts, w)
    v, celsius = np.asarray(out.ys).T
    if kind == "equivalent":
        slope = 1e-4
    else:
        x_p, x_n = np.asarray(out.zs["x_p"]), np.asarray(out.zs["x_n"])
        slope = 1e-4 + GAS / 96487 * (np.log((1 - x_p) / x_p) - np.log((1 - x_n) / x_n))
    heat = 2.0 * (np.asarray(out.zs["U"]) - v) - 2.0 * (celsius + KELVIN) * slope
    np.testing.assert_allclose(heat, out.zs["heat"], rtol=1e-12)
    given = (celsius - 20.0) / 15.0
    balance = np.trapezoid(heat - given, ts)
    np.testing.assert_allclose(40.0 * (celsius[-1] - celsius[0]), balance, rtol=1e-4)
    assert celsius[-1] > 21.5


def test_the_entropy_is_the_slope_of_the_voltage_at_rest(electrochemical):
    # At a vanishing current, the heat per ampere is -T dU/dT of the model's own potentials.
    plain = battery(temperature="state")
    p = plain.parameters()
    for x_n in (0.1, 0.3, 0.55):
        state = jnp.append(charged(jnp.array(x_n), p), 30.0)
        i = 1e-9
        heat = float(relations(plain)(state, jnp.array([i, 20.0]), p)["heat"])
        rest = [tw.systems.Relations().open_circuit(jnp.array(x_n), jnp.array(30.0 + d), p) for d in (0.5, -0.5)]
        np.testing.assert_allclose(heat / i, -(30 + KELVIN) * float(rest[0] - rest[1]), rtol=1e-5)


@pytest.mark.slow
def test_a_predicted_temperature_gives_the_voltage_of_the_measured_one(electrochemical):
    ts, w = load(2.0, 300.0, dt=1.0)
    x0 = start(electrochemical)
    out = electrochemical.simulate(x0, ts, w)
    measured = battery(arrhenius=True, integrator=tw.RK4(), temperature="input")
    given = tw.Twin(
        measured.field,
        algebraic=measured.algebraic,
        observe=measured.observe,
        params=dict(measured.params),
        integrator=tw.RK4(),
        input_interpolation="linear",
    )
    w_cell = np.stack([w[:, 0], np.asarray(out.ys)[:, 1]], axis=1)
    np.testing.assert_allclose(given.simulate(x0[:-1], ts, w_cell).ys[:, 0], out.ys[:, 0], atol=5e-7)


@pytest.mark.slow
def test_activation_energies_change_nothing_at_25_degrees_and_slow_a_cold_cell():
    ts, w = load(2.0, 600.0, ambient=25.0)
    plain, with_energies = battery(), battery(arrhenius=True)
    x0 = charged(jnp.array(0.6), plain.parameters())
    np.testing.assert_allclose(with_energies.simulate(x0, ts, w).ys, plain.simulate(x0, ts, w).ys, rtol=1e-13)
    cold = w.copy()
    cold[:, 1] = 0.0
    z = relations(with_energies)(x0, jnp.asarray(cold[0]), with_energies.parameters())
    factor = np.exp(17e3 / GAS * (1 / 273.15 - 1 / 298.15))
    np.testing.assert_allclose(z["V_o"], 2.0 * 0.085 * factor, rtol=1e-12)
    drops = [float(t.simulate(x0, ts, cold).ys[-1, 0]) for t in (plain, with_energies)]
    assert drops[1] < drops[0] - 0.1


def test_the_first_temperature_is_measured_or_that_of_the_surroundings(electrochemical):
    p, w = electrochemical.parameters(), jnp.array([0.0, 20.0])
    first = [electrochemical.initial_state(jnp.array(0.0), jnp.array([4.2, c]), w, p)[-1] for c in (31.0, jnp.nan)]
    np.testing.assert_allclose(first, [31.0, 20.0])
    hidden = battery(temperature="state", initial="rest")
    x0 = hidden.initial_state(jnp.array(0.0), jnp.array([3.9]), w, hidden.parameters())
    np.testing.assert_allclose(x0[-1], 20.0)
    np.testing.assert_allclose(hidden.outputs(jnp.array(0.0), x0, w, hidden.parameters()), [3.9], atol=1e-9)


def test_an_unknown_choice_is_refused():
    with pytest.raises(ValueError, match='give "input", "state" or "output"'):
        check_temperature("measured")


@pytest.mark.slow
def test_butler_volmer_with_equal_transfer_coefficients_is_the_closed_form():
    ts, w = load(2.0, 1000.0)
    twins = [battery(temperature="output", arrhenius=True, kinetics=k) for k in ("symmetric", "butler-volmer")]
    ys = [t.simulate(start(t), ts, w).ys for t in twins]
    np.testing.assert_allclose(ys[0], ys[1], atol=1e-8)
