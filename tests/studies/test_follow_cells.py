"""The study of the state of charge, on a cell that is exactly the model: its charge is found, and its band is right."""

import numpy as np
import pytest
from twinfold_studies.follow.cells import UNKNOWN, Model, Runs, judged

import twinfold as tw

CHARGE, SENSOR = 3600.0, 0.002  # C, V
TS = np.arange(0.0, 3300.0, 60.0)
PARTS = slice(0, 1), slice(1, 4), slice(4, 12)  # runs for the fit, the noise, and those that are judged


def cell(capacity: float = 1.0) -> tw.Twin:
    ocv = tw.systems.OpenCircuit([0.0, 0.1, 1.0], [2.8, 3.4, 4.2])
    return tw.systems.circuit(ocv, pairs=1, unknown={"Q": capacity, "R_0": 0.05, "R_1": 0.03, "tau_1": 100.0})


def model(twin: tw.Twin) -> Model:
    """Runs of the cell, full at their start, at loads that change; the twin that follows it may be another."""
    rng, plant = np.random.default_rng(0), cell()
    currents = 0.9 + 0.2 * np.sin(TS / 200.0 + np.arange(12)[:, None])
    w = np.stack([currents, np.full_like(currents, 25.0)], axis=-1)
    clean = [np.asarray(plant.simulate([1.0, 0.0], TS, each).ys) for each in w]
    y = [each + SENSOR * rng.normal(size=each.shape) for each in clean]
    fitted, noise, rest = (tw.Dataset.from_arrays(TS, y[part], inputs=list(w[part])) for part in PARTS)
    full, missing = np.array([1.0, 0.0]), np.array([-1.0, 0.0])
    return Model(twin, Runs(fitted, noise, rest, CHARGE), full, missing, lambda x: x[..., 0], 1)


@pytest.mark.slow
def test_the_charge_is_found_from_a_start_that_is_wrong_by_a_fifth():
    found = judged(model(cell()), None)
    assert (found["runs"], found["failed"], found["samples"]) == (8, 0, 8 * len(TS))
    # A volt is 1.1 of the charge: an error of the sensor alone is one of 0.2 %.
    assert found["soc_after_tenth"] < 0.005
    assert found["soc_rms"] <= found["soc_after_tenth"]
    assert found["voltage_mae"] == pytest.approx(np.sqrt(2 / np.pi) * SENSOR, rel=0.1)
    # Of 440 values 90 % are expected inside, give or take what the noise of three other runs leaves open.
    assert 0.85 < found["coverage"] < 0.95


@pytest.mark.slow
def test_an_error_of_the_model_is_seen_in_charge_and_voltage():
    """A model with a tenth more capacity falls behind by 0.1 / 1.1 of what was drawn, beside the voltage drops."""
    found = judged(model(cell(1.1)), None)
    drawn = 0.9 * TS[-1] / CHARGE
    assert found["voltage_mae"] > 0.3 * (1 - 1 / 1.1) * drawn * 0.8 / 0.9
    assert found["soc_after_tenth"] > 0.005
    share, error = (np.array(each) for each in found["course"])
    assert share[0] == 0
    assert share[-1] == 1
    assert -UNKNOWN < error[0] < UNKNOWN
