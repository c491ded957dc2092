"""The general monitor: its rate of false alarms, a planted drift, missing data, and a state that survives JSON."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.data._dataset import Dataset
from twinfold.metrics import predict
from twinfold.model._twin import Twin
from twinfold.monitor import Watch, watch
from twinfold.monitor._verdict import binomial_tail, describe_feature
from twinfold.monitor._windows import ResidualWindows
from twinfold.numerics._integrate.explicit import RK4

DT, NOISE, WINDOW = 0.1, 0.02, 20
TWIN = Twin(lambda x, w, p: -p["rate"] * x + w, params={"rate": 1.0}, integrator=RK4())
NAMES = {"output_names": ["level"], "input_names": ["flow"]}


def plant(samples, *, rate=1.0, seed=0, runs=1, drift=0.0, start=0):
    """x' = -r x + u under random steps, exactly, with noise; r grows by `drift` from sample `start` on."""
    rng = np.random.default_rng(seed)
    ys, ws = [], []
    for _ in range(runs):
        u = np.repeat(1 + rng.random(samples // 10 + 1), 10)[:samples]
        x = np.empty(samples)
        x[0] = u[0]
        for k in range(samples - 1):
            r = rate * (1 + drift * (k >= start))
            x[k + 1] = u[k] / r + (x[k] - u[k] / r) * np.exp(-r * DT)
        ys.append((x + NOISE * rng.normal(size=samples))[:, None])
        ws.append(u[:, None])
    return Dataset.from_arrays(DT * np.arange(samples), ys, inputs=ws, **NAMES)


@pytest.fixture(scope="module")
def healthy():
    return plant(1000, seed=1)


@pytest.fixture(scope="module")
def calibrated(healthy):
    return Watch.calibrate(TWIN, healthy, window=WINDOW, false_alarm_rate=0.01).state()


def going_on(calibrated, data):
    return Watch.from_state(TWIN, calibrated, data)


def test_a_planted_drift_is_found_where_it_begins(calibrated):
    new = plant(800, seed=5, drift=0.1, start=400)
    watching = going_on(calibrated, new)
    rows = watching.take(new)
    assert [row["window"] for row in rows] == list(range(40))
    assert not any(row["alarm"] for row in rows[:20])
    first = next(k for k, row in enumerate(rows) if row["alarm"])
    assert 20 <= first <= 26
    assert all(row["alarm"] for row in rows[30:])
    found = watching.verdict
    assert found.status == "changed"
    assert f"t = {rows[first]['from']:.6g}" in found.message
    # A faster decay than the twin's: what is measured is lower than what is predicted.
    assert rows[-1]["change"] < -2
    assert "residual of level" in found.message
    assert watching.figure().axes


def test_healthy_data_have_no_more_alarms_than_stated(calibrated):
    new = plant(800, seed=6)
    watching = going_on(calibrated, new)
    watching.take(new)
    found = watching.verdict
    assert binomial_tail(found.alarms, found.windows, 0.01) > 0.01
    assert found.status in ("healthy", "unclear")
    assert watching.healthy["tried"] == 50
    assert binomial_tail(watching.healthy["exceeded"], 50, 0.01) > 0.01


@pytest.mark.slow
def test_the_rate_of_false_alarms_over_many_windows():
    alarms = windows = 0
    for seed in range(4):
        watching = Watch.calibrate(
            TWIN, plant(2000, seed=10 + seed), window=WINDOW, false_alarm_rate=0.05, smoothing=1.0
        )
        rows = watching.take(plant(3000, seed=20 + seed))
        alarms, windows = alarms + sum(row["alarm"] for row in rows), windows + len(rows)
    assert windows == 600
    assert binomial_tail(alarms, windows, 0.05) > 1e-3


def test_saved_between_any_two_calls_it_goes_on_identically(calibrated):
    whole = plant(330, seed=7, drift=0.2, start=100)
    (run,) = whole.runs
    assert run.w is not None
    once = going_on(calibrated, whole)
    once.take(whole)
    state, rows = json.dumps(calibrated, allow_nan=False), []
    for stop in (47, 48, 200, 330):
        part = Dataset.from_arrays([run.ts[:stop]], [run.y[:stop]], inputs=[run.w[:stop]], **NAMES)
        watching = watch(TWIN, part, part, state=json.loads(state))
        rows += watching.rows
        state = json.dumps(watching.state(), allow_nan=False)
    assert rows == once.rows
    assert len(rows) == 16
    assert len(state) < 6000
    again = Watch.from_state(TWIN, json.loads(state), whole)
    assert again.take(whole) == []  # nothing new
    with pytest.raises(ValueError, match="format"):
        Watch.from_state(TWIN, {"format": 99}, whole)


def test_what_is_missing_is_reported_and_contained(calibrated):
    (run,) = plant(200, seed=8).runs
    y = run.y.copy()
    y[20:40] = np.nan  # a whole window
    y[60] = np.nan  # the first sample of one, which it would start at
    y[85:88] = np.nan
    holes = Dataset.from_arrays([run.ts], [y], inputs=[run.w], **NAMES)
    watching = going_on(calibrated, holes)
    rows = watching.take(holes)
    assert [row["missing"] for row in rows] == [0, 20, 0, 1, 3, 0, 0, 0, 0, 0]
    assert np.isnan(rows[1]["score"])
    assert "not judged" in rows[1]["note"]
    assert "not started" in rows[3]["note"]
    assert np.isfinite([row["score"] for row in rows[2:]]).all()
    assert "1 windows could not be judged" in watching.verdict.message
    assert "24 measured values were missing" in watching.verdict.message


def test_windows_are_what_a_simulation_says():
    data = plant(50, seed=9)
    (run,) = data.runs
    assert run.w is not None
    whole = ResidualWindows.start(TWIN, ["level"], window=None, degree=1).collect(data)
    assert len(whole) == 1
    predicted = TWIN.simulate(run.y[0], run.ts, run.w).ys
    residual = (run.y - np.asarray(predicted))[:, 0]
    assert whole[0].features["level.size"] == pytest.approx(0.5 * np.log(np.mean(residual**2)), rel=1e-9)
    # Restarted, the second window begins at its own first measurement: no residual there.
    windows = ResidualWindows.start(TWIN, ["level"], window=25, restart=True)
    windows.begin(run)
    for k in range(26):
        windows.sample(run.ts[k], run.w[k], run.y[k])
    assert windows.state()["residuals"][0][1] == [0.0]


def test_a_twin_whose_state_is_hidden_runs_on_and_one_that_fails_is_reported():
    hidden = Twin(
        lambda x, w: jnp.stack([x[1], w[0] - x[0]]), observe=lambda x: x[:1], initial=lambda y: jnp.stack([y[0], 0.0])
    )
    with pytest.raises(ValueError, match="restart=True"):
        ResidualWindows.start(hidden, ["level"], window=20, restart=True)
    assert not ResidualWindows.start(hidden, ["level"], window=20).restart
    wild = Twin(lambda x, w: x**3)
    data = Dataset.from_arrays(DT * np.arange(60), [np.full((60, 1), 3.0)], inputs=[np.ones((60, 1))], **NAMES)
    found = ResidualWindows.start(wild, ["level"], window=20, restart=False).collect(data)
    assert all(np.isnan(each.features["level.shape_0"]) for each in found[1:])
    assert "non-finite state" in found[0].note


def test_mistakes_are_named(healthy):
    with pytest.raises(ValueError, match="full windows; at least 3"):
        Watch.calibrate(TWIN, healthy, window=900)
    with pytest.raises(ValueError, match="at least 8 samples"):
        Watch.calibrate(TWIN, healthy, window=5)
    with pytest.raises(ValueError, match="window='day'"):
        Watch.calibrate(TWIN, healthy, window="day")
    assert describe_feature("a.b.shape_0") == "the mean of the residual of a.b"
    other = Dataset.from_arrays(DT * np.arange(3), [np.ones((3, 1))], inputs=[np.ones((3, 1))])
    with pytest.raises(ValueError, match="outputs y0; the healthy ones had level"):
        going_on(Watch.calibrate(TWIN, plant(60, seed=1), window=20).state(), other).take(other)


def test_the_binomial_tail():
    assert binomial_tail(0, 10, 0.1) == pytest.approx(1)
    assert binomial_tail(1, 10, 0.1) == pytest.approx(1 - 0.9**10)
    assert binomial_tail(10, 10, 0.1) == pytest.approx(1e-10, rel=1e-3)


WARMUP = 15
SWING = Twin(
    lambda x: jnp.stack([x[1], -x[0]]),
    observe=lambda x: x[:1],
    initial=lambda y: jnp.append(y, 0.0),
    warmup=WARMUP,
    integrator=RK4(2),
)


def swings(runs, samples=75, seed=0):
    """Runs of an oscillator that start anywhere, with noise; its speed is hidden."""
    rng, ts = np.random.default_rng(seed), DT * np.arange(samples)
    ys = [np.cos(ts + phase) + NOISE * rng.normal(size=samples) for phase in rng.uniform(0, 6, runs)]
    return Dataset.from_arrays(ts, ys, output_names=["x"])


def test_samples_that_a_start_was_estimated_from_are_no_evidence():
    """Every window lies behind them, and a fault that is in them alone is not seen."""
    watching = Watch.calibrate(SWING, swings(4), window=WINDOW)
    assert watching.healthy["windows"] == 4 * 3  # of 75 samples 60 are left
    data = swings(2, seed=1)
    rows = watching.take(data)
    assert [row["samples"] for row in rows] == [WINDOW] * 6
    np.testing.assert_allclose([row["from"] for row in rows[:3]], DT * (WARMUP + WINDOW * np.arange(3)))
    # The residuals are those of the predictions that count in an evaluation.
    windows = ResidualWindows.start(SWING, ["x"], window=None)
    (whole,) = windows.collect(data.select(["0"]))
    predictions = predict(SWING, data.select(["0"]))
    assert whole.samples == int(predictions.mask.sum())
    error = (predictions.y - predictions.predicted[0])[predictions.mask]
    np.testing.assert_allclose(whole.features["x.size"], np.log(np.sqrt(np.mean(error**2))), rtol=1e-4)


def test_a_watch_that_stops_within_the_start_goes_on_there():
    data = swings(1, seed=2)
    run = data.runs[0]
    whole = Watch.calibrate(SWING, swings(4), window=WINDOW)
    state = json.loads(json.dumps(whole.state()))
    expected = whole.take(data)
    first = Watch.from_state(SWING, state, data)
    first.windows.begin(run)
    for index in range(5):
        assert first.windows.sample(float(run.ts[index]), None, run.y[index]) is None
    first.taken[run.name] = 5
    state = json.loads(json.dumps(first.state()))
    assert state["windows"]["ahead"] == WARMUP - 5
    rows = Watch.from_state(SWING, state, data).take(data)
    assert [row["from"] for row in rows] == [row["from"] for row in expected]
    np.testing.assert_allclose([row["score"] for row in rows], [row["score"] for row in expected], rtol=1e-6)


def test_healthy_runs_that_are_all_start_are_too_few():
    with pytest.raises(ValueError, match="without those that initial states are estimated from"):
        Watch.calibrate(SWING, swings(4, samples=18), window=8)
    with pytest.raises(ValueError, match="0 of 0 healthy windows could be judged"):
        Watch.calibrate(SWING, swings(4, samples=WARMUP), window="run")
