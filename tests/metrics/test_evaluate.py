"""Metrics against values computed by hand, by other algorithms, or in closed form."""

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold import MLP, RK4, Adam, Conserved, Constraint, Dataset, Euler, GreyBox, Newton, Twin, Unknown, fit
from twinfold.metrics import (
    MAX_DTW_SAMPLES,
    Evaluation,
    dtw,
    evaluate,
    fit_percent,
    measure,
    nrmse,
    predict,
    relative_error,
    rmse,
    with_true_field,
)
from twinfold.metrics._errors import mae, mse, valid_time


def rotation(x):
    return jnp.stack([x[1], -x[0]])


def energy(x):
    return 0.5 * (x @ x)


# Errors


def example():
    """Two runs of three samples and two outputs; the second run has a gap and a sample of padding."""
    y = np.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]])
    mask = np.array([[[1, 1], [1, 1], [1, 1]], [[1, 0], [1, 1], [0, 0]]], bool)
    predicted = np.array([[[1.5, 2.0], [3.0, 2.0], [5.0, 7.0]], [[2.0, 99.0], [2.0, -3.0], [77.0, np.nan]]])
    return predicted, y, mask


def test_errors_by_hand():
    predicted, y, mask = example()
    np.testing.assert_allclose(mae(predicted, y, mask), [3.5 / 6, 4 / 3], rtol=1e-15)
    np.testing.assert_allclose(mse(predicted, y, mask), [5.25 / 6, 10 / 3], rtol=1e-15)
    np.testing.assert_allclose(rmse(predicted, y, mask), np.sqrt([5.25 / 6, 10 / 3]), rtol=1e-15)
    # Seeds are a leading axis.
    np.testing.assert_allclose(mae(np.stack([y, predicted]), y, mask), [[0, 0], [3.5 / 6, 4 / 3]], rtol=1e-15)


def test_the_normalised_error_by_hand():
    predicted, y, mask = example()
    # The outputs of the first run are 1, 3, 5 and 2, 4, 6: both have ||y - mean|| = sqrt(8).
    both = (0.5 / np.sqrt(8) + np.sqrt(5) / np.sqrt(8)) / 2
    # Of the second run, the first output is 1, 2 (error 1, 0), the second one value only, which is no variation.
    np.testing.assert_allclose(nrmse(predicted, y, mask), [both, 1 / np.sqrt(0.5)], rtol=1e-15)
    np.testing.assert_allclose(fit_percent(predicted, y, mask), [100 * (1 - both), 100 - 100 / np.sqrt(0.5)])
    still, known = np.full((1, 50, 1), 0.1), np.ones((1, 50, 1), bool)
    assert np.isnan(nrmse(still + 1, still, known)).all()
    mean = np.broadcast_to(y.mean(1, keepdims=True), y.shape)
    np.testing.assert_allclose(fit_percent(mean, y, np.ones_like(mask))[0], 0.0, atol=1e-12)  # the best constant
    values = {"fit_percent": np.array([[50.0, np.nan, 70.0], [np.nan] * 3])}
    np.testing.assert_array_equal(
        Evaluation((0, 1), ("a", "b", "c"), values, {}).by_seed()["fit_percent"], [60, np.nan]
    )


def test_a_prediction_that_is_not_finite_has_an_infinite_error():
    predicted, y, mask = example()
    predicted[0, 1, 0] = np.nan
    for metric in (mae, mse, rmse):
        assert metric(predicted, y, mask)[0] == np.inf
        assert np.isfinite(metric(predicted, y, mask)[1])
    assert np.isinf(mse(np.full_like(y, 1e300), y, mask)).all()


def test_relative_error_by_hand():
    predicted, y, mask = example()
    out = relative_error(predicted, y, mask)
    size = np.sqrt(91 / 3)  # rms over samples of ||y||
    np.testing.assert_allclose(out[0], np.array([0.5, 2.0, 1.0]) / size, rtol=1e-14)
    # One of two outputs measured: the mean over those that were, in units of sqrt(5 / 3).
    np.testing.assert_allclose(out[1, :2], np.array([1.0, np.sqrt(9 / 2)]) / np.sqrt(5 / 3), rtol=1e-14)
    assert np.isnan(out[1, 2])


