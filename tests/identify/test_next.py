"""Update, then predict: each variant against what it must be, drift and rests, and what is refused."""

import dataclasses

import numpy as np
import pytest

import twinfold as tw
from twinfold.identify import predict_next
from twinfold.identify._next import BLENDED, VARIANTS, _weighted_median

TS = np.linspace(0.0, 2.0, 21)
TWIN = tw.Twin(lambda x, w, p: -p["k"] * w * x, params={"k": 0.6}, integrator=tw.RK4())


def unit(rates, loads=None, *, group="pump", missed=0.0):
    """Runs with these rates, under these loads; `missed`: what no parameter of the twin explains."""
    loads = np.ones(len(rates)) if loads is None else loads
    ys = [np.exp(-k * i * TS) + missed * np.sin(3 * TS) for k, i in zip(rates, loads, strict=True)]
    return tw.Dataset.from_arrays(
        TS,
        [y[:, None] for y in ys],
        inputs=[np.full((len(TS), 1), i) for i in loads],
        input_names=["i"],
        names=[f"{group}/{k}" for k in range(len(rates))],
        groups=[group] * len(rates),
    )


def test_each_variant_is_what_it_says():
    data = unit([0.5, 0.55], missed=0.02)
    found = predict_next(TWIN, data, ["k"])
    estimate = tw.identify.reestimate(TWIN, data, ["k"])
    first, second = (run.y for run in data.runs)
    updated = np.asarray(TWIN.simulate(second[0], TS, data.runs[1].w, p={"k": estimate.values[0, 0]}).ys)
    assert found.runs == ("pump/1",)
    assert tuple(found.predicted) == VARIANTS
    np.testing.assert_allclose(found.values, estimate.values[:1], rtol=1e-9)
    np.testing.assert_allclose(found.predicted["updated"][0], updated, rtol=1e-9)
    np.testing.assert_allclose(found.predicted["last"][0], first)
    np.testing.assert_allclose(found.predicted["carried"][0], updated + estimate.residual[0], rtol=1e-9)
    np.testing.assert_allclose(found.weights, 0.25)
    mean = np.mean([found.predicted[name][0] for name in BLENDED], axis=0)
    np.testing.assert_allclose(found.predicted["combined"][0], mean)
    assert found.errors["last"][0, 0] == pytest.approx(np.abs(first - second).mean())


def test_nothing_of_the_run_itself_is_used_but_its_first_sample():
    data = unit([0.5, 0.52, 0.54, 0.56, 0.58])
    last = data.runs[-1].y.copy()
    last[1:] = np.nan
    unknown = dataclasses.replace(data, runs=(*data.runs[:-1], dataclasses.replace(data.runs[-1], y=last)))
    known, found = predict_next(TWIN, data, ["k"]), predict_next(TWIN, unknown, ["k"])
    assert set(found.estimates.failures) == {"pump/4"}
    np.testing.assert_allclose(found.predicted["combined"][-1], known.predicted["combined"][-1], rtol=1e-9)


def test_a_drift_is_followed_and_units_stay_apart():
    rates = 0.5 * 1.03 ** np.arange(20)
    data = unit(rates)
    other = unit(rates[::-1], group="fan")
    both = dataclasses.replace(
        data, runs=tuple(run for pair in zip(data.runs, other.runs, strict=True) for run in pair)
    )
    found = predict_next(TWIN, both, ["k"])
    np.testing.assert_allclose(found.values[[-2, -1], 0], [rates[-1], rates[0]], rtol=1e-4)
    np.testing.assert_allclose(found.values[0, 0], rates[0], rtol=1e-6)  # no drift is known yet
    error = {name: values[-1, 0] for name, values in found.errors.items()}
    assert error["carried+drift"] < 1e-2 * error["carried"]
    assert error["combined"] < 0.1 * error["last"]
    alone = predict_next(TWIN, data, ["k"])
    np.testing.assert_allclose(found.predicted["combined"][::2], alone.predicted["combined"], atol=1e-12)


def test_what_a_long_rest_gives_back_is_expected_after_the_next_one():
    # k grows by 2 % a run and falls by 10 % in each long rest.
    rest = np.where(np.arange(30) % 6 == 5, 50.0, 1.0)
    rates = 0.5 * np.cumprod(np.where(rest > 1, 0.9, 1.02))
    found = predict_next(TWIN, unit(rates), ["k"], rest=rest)
    expected = found.values[:, 0] / rates[:-1]  # relative to the run before
    late = np.arange(1, 30) >= 24
    np.testing.assert_allclose(expected[late & (rest[1:] > 1)], 0.9, rtol=1e-3)
    np.testing.assert_allclose(expected[late & (rest[1:] == 1)], 1.02, rtol=1e-3)
    without = predict_next(TWIN, unit(rates), ["k"]).values[:, 0] / rates[:-1]
    np.testing.assert_allclose(without[late & (rest[1:] > 1)], 1.02, rtol=1e-3)


def test_another_load_is_left_to_the_twin():
    loads = np.where(np.arange(24) % 3 == 2, 2.0, 1.0)  # every third run
    data = unit(np.full(24, 0.5), loads, missed=0.01)
    found = predict_next(TWIN, data, ["k"], along="i")
    error = {name: values[-6:].mean() for name, values in found.errors.items()}
    assert error["combined"] < 0.2 * error["last"]
    changed = np.diff(loads) != 0
    carried = np.array([name == "carried" for name in BLENDED], float)
    assert (found.weights[changed, :, 0] == carried).all()
    assert (found.weights[~changed, :, 0] < 1).all()
    np.testing.assert_array_equal(
        found.predicted["combined"][changed], found.predicted["carried"][changed]
    )  # what the twin cannot explain is found again at the same position
    plain = predict_next(TWIN, data, ["k"])
    assert (plain.weights[:, :, 0] < 1).all()  # along the time, an input has no load
    exact = predict_next(TWIN, unit(np.full(24, 0.5), loads), ["k"], along="i").errors
    assert exact["last"][-6:].mean() > 0.02
    assert exact["combined"][-6:].mean() < 1e-5
    # Along the integral of the load, what the twin left over is found where the load is another one, too.
    at = predict_next(TWIN, unit([0.5, 0.5], [1.0, 2.0]), ["k"], along="i").predicted["last"][0, :, 0]
    np.testing.assert_allclose(at[:11], np.exp(-0.5 * 2 * TS[:11]), atol=1e-3)
    np.testing.assert_allclose(at[11:], np.exp(-0.5 * 2.0), atol=1e-12)  # held beyond the end of the last run


def test_a_median_with_weights():
    values = np.array([[3.0, 1.0], [1.0, 2.0], [2.0, 9.0]])
    np.testing.assert_allclose(_weighted_median(values, np.array([1.0, 1.0, 1.0])), [2.0, 2.0])
    np.testing.assert_allclose(_weighted_median(values, np.array([5.0, 1.0, 1.0])), [3.0, 1.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"along": "q"}, "along='q': the inputs are i"),
        ({"rest": [1.0]}, "before each of the 2 runs"),
        ({"rest": [1.0, -2.0]}, "none negative"),
        ({"rest": [1.0, np.nan]}, "none negative"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        predict_next(TWIN, unit([0.5, 0.6]), ["k"], **options)


def test_a_unit_with_one_run_has_no_next():
    with pytest.raises(ValueError, match="no group has two runs"):
        predict_next(TWIN, unit([0.5]), ["k"])
