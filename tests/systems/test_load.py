"""Loads in words: what they mean, what they refuse, and cells with a closed form under them."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import twinfold as tw
from twinfold.systems import Load, simulate_load

RESISTANCE = 0.05
# One ampere-hour between 3 and 4 V.
CIRCUIT = tw.Twin(lambda w: -w / 3600, observe=lambda x, w: 3 + x - RESISTANCE * w)


def test_words():
    load = Load.parse("Discharge at 1C until 2.8 V; Rest for 10 minutes\nrepeat 2 times; Hold at 4.2 V until 50 mA")
    assert [step.text for step in load.steps[::2]] == ["Discharge at 1C until 2.8 V"] * 2 + [
        "Hold at 4.2 V until 50 mA"
    ]
    first, rest, *_, last = load.steps
    assert (str(first.held), str(first.until), first.duration, first.charging) == ("1 C", "2.8 V", None, False)
    assert (str(rest.held), rest.duration) == ("0 A", 600)
    assert (str(last.held), str(last.until), last.charging) == ("4.2 V", "0.05 A", True)
    (step,) = Load.parse("charge at C/5 for 0.5 hours or until 4200 mV (30 s period)").steps
    assert (str(step.held), step.duration, str(step.until), step.period) == ("-0.2 C", 1800, "4.2 V", 30)
    assert str(Load.parse(["Discharge at 5 W for 3 min"]).steps[0].held) == "5 W"
    assert len((Load.cc_cv() * 3 + Load.hppc(levels=2)).steps) == 16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("Discharge at 1C untl 2.8 V", "'untl' in 'Discharge at 1C untl 2.8 V'"),
        ("Fly at 1C until 2.8 V", "'Fly' .* expected discharge, charge, hold or rest"),
        ("Discharge at 2 V until 2.8 V", "'V' .* expected a value in A, C or W"),
        ("Hold at 4.2 V until 3 V", "'V' .* expected a value in A or C"),
        ("Rest for 10 minuts", "'minuts' .* expected seconds, minutes or hours"),
        ("Rest until 3 V", "'until'"),
        ("Discharge at fast until 3 V", "'fast'"),
        ("Discharge at -1 A until 3 V", "'-'"),
        ("Discharge at", "breaks off"),
        ("Discharge at 1C", "never ends"),
        ("repeat 3 times", "nothing before"),
    ],
)
def test_the_word_that_is_not_understood(words, message):
    with pytest.raises(ValueError, match=message):
        Load.parse(words)


def test_constant_currents_against_the_closed_form():
    """1 A takes 1 V in an hour; the limit is reached to a microsecond, between samples 10 s apart."""
    load = Load.parse("Discharge at 1 A until 3.2 V; Rest for 1 minute; Charge at 0.5C until 3.9987 V")
    result = simulate_load(CIRCUIT, load + Load.parse("Charge at 1 A until 3.5 V"), [1.0], capacity=1.0)
    first, rest, charge, skipped = result.table
    assert first["duration"] == pytest.approx(0.75 * 3600, abs=1e-6)
    assert rest["duration"] == pytest.approx(60, abs=1e-9)
    assert charge["duration"] == pytest.approx((0.9987 - 0.025 - 0.25) / 0.5 * 3600, abs=1e-6)
    assert [row["ended by"] for row in result.table] == ["limit", "duration", "limit", "reached before"]
    assert (first["charge"], rest["voltage"]) == (pytest.approx(0.75), pytest.approx(3.25))
    assert (skipped["duration"], skipped["current"]) == (0, -1)
    (ends,) = np.flatnonzero(np.diff(result.step) == 1)[:1]
    assert result.ts[ends] == result.ts[ends + 1]
    np.testing.assert_allclose(result.ys[ends : ends + 2, 0], [3.2, 3.25], rtol=1e-12)
    np.testing.assert_allclose(result.ys[:, 0], 3 + result.xs[:, 0] - RESISTANCE * result.current, rtol=1e-12)


def test_a_drive_cycle_from_a_file(tmp_path):
    """Currents are held from their time to the next; the limit is inside the last interval."""
    path = tmp_path / "cycle.csv"
    path.write_text("t,I\n0,1\n10,2\n30,-1\n40,4\n3640,0\n")
    result = simulate_load(CIRCUIT, Load.from_csv(path, time="t", current="I", until="3.5 V"), [1.0])
    (row,) = result.table
    charge = (10 + 2 * 20 - 10) / 3600
    assert row["duration"] == pytest.approx(40 + (0.5 - 0.2 - charge) / 4 * 3600, abs=1e-6)
    assert row["charge"] == pytest.approx(0.3, abs=1e-9)
    assert result.current.tolist() == [1, 2, -1, 4, 4]
    with pytest.raises(ValueError, match="columns t, I"):
        Load.from_csv(path, time="time", current="I")


def test_what_cannot_be_simulated():
    with pytest.raises(ValueError, match="capacity="):
        simulate_load(CIRCUIT, "Discharge at 1C until 3.2 V", [1.0])
    with pytest.raises(ValueError, match="longest=100"):
        simulate_load(CIRCUIT, "Discharge at 1 A until 3.2 V", [1.0], longest=100)
    with pytest.raises(ValueError, match="every step"):
        simulate_load(CIRCUIT, "Charge at 1 A until 3.2 V", [1.0])
    with pytest.raises(ValueError, match="events of its own"):
        simulate_load(tw.Twin(lambda x: -x, events=[tw.Event(lambda x: x[0])]), "Rest for 1 s", [1.0])
    with pytest.raises(ValueError, match="as many of each"):
        Load.table([0, 1], [1])


@pytest.mark.slow
def test_a_constant_voltage_and_a_constant_power():
    """V = 3.8: the current decays with R C = 180 s; V I = 2 W: dt = -C dE / I(E)."""
    load = Load.parse(["Charge at 0.5 A until 3.8 V", "Hold at 3.8 V until 50 mA", "Discharge at 2 W until 3.1 V"])
    result = simulate_load(CIRCUIT, load, [0.7], period=1.0)
    _, hold, power = result.table
    assert hold["duration"] == pytest.approx(180 * np.log(10), abs=1e-6)
    held = result.step == 1
    np.testing.assert_allclose(result.ys[held, 0], 3.8, rtol=1e-12)
    start = hold["start"]
    np.testing.assert_allclose(result.current[held], -0.5 * np.exp((start - result.ts[held]) / 180), rtol=1e-8)

    def current(e):
        return (e - np.sqrt(e**2 - 4 * RESISTANCE * 2)) / (2 * RESISTANCE)

    first, last = 3.8 - 0.0025, 3.1 + RESISTANCE * 2 / 3.1
    assert power["duration"] == pytest.approx(quad(lambda e: 3600 / current(e), last, first)[0], abs=1e-5)


@pytest.mark.slow
def test_a_voltage_that_depends_on_states_alone():
    """V = 3 + q - u, u' = (R I - u) / tau: held, u and the current decay with 3600 R + tau."""
    tau = 20.0

    def field(x, w):
        return jnp.stack([-w[0] / 3600, (RESISTANCE * w[0] - x[1]) / tau])

    filtered = tw.Twin(field, observe=lambda x: 3 + x[:1] - x[1:])
    load = ["Charge at 0.5 A until 3.8 V", "Hold at 3.8 V until 50 mA"]
    result = simulate_load(filtered, load, [0.7, 0.0], period=1.0)
    held = result.step == 1
    np.testing.assert_allclose(result.ys[held, 0], 3.8, rtol=1e-9)
    first = result.xs[held][0, 1] / tau / (RESISTANCE / tau + 1 / 3600)
    assert result.table[1]["duration"] == pytest.approx((3600 * RESISTANCE + tau) * np.log(-first / 0.05), abs=1e-5)
    assert result.current[held][0] == pytest.approx(first)


@pytest.mark.slow
def test_a_battery_under_cc_cv():
    """The electrochemical cell, whose voltage is a function of its states: 4 V is held, and the charge adds up."""
    cell = tw.systems.battery()
    x0 = tw.systems.charged(jnp.array(0.3), cell.parameters())
    load = Load.parse("Charge at 1 A until 4.0 V; Hold at 4.0 V until 0.3 A")
    result = simulate_load(cell, load, x0, inputs=[0, 25])
    held = result.step == 1
    np.testing.assert_allclose(result.ys[held, 0], 4.0, atol=1e-6)
    assert np.all(np.diff(result.current[held]) > 0)
    assert result.table[1]["current"] == pytest.approx(-0.3, abs=1e-9)
    moved = (result.xs[-1, :2] - result.xs[0, :2]).sum() / 3600
    assert moved == pytest.approx(sum(row["charge"] for row in result.table), rel=1e-3)
