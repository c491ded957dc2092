"""The compiled estimate of many assets: known answers, and the formulas of `identify`, asset by asset."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import twinfold as tw
from twinfold.fleet._batch import RATIO, bucket_length, buckets, padding
from twinfold.fleet._estimate import DIVERGED, FEW_SAMPLES, NO_START, OK, estimate_bucket
from twinfold.fleet._standard_errors import standard_errors
from twinfold.fleet._variables import AssetVariables

RATES = np.array([0.4, 0.7, 1.1])
LENGTHS = (30, 33, 28)  # of one bucket


def decay() -> tw.Twin:
    params = {"k": tw.Unknown(0.8, positive=True), "floor": 0.1}
    return tw.Twin(lambda x, p: -p["k"] * (x - p["floor"]), params=params, integrator=tw.RK4(4))


def runs(noise: float = 0.0) -> list[tw.Run]:
    rng = np.random.default_rng(0)
    found = []
    for index, (k, samples) in enumerate(zip(RATES, LENGTHS, strict=True)):
        ts = np.linspace(0, 3, samples)
        y = 0.1 + np.exp(-k * ts) + noise * rng.normal(size=samples)
        y[0] = 1.1  # the first sample is the initial state
        found.append(tw.Run(f"a{index}", ts, y))
    return found


@pytest.fixture(scope="module")
def variables():
    return AssetVariables.of(decay(), None)


def estimated(variables, given, lanes=4):
    found = {}
    for members, batch in buckets(given):
        result = estimate_bucket(variables, batch, lanes)
        for place, index in enumerate(members):
            found[index] = jax.tree.map(lambda leaf, place=place: np.asarray(leaf)[place], result)
    return [found[index] for index in range(len(given))]


def test_less_than_a_fifth_of_an_array_is_padding():
    lengths = np.arange(8, 3000)
    edges = np.array([bucket_length(int(each)) for each in lengths])
    assert (edges >= lengths).all()
    assert (1 - lengths / edges).max() < 1 - 1 / RATIO
    assert len(set(edges)) < 30
    assert padding([100, 100]) == pytest.approx(1 - 100 / bucket_length(100))


def test_every_asset_is_in_one_bucket_with_all_its_samples():
    given = runs()
    seen = []
    for members, batch in buckets(given):
        assert batch.size == len(members)
        for place, index in enumerate(members):
            seen.append(index)
            samples = len(given[index].ts)
            np.testing.assert_array_equal(batch.ts[place, :samples], given[index].ts)
            np.testing.assert_array_equal(batch.y[place, :samples], given[index].y)
            assert np.isnan(batch.y[place, samples:]).all()
            assert (np.diff(batch.ts[place, samples - 1 :]) == 0).all()
    assert sorted(seen) == [0, 1, 2]


def test_true_scalars_are_found_whatever_the_padding(variables):
    for result, k in zip(estimated(variables, runs()), RATES, strict=True):
        assert result.code == OK
        np.testing.assert_allclose(result.values, [k], rtol=1e-6)  # RK4 with a step of 0.03
        assert result.score < 1e-6


def test_values_and_errors_are_those_of_reestimate(variables):
    given = runs(noise=0.01)
    other = tw.identify.reestimate(decay(), tw.Dataset(tuple(given), ("x",)), ["k"])
    found = estimated(variables, given)
    np.testing.assert_allclose([each.values for each in found], other.values, rtol=1e-5)
    np.testing.assert_allclose([each.errors for each in found], other.errors, rtol=1e-4)
    np.testing.assert_allclose([each.rms[0] for each in found], np.sqrt(np.nanmean(other.residual**2, axis=(1, 2))))


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_standard_errors_are_those_of_identify(correlation):
    rng = np.random.default_rng(1)
    r = rng.normal(size=(60, 2))
    for row in range(1, 60):
        r[row] += correlation * r[row - 1]
    s = np.linspace(0, 1, 60)[:, None]
    jacobian = np.stack([np.broadcast_to(each, (60, 2)) for each in (1 + 0 * s, s, 2 * s, np.sin(9 * s))], axis=-1)
    mask = rng.random((60, 2)) < 0.9
    expected = tw.identify.uncertainty(r, jacobian, ["a", "b", "c", "d"], mask=mask)
    errors, tau = jax.jit(standard_errors)(r, jacobian, mask)
    np.testing.assert_allclose(errors, list(expected.errors.values()), rtol=1e-9)
    assert np.isinf(errors).tolist() == [False, True, True, False]  # only b + 2 c is determined
    np.testing.assert_allclose(tau, expected.correlation_time, rtol=1e-9)


def test_an_asset_that_fails_says_why_and_does_not_touch_the_others(variables):
    given = runs()
    ts = np.linspace(0, 3, 30)
    broken = np.exp(-ts)
    broken[0] = np.nan
    huge = 1e200 * np.exp(ts)
    bad = [tw.Run("no start", ts, broken), tw.Run("few", ts, np.where(ts == 0, 1.0, np.nan)), tw.Run("huge", ts, huge)]
    results = estimated(variables, [given[0], *bad])
    assert [int(each.code) for each in results] == [OK, NO_START, FEW_SAMPLES, DIVERGED]
    assert np.isnan(results[1].values).all()
    np.testing.assert_allclose(results[0].values, [RATES[0]], rtol=1e-6)


@pytest.mark.slow
def test_arrays_in_memory_give_the_same_as_runs(variables):
    """Three assets in two batches, and none estimated where no step is taken."""
    given = runs(noise=0.01)
    ((_, batch),) = buckets(given)
    arrays = [np.asarray(each)[:3] for each in (batch.ts, batch.y)]
    found = tw.fleet.estimate_assets(decay(), *arrays, lanes=2)
    expected = estimated(variables, given)
    np.testing.assert_allclose(found.values, [each.values for each in expected], rtol=1e-9)
    assert found.reasons == ["", "", ""]
    plain = tw.fleet.estimate_assets(decay(), *arrays, lanes=4, max_steps=0)
    np.testing.assert_array_equal(plain.values, 0.8)
    assert np.isinf(plain.errors).all()
    assert (plain.score > found.score).all()


@pytest.mark.slow
def test_initial_states_are_estimated_where_the_twin_says_so():
    twin = tw.Twin(
        lambda x, p: -p["k"] * x,
        params={"k": tw.Unknown(0.8, positive=True)},
        observe=lambda x: 2 * x,
        initial=tw.Unknown([1.0], per_run=True),
        integrator=tw.RK4(4),
    )
    ts = np.linspace(0, 3, 26)
    given = [tw.Run(str(x0), ts, 2 * x0 * np.exp(-0.5 * ts)) for x0 in (0.7, 1.6)]
    variables = AssetVariables.of(twin, None)
    assert variables.labels == ("k", "initial[0]")
    values = [each.values for each in estimated(variables, given)]
    np.testing.assert_allclose(values, [[0.5, 0.7], [0.5, 1.6]], rtol=1e-6)


def test_mistakes_in_the_parameters_are_named():
    with pytest.raises(ValueError, match="no parameter 'kk'"):
        AssetVariables.of(decay(), ["kk"])
    with pytest.raises(ValueError, match="nothing to estimate"):
        AssetVariables.of(tw.Twin(lambda x: -x), None)
    twin = tw.Twin(lambda x, p: -p["k"][0] * x, params={"k": [1.0, 2.0]})
    with pytest.raises(ValueError, match="not a scalar"):
        AssetVariables.of(twin, ["k"])


SHARDED = """
import numpy as np, jax
jax.config.update("jax_enable_x64", True)
import twinfold as tw
from twinfold.fleet._batch import AssetBatch
from twinfold.fleet._estimate import _placed, estimate_bucket, starts_of
from twinfold.fleet._variables import AssetVariables

devices = jax.devices()
assert len(devices) == 4
twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.8, positive=True)})
ts = np.linspace(0, 3, 26)
k = np.linspace(0.3, 1.4, 8)
batch = AssetBatch(np.tile(ts, (8, 1)), np.exp(-k[:, None, None] * ts[:, None]), None, None)
variables = AssetVariables.of(twin, None)
one = estimate_bucket(variables, batch, 8)
four = estimate_bucket(variables, batch, 8, devices=devices)
_, spread, _ = _placed(variables, batch, starts_of(variables, batch), devices)
assert len(spread.y.sharding.device_set) == 4
np.testing.assert_allclose(four.values[:, 0], k, rtol=1e-5)
np.testing.assert_allclose(four.values, one.values, rtol=1e-10)
np.testing.assert_allclose(four.errors, one.errors, rtol=1e-4, atol=1e-12)
try:
    estimate_bucket(variables, batch, 8, devices=devices[:3])
except ValueError as error:
    assert "3 devices" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.slow
def test_several_devices_find_what_one_finds():
    import os

    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", SHARDED], check=True, env=environment)