def test_valid_time():
    ts = np.array([[1.0, 1.5, 3.0, 4.0], [0.0, 2.0, 3.0, 3.0]])
    length = np.array([4, 3])
    fine = np.zeros((2, 4), bool)
    relative = np.array([[0.0, 0.1, 0.31, 0.0], [0.0, np.nan, 0.3, 9.9]])
    # The first exceeds 0.3 at t = 3, two units after its start; in the second only the padding does.
    np.testing.assert_array_equal(valid_time(relative, ts, length, fine), [2.0, 3.0])
    np.testing.assert_array_equal(valid_time(relative, ts, length, fine, 0.05), [0.5, 3.0])
    np.testing.assert_array_equal(valid_time(np.zeros((2, 4)), ts, length, fine), [3.0, 3.0])
    failed = fine.copy()
    failed[1, 1] = True
    np.testing.assert_array_equal(valid_time(relative, ts, length, failed), [2.0, 2.0])
    assert valid_time(np.stack([relative, relative]), ts, length, np.stack([fine, failed])).tolist() == [
        [2, 3],
        [2, 2],
    ]


# Dynamic time warping


def slow_dtw(a, b):
    cost = np.full((len(a) + 1, len(b) + 1), np.inf)
    cost[0, 0] = 0
    for i in range(len(a)):
        for j in range(len(b)):
            step = min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
            cost[i + 1, j + 1] = math.dist(a[i], b[j]) + step
    return cost[-1, -1]


@pytest.mark.parametrize("outputs", [1, 3])
def test_dtw_equals_its_definition(outputs):
    rng = np.random.default_rng(0)
    y = np.cumsum(rng.normal(size=(3, 40, outputs)), axis=1)
    predicted = np.cumsum(rng.normal(size=(2, 3, 40, outputs)), axis=2)
    mask = np.ones(y.shape, bool)
    mask[1, 7, 0] = False  # a sample that is not complete
    mask[2, 30:] = False  # padding
    rows = [mask[run].all(-1) for run in range(3)]
    wanted = [[slow_dtw(predicted[s, r, rows[r]], y[r, rows[r]]) for r in range(3)] for s in range(2)]
    np.testing.assert_allclose(dtw(predicted, y, mask), wanted, rtol=1e-13)


def test_dtw_of_a_delayed_copy_is_small():
    ts = np.linspace(0, 6, 200)
    y = np.stack([np.sin(ts), np.cos(ts)], axis=-1)[None]
    late = np.roll(y, 3, axis=1)
    late[:, :3] = y[:, :1]
    mask = np.ones(y.shape, bool)
    pointwise = np.linalg.norm(late - y, axis=-1).sum()
    assert dtw(late, y, mask)[0] < 0.2 * pointwise


def test_dtw_of_long_runs_uses_their_first_samples():
    rng = np.random.default_rng(1)
    y = rng.normal(size=(1, MAX_DTW_SAMPLES + 50, 2))
    other = y.copy()
    other[:, MAX_DTW_SAMPLES:] += 5
    mask = np.ones(y.shape, bool)
    assert dtw(other, y, mask)[0] == 0
    assert dtw(np.where(np.arange(MAX_DTW_SAMPLES + 50)[:, None] == 3, np.nan, y), y, mask)[0] == np.inf
    mask[:, :, 0] = False
    assert np.isnan(dtw(other, y, mask)[0])


# Twins on data


def circle_data(count=3, samples=21, dt=0.1):
    """Runs on circles around the origin, of different radii."""
    ts = dt * np.arange(samples)
    radii = 1 + 0.5 * np.arange(count)
    angles = ts[None] + 0.3 * np.arange(count)[:, None]
    ys = radii[:, None, None] * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return Dataset.from_arrays(ts, ys), radii


