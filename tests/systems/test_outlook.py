"""Power limits, resistance and energy of cells with closed forms, their derivatives and intervals."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.systems import OpenCircuit, battery, charged, circuit, outlook

LINE = OpenCircuit([0.0, 1.0], [3.0, 4.0])
ASKED: dict[str, Any] = {"celsius": 25.0, "current": 1.0, "voltages": (3.2, 4.1), "max_current": 50.0}
VALUES: dict[str, Any] = {"Q": 2.0, "R_0": 0.03, "R_1": 0.02, "tau_1": 20.0}


def asked(**changes: Any) -> dict[str, Any]:
    return {**ASKED, **changes}


@pytest.fixture(scope="module")
def cell():
    return circuit(LINE, unknown=VALUES)


def drop(seconds=10.0, slope=1 / 7200):
    """The resistance of a pulse: the elements, and the charge that is drawn."""
    return 0.03 + 0.02 * (1 - np.exp(-seconds / 20)) + slope * seconds


def test_a_linear_cell_has_closed_forms(cell):
    found = outlook(cell, jnp.array([0.6, 0.0]), **asked())
    assert found.soc == pytest.approx(0.6)
    assert found.capacity == pytest.approx(2.0)
    assert found.resistance == pytest.approx(drop(), rel=1e-5)
    drawn, taken = (3.6 - 3.2) / drop(), (4.1 - 3.6) / drop()
    assert found.discharge_power == pytest.approx(3.2 * drawn, rel=1e-5)
    assert found.charge_power == pytest.approx(4.1 * taken, rel=1e-5)
    # V = 3.6 - 0.03 - 0.02 (1 - exp(-t / 20)) - t / 7200 until 3.2 V, at 1 A.
    end = 7200 * (3.6 - 0.05 - 3.2)
    energy = (3.6 - 0.05) * end + 0.02 * 20 - end**2 / 14400
    assert found.energy == pytest.approx(energy / 3600, rel=1e-5)


def test_a_strong_cell_is_limited_by_its_current_and_an_empty_one_has_nothing(cell):
    strong = outlook(cell, jnp.array([0.6, 0.0]), **asked(max_current=2.0))
    assert strong.discharge_power == pytest.approx(2.0 * (3.6 - 2 * drop()), rel=1e-6)
    empty = outlook(cell, jnp.array([0.1, 0.0]), **asked())
    assert empty.discharge_power == 0.0
    assert empty.energy == 0.0
    assert empty.charge_power > 0


@pytest.mark.slow
def test_the_derivative_of_a_limit_is_that_of_its_closed_form(cell):
    def power(resistance):
        own = circuit(LINE, unknown=VALUES | {"R_0": tw.Unknown(0.03, positive=True)})
        raw = jnp.log(resistance / 0.03)
        own = jax.tree.map(
            lambda node: node.with_raw(raw, None) if isinstance(node, tw.Unknown) else node,
            own,
            is_leaf=lambda node: isinstance(node, tw.Unknown),
        )
        return outlook(own, jnp.array([0.6, 0.0]), **asked()).discharge_power

    slope = jax.jacfwd(power)(jnp.array(0.03))
    np.testing.assert_allclose(slope, -3.2 * 0.4 / drop() ** 2, rtol=1e-4)


@pytest.mark.slow
def test_an_electrochemical_cell_delivers_its_power():
    twin = battery()
    x = charged(jnp.array(0.4), twin.parameters())
    found = outlook(twin, x, **asked(voltages=(3.0, 4.2)))
    assert found.soc == pytest.approx(0.4 / 0.6)
    assert found.capacity == pytest.approx(13200 * 0.6 / 3600)
    i = float(found.discharge_power) / 3.0
    ts = np.linspace(0, 10, 21)
    w = np.stack([np.full(21, i), np.full(21, 25.0)], axis=1)
    assert float(twin.simulate(x, ts, w).ys[-1, 0]) == pytest.approx(3.0, abs=1e-6)


@pytest.mark.slow
def test_every_output_has_an_interval_after_a_fit():
    guess = {name: tw.Unknown(1.2 * value, positive=True) for name, value in VALUES.items()}
    ts = np.arange(0.0, 1800.0, 10.0)
    current = np.where((ts // 100) % 2 == 0, 3.0, 0.5)
    w = np.stack([current, np.full_like(ts, 25.0)], axis=1)
    y = np.asarray(circuit(LINE, unknown=VALUES).simulate([1.0, 0.0], ts, w).ys)
    noise = 2e-3 * np.random.default_rng(0).normal(size=y.shape)
    data = tw.Dataset.from_arrays(ts, [y + noise], inputs=[w])
    fitted = tw.fit(circuit(LINE, unknown=guess), data, method=tw.LevenbergMarquardt(15), progress=False)

    def now(twin):
        p = twin.parameters()
        x0 = twin.initial_state(jnp.array(0.0), jnp.asarray(y[0]), jnp.asarray(w[0]), p)
        last = tw.model.simulate_unchecked(twin, x0, jnp.asarray(ts), jnp.asarray(w), p).xs[-1]
        return outlook(twin, last, **asked()).values()

    spread = tw.identify.posterior(fitted, data, loss=tw.Loss()).spread_of(now)
    truth = np.asarray(now(circuit(LINE, unknown=VALUES)))
    error = np.abs(np.asarray(now(fitted.twin)) - truth)
    assert (spread > 0).all()
    assert (error < 3 * spread).all()
    assert (spread[:3] < 0.05 * truth[:3]).all()


def test_impossible_limits_are_refused(cell):
    x = jnp.array([0.6, 0.0])
    with pytest.raises(ValueError, match="below the upper one"):
        outlook(cell, x, **asked(voltages=(4.2, 3.0)))
    with pytest.raises(ValueError, match="max_current=0"):
        outlook(cell, x, **asked(max_current=0.0))
    with pytest.raises(ValueError, match="`battery` or `circuit`"):
        outlook(tw.Twin(lambda x: -x), x, **asked())


@pytest.mark.slow
def test_capacity_is_the_charge_of_a_discharge_to_its_limit():
    cell = tw.systems.battery(initial="rest")
    load: dict[str, Any] = {"current": 2.0, "celsius": 24.0, "voltages": (2.7, 4.2)}
    found = float(tw.systems.capacity(cell, **load))
    full = cell.initial_state(0.0, jnp.array([4.2]), jnp.array([0.0, 24.0]), cell.parameters())
    simulated = tw.systems.simulate_load(cell, "Discharge at 2 A until 2.7 V", full, inputs=[0.0, 24.0])
    assert found == pytest.approx(simulated.table[0]["charge"], rel=2e-4)
    # Less at a higher load and with a higher resistance, in proportion to q_max, with derivatives.
    assert float(tw.systems.capacity(cell, **{**load, "current": 4.0})) < found
    p = cell.parameters()

    def at(name, factor):
        return tw.systems.capacity(cell, **load, p=p | {name: p[name] * factor})

    slope = {name: float(jax.grad(lambda f, name=name: at(name, f))(1.0)) for name in ("q_max", "R_o")}
    for name, value in slope.items():
        step = 1e-3
        assert value == pytest.approx(float(at(name, 1 + step) - at(name, 1 - step)) / (2 * step), rel=2e-2)
    assert slope["q_max"] > 0.9 * found
    assert slope["R_o"] < 0


@pytest.mark.parametrize("wrong", [{"current": 0.0}, {"voltages": (4.2, 2.7)}])
def test_a_capacity_that_cannot_be_is_refused(wrong):
    load: dict[str, Any] = {"current": 2.0, "celsius": 24.0, "voltages": (2.7, 4.2)} | wrong
    with pytest.raises(ValueError, match="capacity\\("):
        tw.systems.capacity(tw.systems.battery(), **load)
