"""Bands around predictions: a known variance, the columns of a table, and the share of measurements inside."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise
from twinfold.io import ModelInfo
from twinfold.workspace import open_workspace
from twinfold.workspace._bands import Bands, band_coverage, prepare_bands, with_bands
from twinfold.workspace._fit import Fitted
from twinfold.workspace._simulate import SimulatedRun, simulation_rows
from twinfold.workspace._start_std import start_std
from twinfold.workspace._system import System

TS = np.linspace(0.0, 1.0, 41)
RATE, SENSOR, START, ERROR = 1.5, 0.01, 0.05, 0.1


def decay(tmp_path):
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(RATE, positive=True)}, integrator=tw.RK4(2))
    info = ModelInfo(states=("x",), outputs=("x",))
    fitted = Fitted(System(tmp_path / "system.py", "", twin, info.states, {}), twin, info, None)
    estimator = ExtendedKalmanFilter(twin, Noise([0.0], [SENSOR]))
    return fitted, Bands(estimator, twin, np.array([START]), np.array([[ERROR**2]]), 0.9)


def slope_of_rate(twin):
    def rate(raw):
        return float(eqx.tree_at(lambda twin: twin.params["k"].raw, twin, raw).parameters()["k"])

    raw, step = twin.params["k"].raw, 1e-5
    return (rate(raw + step) - rate(raw - step)) / (2 * step)


@pytest.mark.parametrize("exact_start", [True, False])
def test_the_variances_of_sensor_start_and_parameter_add(tmp_path, exact_start):
    fitted, bands = decay(tmp_path)
    data = tw.Dataset.from_arrays(TS, [np.exp(-RATE * TS)[:, None]])
    lower, upper = bands.around(data.runs[0], [1.0], exact_start=exact_start)
    y = np.exp(-RATE * TS)
    variance = SENSOR**2 + (TS * y * slope_of_rate(fitted.twin) * ERROR) ** 2
    variance += 0 if exact_start else (START * y) ** 2
    np.testing.assert_allclose((upper - lower)[:, 0] / 2, norm.isf(0.05) * np.sqrt(variance), rtol=1e-5)
    np.testing.assert_allclose((upper + lower)[:, 0] / 2, y, rtol=1e-6)


def test_coverage_of_a_plant_that_is_what_the_bands_say(tmp_path):
    fitted, bands = decay(tmp_path)
    bands = dataclasses.replace(bands, covariance=None)
    noise = SENSOR * np.random.default_rng(0).normal(size=(20, len(TS), 1))
    data = tw.Dataset.from_arrays(TS, np.exp(-RATE * TS)[None, :, None] + noise, x0=[np.ones(1)] * 20)
    assert band_coverage(fitted, bands, data) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / noise.size))
    worse = tw.Dataset.from_arrays(TS, np.exp(-RATE * TS)[None, :, None] + 3 * noise, x0=[np.ones(1)] * 20)
    assert band_coverage(fitted, bands, worse) < 0.6  # 2 Phi(1.645 / 3) - 1 = 0.42


def test_the_table_has_the_ends_of_the_band(tmp_path):
    fitted, bands = decay(tmp_path)
    run = tw.Dataset.from_arrays(TS, [np.exp(-RATE * TS)[:, None]], output_names=["x"]).runs[0]
    simulated = SimulatedRun(run, fitted.twin.simulate([1.0], TS), False, (), len(TS))
    (tmp_path / "twinfold.toml").write_text('[data]\nfiles = "a.csv"\noutputs = "x"\n')
    rows = list(simulation_rows(with_bands([simulated], bands, run=None, given=True), open_workspace(tmp_path), fitted))
    half = norm.isf(0.05) * SENSOR
    assert (rows[0]["x_low"], rows[0]["x_high"]) == pytest.approx((1 - half, 1 + half))
    assert all(row["x_low"] < row["x"] < row["x_high"] for row in rows)


def test_a_computed_start_is_as_uncertain_as_the_sensors_make_it():
    twin = tw.Twin(
        lambda x: jnp.stack([x[1], -x[0]]), observe=lambda x: x[:1], initial=lambda y: jnp.stack([2 * y[0], 0.0])
    )
    data = tw.Dataset.from_arrays(TS, [np.cos(TS)[:, None]], x0=[np.array([2.0, 0.0])])
    np.testing.assert_allclose(start_std(twin, data, np.array([0.1]), np.array([9.0, 9.0])), [0.2, 0.0], rtol=1e-6)


def test_an_estimated_start_is_as_uncertain_as_its_samples_leave_it():
    """Least squares: 1 / variance = sum of (dy/dx0)^2 / sensor^2 over the samples seen, of which one is missing."""
    seen, sensor, widest = 6, 0.1, 0.3
    twin = tw.Twin(
        lambda x: jnp.stack([-RATE * x[0], 0 * x[1]]),
        observe=lambda x: x[:1],
        initial=tw.Unknown(np.ones(2), per_run=True),
        integrator=tw.RK4(2),
        warmup=seen,
    )
    y = np.exp(-RATE * TS)[:, None]
    y[2] = np.nan
    slope = np.exp(-RATE * TS[:seen])
    first = 1 / np.sqrt(np.sum(np.delete(slope, 2) ** 2) / sensor**2 + widest**-2)
    found = start_std(
        twin, tw.Dataset.from_arrays(TS, [y], x0=[np.ones(2)]), np.array([sensor]), np.array([widest, widest])
    )
    np.testing.assert_allclose(found, [first, widest], rtol=1e-5)  # nothing is seen of the second state


@pytest.mark.parametrize("probability", [0.0, 1.0, 90.0])
def test_a_probability_outside_of_its_range_is_refused(tmp_path, probability):
    fitted, _ = decay(tmp_path)
    (tmp_path / "twinfold.toml").write_text('[data]\nfiles = "a.csv"\noutputs = "x"\n')
    with pytest.raises(ValueError, match=r"--band .* between 0 and 1"):
        prepare_bands(open_workspace(tmp_path), fitted, probability, log=print)