def test_violation_of_euler_on_a_circle_in_closed_form():
    data, radii = circle_data()
    twin = Twin(rotation, integrator=Euler(), constraint=Conserved(energy))
    out = evaluate(twin, data)
    # |x_k|^2 = |x_0|^2 (1 + h^2)^k; the scale is |dg/dx| |x0| = |x0|^2.
    growth = (1 + 0.1**2) ** np.arange(21) - 1
    for name, scale in (("violation", 0.5 * radii**2), ("relative_violation", 0.5 * np.ones(3))):
        np.testing.assert_allclose(out.metrics[f"{name}_mean"][0], growth.mean() * scale, rtol=1e-12)
        np.testing.assert_allclose(out.metrics[f"{name}_max"][0], growth.max() * scale, rtol=1e-12)
    assert out.failures == 0
    held = evaluate(Twin(rotation, integrator=Euler(), constraint=Conserved(energy), projection=Newton()), data)
    assert held.metrics["relative_violation_max"].max() < 1e-15


def test_without_a_constraint_there_is_no_violation():
    data, _ = circle_data()
    out = evaluate(Twin(rotation), data)
    assert np.isnan(out.metrics["violation_max"]).all()
    assert math.isnan(out.aggregate()["violation_mean"]["mean"])
    assert out.metrics["mae"].max() < 2e-6


def test_runs_of_different_length_with_gaps_and_inputs():
    """What a batch of padded runs gives is what each run gives alone, and what simulate gives."""
    rng = np.random.default_rng(3)
    lengths = (12, 30)
    ts = [np.cumsum(rng.uniform(0.05, 0.15, size=n)) for n in lengths]
    ws = [rng.normal(size=(n, 1)) for n in lengths]
    ys = [rng.normal(size=(n, 1)) for n in lengths]
    ys[1][5:9] = np.nan
    x0 = rng.normal(size=(2, 2))
    data = Dataset.from_arrays(ts, ys, inputs=ws, x0=x0, names=["short", "long"])
    twin = Twin(lambda x, w, p: jnp.stack([x[1], w[0] - p["k"] * x[0]]), params={"k": 2.0}, observe=lambda x: x[:1])
    out = evaluate(twin, data)
    for run in range(2):
        alone = evaluate(twin, data.select([data.names[run]]))
        simulated = np.asarray(twin.simulate(x0[run], ts[run], ws[run]).ys)
        assert out.metrics["mae"][0, run] == pytest.approx(np.nanmean(np.abs(simulated - ys[run])), rel=1e-13)
        for name in ("mae", "rmse", "dtw", "valid_time"):
            assert out.metrics[name][0, run] == pytest.approx(alone.metrics[name][0, 0], rel=1e-13)


def test_runs_have_their_own_parameters():
    ts = 0.1 * np.arange(30)
    stiffness = np.array([1.0, 4.0, 9.0])
    omega = np.sqrt(stiffness)[:, None]
    ys = np.stack([np.cos(omega * ts), -omega * np.sin(omega * ts)], axis=-1)
    data = Dataset.from_arrays(ts, ys, names=["a", "b", "c"])
    twin = Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
        params={"k": Unknown(1.0, positive=True, per_run=True)},
    ).for_runs(("a", "b", "c"))
    twin = eqx.tree_at(lambda twin: twin.params["k"].raw, twin, jnp.log(jnp.asarray(stiffness)))
    # In another order, and not all of them.
    out = evaluate(twin, data.select(["c", "a"]))
    assert out.runs == ("c", "a")
    assert out.metrics["mae"].max() < 1e-3
    stranger = Dataset.from_arrays(ts, ys[:1], names=["d"])
    found = predict(twin, stranger)  # its stiffness is estimated from its first 20 samples
    assert found.warmup[0] == 20
    np.testing.assert_allclose(found.predicted[0], ys[:1], atol=1e-3)


