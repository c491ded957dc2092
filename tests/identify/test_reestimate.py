"""Parameters re-estimated run by run: the minimum of each, standard errors, missing values, and runs that fail."""

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.identify import reestimate

TS = np.linspace(0.0, 4.0, 41)
TWIN = tw.Twin(
    lambda x, p: -p["k"] * x,
    params={"k": 0.6, "c": 2.0, "other": 1.0},
    observe=lambda x, p: p["c"] * x,
    initial=lambda y, p: y / p["c"],
    integrator=tw.RK4(),
)


def decays(rates, *, noise=0.0, unit=1.0, size=3.0):
    rng = np.random.default_rng(0)
    ys = [unit * (size * np.exp(-rate * TS) + noise * rng.normal(size=len(TS)))[:, None] for rate in rates]
    for y in ys:
        y[0] = unit * size  # the initial state is exact
    return tw.Dataset.from_arrays(TS, ys, names=[f"r{k}" for k in range(len(rates))])


def test_each_run_has_its_own_minimum():
    rates = np.array([0.05, 0.3, 0.6, 2.0, 5.0])
    found = reestimate(TWIN, decays(rates), ["k"])
    np.testing.assert_allclose(found.values[:, 0], rates, rtol=2e-3)  # RK4 at k dt = 0.5
    np.testing.assert_allclose(found.values, 0.6 * np.exp(found.change))
    assert found.failures == {}
    assert found.names == ("k",)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_solution_is_that_of_a_grid_in_any_unit(unit):
    data = decays([0.9], noise=0.05, unit=unit)
    found = reestimate(TWIN, data, ["k"])

    def cost(k):
        return np.sum((np.asarray(TWIN.simulate(data.runs[0].y[0] / 2.0, TS, p={"k": k}).ys) - data.runs[0].y) ** 2)

    near = found.values[0, 0] * (1 + 1e-4 * np.arange(-2, 3))
    assert np.argmin([cost(k) for k in near]) == 2
    assert found.errors[0, 0] == pytest.approx(0.02, rel=0.6)
    np.testing.assert_allclose(found.covariance[0, 0, 0] ** 0.5 * found.values[0, 0], found.errors[0, 0])
    assert found.residual.shape == (1, 41, 1)


def test_missing_values_are_left_out_and_failures_leave_the_others_alone():
    data = decays([0.4, 0.9, 0.9, 0.9], noise=0.01)
    alone = reestimate(TWIN, data.select(["r0"]), ["k"])
    runs = list(data.runs)
    gaps, few = (run.y.copy() for run in runs[1:3])
    gaps[5:20] = np.nan
    few[1:] = np.nan
    runs[1] = tw.Run("gaps", TS, gaps)
    runs[2] = tw.Run("few", TS, few)
    runs[3] = tw.Run("short", TS[:9], runs[3].y[:9])
    found = reestimate(TWIN, tw.Dataset(tuple(runs), data.output_names), ["k"])
    np.testing.assert_allclose(found.values[0], alone.values[0], rtol=1e-6)
    np.testing.assert_allclose(found.values[[1, 3], 0], 0.9, rtol=0.05)
    assert np.isnan(found.residual[1, 5:20]).all()
    assert np.isnan(found.residual[3, 9:]).all()
    assert set(found.failures) == {"few"}
    assert "1 samples were measured" in found.failures["few"]
    assert np.isnan(found.values[2]).all()
    assert np.isnan(found.errors[2]).all()


def test_a_prediction_that_ends_early_is_recovered_and_one_that_never_starts_is_reported():
    # A level that falls at a constant rate and is observed through a root: with the first guess it is empty half way.
    twin = tw.Twin(
        lambda x, p: -p["k"] * jnp.ones_like(x),
        params={"k": 0.55},
        observe=lambda x: jnp.sqrt(x),
        initial=lambda y: y**2,
        integrator=tw.RK4(),
    )
    rates = np.array([0.1, 0.2])
    data = tw.Dataset.from_arrays(TS, [np.sqrt(1 - k * TS)[:, None] for k in rates], names=["a", "b"])
    assert np.isnan(np.asarray(twin.simulate([1.0], TS, throw=False).ys)).sum() == 22
    found = reestimate(twin, data, ["k"])
    np.testing.assert_allclose(found.values[:, 0], rates, rtol=1e-6)
    assert np.isfinite(found.residual).all()
    assert found.failures == {}
    nowhere = tw.Twin(lambda x, p: -p["k"] * x, params={"k": 1.0}, observe=lambda x: x * jnp.nan, initial=lambda y: y)
    found = reestimate(nowhere, data, ["k"])
    assert set(found.failures) == {"a", "b"}
    assert "prediction is finite" in found.failures["a"]
    assert np.isnan(found.residual).all()


def test_a_run_that_has_not_converged_is_reported():
    found = reestimate(TWIN, decays([0.61, 6.0]), ["k"], max_steps=4)
    assert "r1" in found.failures
    assert "max_steps" in found.failures["r1"]
    assert np.isfinite(found.values).all()


def test_the_scale_of_an_output_is_its_weight():
    # Two outputs that ask for different rates: the minimum of the weighted sum, on a grid.
    twin = tw.Twin(
        lambda x, p: -p["k"] * x,
        params={"k": 0.6},
        observe=lambda x: jnp.stack([x[0], 100 * x[0]]),
        initial=lambda y: y[:1],
        integrator=tw.RK4(),
    )
    data = tw.Dataset.from_arrays(TS, [np.stack([np.exp(-0.5 * TS), 100 * np.exp(-0.9 * TS)], axis=1)])
    found = {unit: reestimate(twin, data, ["k"], scale=[1.0, unit]) for unit in (1.0, 100.0, 1e4)}
    for unit, estimate in found.items():
        rates = np.linspace(0.45, 0.95, 1001)
        ys = np.exp(-rates[:, None] * TS)
        first, second = data.runs[0].y.T
        cost = ((ys - first) ** 2 + ((100 * ys - second) / unit) ** 2).sum(axis=1)
        assert estimate.values[0, 0] == pytest.approx(rates[cost.argmin()], abs=1e-3)
    assert found[1e4].values < 0.51 < 0.6 < found[100.0].values < 0.8 < found[1.0].values
    np.testing.assert_allclose(reestimate(twin, data, ["k"]).values, found[1.0].values)
    assert np.nanmax(np.abs(found[1e4].residual)) > 1  # in the units of the outputs, whatever the scale
    with pytest.raises(ValueError, match="one positive number for each of the 2 outputs"):
        reestimate(twin, data, ["k"], scale=[1.0])
