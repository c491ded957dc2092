"""Equivalent circuits against closed forms: step responses, charge balance, tables, kinetics, voltage at rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.systems import OpenCircuit, circuit
from twinfold.systems._battery.open_circuit import interpolate
from twinfold.systems._battery.parameters import FARADAY, GAS

FLAT = OpenCircuit([0.0, 1.0], [3.7, 3.7])
LINE = OpenCircuit([0.0, 1.0], [3.0, 4.0])


def relations(twin):
    assert twin.algebraic is not None
    return twin.algebraic


def load(current=2.0, seconds=600.0, dt=5.0, celsius=25.0):
    ts = np.arange(0.0, seconds + dt / 2, dt)
    return ts, np.stack([np.full_like(ts, current), np.full_like(ts, celsius)], axis=1)


def test_the_step_response_of_two_pairs():
    values = {"Q": 2.0, "R_0": 0.04, "R_1": 0.03, "tau_1": 30.0, "R_2": 0.02, "tau_2": 300.0}
    ts, w = load()
    out = circuit(FLAT, pairs=2, unknown=values).simulate([1.0, 0.0, 0.0], ts, w)
    exact = 3.7 - 2.0 * (0.04 + 0.03 * (1 - np.exp(-ts / 30)) + 0.02 * (1 - np.exp(-ts / 300)))
    np.testing.assert_allclose(out.ys[:, 0], exact, atol=1e-6)
    np.testing.assert_allclose(out.xs[:, 0], 1 - 2.0 * ts / 7200, atol=1e-12)


def test_without_pairs_the_voltage_is_that_of_the_source_and_the_resistor():
    ts, w = load()
    out = circuit(LINE, pairs=0, unknown={"Q": 2.0, "R_0": 0.05}).simulate([1.0], ts, w)
    np.testing.assert_allclose(out.ys[:, 0], 4.0 - 2.0 * ts / 7200 - 0.1, atol=1e-12)


def test_a_table_over_the_charge_is_linear_between_its_knots_and_constant_beyond():
    cell = circuit(FLAT, pairs=0, unknown={"Q": 1.0, "R_0": [0.2, 0.1, 0.05]}, knots=[0.1, 0.3, 0.9])
    p, w = cell.parameters(), jnp.array([1.0, 25.0])
    found = [float(cell.outputs(jnp.array(0.0), jnp.array([s]), w, p)[0]) for s in (0.0, 0.2, 0.6, 1.0)]
    np.testing.assert_allclose(found, 3.7 - np.array([0.2, 0.15, 0.075, 0.05]), atol=1e-12)


def test_resistances_follow_their_activation_energy():
    cell = circuit(FLAT, pairs=0, unknown={"R_0": 0.05, "E_0": 20e3})
    v = cell.outputs(jnp.array(0.0), jnp.array([1.0]), jnp.array([1.0, 0.0]), cell.parameters())
    exact = 3.7 - 0.05 * np.exp(20e3 / GAS * (1 / 273.15 - 1 / 298.15))
    np.testing.assert_allclose(v, [exact], atol=1e-12)


def test_charge_transfer_is_linear_for_small_currents_and_logarithmic_for_large_ones():
    cell = circuit(FLAT, pairs=1, unknown={"R_1": 0.02}, kinetics="butler-volmer")
    p = cell.parameters()

    def overpotential(current):
        return float(relations(cell)(jnp.array([1.0, 0.0]), jnp.array([current, 25.0]), p)["V_1"])

    np.testing.assert_allclose(overpotential(1e-3), 0.02e-3, rtol=1e-6)
    # The steady current of the Butler-Volmer equation, i = 2 i_0 sinh(F V / (2 R T)) with R_1 = R T / (F i_0).
    exchange = GAS * 298.15 / FARADAY / 0.02
    v = overpotential(20.0)
    np.testing.assert_allclose(2 * exchange * np.sinh(FARADAY * v / (2 * GAS * 298.15)), 20.0, rtol=1e-12)
    assert v < 0.4 / 2


@pytest.mark.parametrize("current", [0.0, 1.5])
def test_the_start_explains_the_first_sample(current):
    cell = circuit(LINE, pairs=1, unknown={"R_0": [0.1, 0.05]}, initial="rest")
    p, w, y = cell.parameters(), jnp.array([current, 10.0]), jnp.array([3.4])
    x0 = cell.initial_state(jnp.array(0.0), y, w, p)
    np.testing.assert_allclose(cell.outputs(jnp.array(0.0), x0, w, p), y, atol=1e-10)
    slope = jax.jacfwd(lambda y: cell.initial_state(jnp.array(0.0), y, w, p)[0])(y)
    h = 1e-4
    ends = [cell.initial_state(jnp.array(0.0), y + d, w, p)[0] for d in (h, -h)]
    np.testing.assert_allclose(slope[0], (ends[0] - ends[1]) / (2 * h), rtol=1e-6)


def test_interpolation_is_that_of_numpy_and_continues_the_outer_segments():
    knots, values = jnp.array([0.0, 0.2, 0.5, 1.0]), jnp.array([3.0, 3.4, 3.5, 4.2])
    at = jnp.array([-0.1, 0.0, 0.1, 0.35, 0.8, 1.0, 1.1])
    held = jax.vmap(lambda s: interpolate(s, knots, values))(at)
    np.testing.assert_allclose(held, np.interp(at, knots, values), atol=1e-14)
    extended = jax.vmap(lambda s: interpolate(s, knots, values, extend=True))(at)
    np.testing.assert_allclose(extended[1:-1], held[1:-1], atol=1e-14)
    np.testing.assert_allclose(extended[jnp.array([0, -1])], [3.0 - 0.2, 4.2 + 0.14], atol=1e-14)


def test_the_voltage_at_rest_is_read_between_slow_discharge_and_charge():
    def truth(s):
        return 3.2 + 0.9 * s + 0.1 * s**3

    hours, current, resistance = 20.0, 0.1, 0.2  # 2 Ah
    ts = np.linspace(0, hours * 3600, 2001)
    soc = 1 - ts / ts[-1]
    down = truth(soc) - current * resistance
    pause = np.array([ts[-1] + 1800.0])
    # At constant current the charge stops at 90 %.
    ups = pause[0] + 1800 + np.linspace(0, 0.9 * ts[-1], 1801)
    up = truth((ups - ups[0]) / ts[-1]) + current * resistance
    time = np.concatenate([ts, pause, ups])
    i = np.concatenate([np.full(2001, -current), [0.0], np.full(1801, current)])
    v = np.concatenate([down, [truth(0.0)], up])
    ocv = OpenCircuit.from_slow_cycle(time, i, v, discharge_sign=-1)
    assert ocv.capacity == pytest.approx(2.0, rel=1e-3)
    s = np.linspace(0.02, 0.88, 30)
    found = np.array([ocv(jnp.asarray(each)) for each in s])
    np.testing.assert_allclose(found, truth(s), atol=1e-3)
    alone = OpenCircuit.from_slow_cycle(ts, np.full(2001, current), down)
    np.testing.assert_allclose(alone(jnp.array(0.5)), truth(0.5) - 0.02, atol=1e-3)


def test_what_cannot_be_used_is_refused():
    with pytest.raises(ValueError, match="must increase"):
        OpenCircuit([0.0, 0.0], [3.0, 4.0])
    with pytest.raises(ValueError, match="fractions of the capacity"):
        OpenCircuit([0.0, 100.0], [3.0, 4.0])
    with pytest.raises(ValueError, match="must not fall"):
        OpenCircuit([0.0, 1.0], [4.0, 3.0])
    with pytest.raises(ValueError, match="discharge_sign=-1"):
        OpenCircuit.from_slow_cycle([0.0, 1.0], [-1.0, -1.0], [4.0, 3.0])
    with pytest.raises(ValueError, match="no parameter 'R_2'"):
        circuit(LINE, pairs=1, unknown={"R_2": 0.1})
    with pytest.raises(ValueError, match="2 values, one for each"):
        circuit(LINE, unknown={"R_0": [0.1, 0.2, 0.3]}, knots=[0.0, 1.0])
    with pytest.raises(ValueError, match="'Q' is one number"):
        circuit(LINE, unknown={"Q": [1.0, 2.0]})
    with pytest.raises(ValueError, match="pairs=3"):
        circuit(LINE, pairs=3)


@pytest.mark.slow
def test_a_fit_recovers_the_elements_of_a_simulated_cell():
    truth = {"Q": 2.0, "R_0": 0.045, "R_1": 0.03, "tau_1": 40.0}
    ts = np.arange(0.0, 1200.0, 10.0)
    current = np.where((ts // 100) % 2 == 0, 3.0, 0.5)
    w = np.stack([current, np.full_like(ts, 25.0)], axis=1)
    y = circuit(LINE, unknown=truth).simulate([1.0, 0.0], ts, w).ys
    guess = {name: tw.Unknown(1.4 * value, positive=True) for name, value in truth.items()}
    data = tw.Dataset.from_arrays(ts, [y], inputs=[w])
    fitted = tw.fit(circuit(LINE, unknown=guess), data, method=tw.LevenbergMarquardt(12), progress=False)
    for name, value in truth.items():
        np.testing.assert_allclose(fitted.twin.parameters()[name], value, rtol=1e-6)