def test_an_incomplete_first_sample_is_no_initial_state():
    data, _ = circle_data()
    ys = np.stack([run.y for run in data.runs])
    ys[1, 0, 1] = np.nan
    with pytest.raises(ValueError, match="initial state of run '1' cannot be formed: the first sample has no value of"):
        evaluate(Twin(rotation), Dataset.from_arrays(data.runs[0].ts, ys))
    with pytest.raises(ValueError, match="observes 1"):
        evaluate(Twin(rotation, observe=lambda x: x[:1], initial=lambda y: y), data)


# Failures


def diverging():
    """x' = x^2 from x0 = 1 explodes at t = 1; from x0 = 0.1 it does not before t = 10."""
    ts = 0.05 * np.arange(60)
    ys = np.stack([np.ones((60, 1)), 0.1 / (1 - 0.1 * ts)[:, None]])
    return Dataset.from_arrays(ts, ys, names=["explodes", "stays"]), Twin(
        lambda x: x**2, constraint=Conserved(lambda x: jnp.sin(x))
    )


def test_a_failed_run_is_counted_and_stays_in_the_table():
    data, twin = diverging()
    out = evaluate(twin, data)
    assert out.metrics["failed"].tolist() == [[True, False]]
    assert out.failures == 1
    assert out.metrics["mae"][0, 0] == np.inf
    assert out.metrics["dtw"][0, 0] == np.inf
    assert out.metrics["violation_max"][0, 0] == np.inf  # the failed step is not left out
    assert out.metrics["mae"][0, 1] < 1e-6
    assert 0 < out.metrics["valid_time"][0, 0] < 1.5
    assert out.metrics["valid_time"][0, 1] == pytest.approx(2.95)
    assert "non-finite" in out.reasons[(0, "explodes")]
    rows = out.rows()
    assert [(row["run"], row["failed"], bool(row["reason"])) for row in rows] == [
        ("explodes", True, True),
        ("stays", False, False),
    ]
    assert out.aggregate()["failed"] == {"mean": 1.0, "std": 0.0, "median": 1.0}
    assert out.aggregate()["mae"]["median"] == np.inf
    # Before it explodes nothing has failed.
    assert measure(predict(twin, data).until(0.5)).failures == 0


def test_a_step_that_did_not_succeed_is_a_failure_even_if_all_is_finite():
    data, _ = circle_data(count=2)
    nowhere = Constraint(lambda x: x @ x + 1)
    out = evaluate(Twin(rotation, constraint=nowhere, projection=Newton(), integrator=Euler()), data)
    assert out.metrics["failed"].all()
    assert np.isfinite(out.metrics["mae"]).all()
    assert all(out.reasons.values())
    assert len(out.reasons) == 2


# Seeds


def test_aggregate_over_seeds_by_hand():
    values = {
        "mae": np.array([[1.0, 3.0], [5.0, 7.0], [2.0, 2.0]]),
        "violation_max": np.array([[1.0, 3.0]] * 3),
    }
    values["failed"] = np.array([[True, True], [False, True], [False, False]])
    out = Evaluation((0, 1, 2), ("a", "b"), values, {})
    assert out.by_seed()["mae"].tolist() == [2, 6, 2]
    assert out.by_seed()["violation_max"].tolist() == [3, 3, 3]
    aggregate = out.aggregate()
    assert aggregate["mae"]["mean"] == pytest.approx(10 / 3)
    assert aggregate["mae"]["std"] == pytest.approx(np.std([2, 6, 2]))
    assert aggregate["mae"]["median"] == 2
    assert aggregate["failed"]["mean"] == 1
    assert out.failures == 3


@pytest.fixture(scope="module")
def fitted():
    data, _ = circle_data()
    twin = Twin(
        GreyBox(lambda x: jnp.stack([x[1], 0 * x[0]]), MLP(states=[0], adds_to=[1], width=4, depth=1)),
        constraint=Conserved(energy),
        integrator=Euler(),
    )
    return fit(twin, data, seeds=3, method=Adam(3), progress=False), data


def test_batched_seeds_equal_single_seeds(fitted):
    fit, data = fitted
    together = evaluate(fit, data)
    assert together.metrics["mae"].shape == (3, 3)
    for index in range(3):
        alone = evaluate(fit.twin_of(index), data)
        for name, values in alone.metrics.items():
            np.testing.assert_allclose(together.metrics[name][index], values[0], rtol=1e-9, atol=1e-14)


def test_the_number_of_runs_predicted_at_a_time_does_not_matter(fitted):
    fit, data = fitted
    together = evaluate(fit, data)
    parts = evaluate(fit, data, max_values=1)
    assert parts.runs == together.runs
    for name, values in together.metrics.items():
        np.testing.assert_allclose(parts.metrics[name], values, rtol=1e-9, atol=1e-14)


# The exact field


@pytest.mark.parametrize("projection", [None, pytest.param(Newton(), marks=pytest.mark.slow)])
def test_the_error_of_the_true_field_falls_with_the_order_of_the_integrator(projection):
    data, _ = circle_data(dt=0.5)
    errors = []
    for substeps in (2, 4):
        twin = Twin(lambda x: 0 * x, integrator=RK4(substeps), constraint=Conserved(energy), projection=projection)
        exact = evaluate(with_true_field(twin, rotation), data)
        assert exact.failures == 0
        errors.append(exact.aggregate()["mae"]["mean"])
    assert 3.9 < np.log2(errors[0] / errors[1]) < 4.2


def test_only_the_field_is_replaced():
    residual = MLP(states=[0], adds_to=[1], width=4, depth=1)
    twin = tw.phrpinn(lambda x: jnp.stack([x[1], 0 * x[0]]), residual, Conserved(energy), integrator=RK4(3))
    exact = with_true_field(twin, rotation)
    assert exact.field is rotation
    parts = ("projection", "integrator", "constraint", "params")
    assert all(eqx.tree_equal(getattr(exact, part), getattr(twin, part)) for part in parts)


def test_the_violation_of_an_escaped_state_is_relative_to_its_own_size():
    """A hyperbola x0 x1 = 1 is held to rounding at |x| = 1e4 and 1e8: as good as at |x| = 1, and reported as such."""
    ts = np.linspace(0.0, 1.0, 4)
    y = np.array([[1.0, 1.0], [2.0, 0.5], [4.0, 0.25], [4.0, 0.25]])
    predicted = np.array([[1.0, 1.0], [2.0, 0.6], [1e4, 1.0001e-4], [1e8, 1.5e-8]])
    data = Dataset.from_arrays(ts, [y])
    found = predict(Twin(lambda x: 0 * x), data)
    found = dataclasses.replace(found, predicted=predicted[None, None])
    found = found.against(Conserved(lambda x: x[0] * x[1]))
    np.testing.assert_allclose(found.violation[0, 0, :, 0], [0, 0.2, 1e-4, 0.5], rtol=1e-9)
    # |dg(x0)| |x0| = 2; beyond the largest y, |dg(x)| |x| = |x|^2.
    np.testing.assert_allclose(found.relative_violation[0, 0, :, 0], [0, 0.1, 1e-12, 0.5e-16], rtol=1e-6)


def test_a_state_that_is_not_finite_has_an_infinite_violation():
    ts = np.linspace(0.0, 1.0, 4)
    data = Dataset.from_arrays(ts, [np.ones((4, 2))])
    found = predict(Twin(lambda x: 0 * x), data)
    predicted = np.array([[1.0, 1.0], [np.inf, 1.0], [np.nan, 1.0], [1e200, 1e-100]])
    found = dataclasses.replace(found, predicted=predicted[None, None]).against(Conserved(lambda x: x[0] * x[1]))
    # The square of the last has no float64; its violation is 1e100, and |dg(x)| |x| = inf must not hide it.
    assert np.isinf(found.relative_violation[0, 0, 1:3]).all()
    np.testing.assert_allclose(found.relative_violation[0, 0, 3, 0], 0.5e100)
