"""Uncertainty of predictions under other loads, and residuals that are held back."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.identify import guarded_fit, posterior

TS = 0.1 * np.arange(61)
METHOD = tw.LevenbergMarquardt(40)
LOSS = tw.Loss(l2=1e-4, prior=1e-4)


class Observation(eqx.Module):
    """y = x + r w + N(x): a drop over a resistance beside a learned one."""

    network: tw.Network

    def __call__(self, x, w, p):
        return x - p["r"] * w - 0.3 * self.network(x)


def relaxation(loads, *, name="run", group="cell", noise=0.0):
    """x' = -x/2 + w/5; y = x - 0.4 w - 0.1 x^3: the truth has r = 0.4 and a residual of x."""
    runs, random = [], np.random.default_rng(0)
    for index, load in enumerate(loads):
        w = np.broadcast_to(load, TS.shape).astype(float)
        x = np.empty_like(TS)
        x[0] = 1.0
        for k in range(len(TS) - 1):  # exact for a held input
            decay = np.exp(-0.05)
            x[k + 1] = decay * x[k] + (1 - decay) * 0.4 * w[k]
        y = x - 0.4 * w - 0.1 * x**3 + noise * random.standard_normal(len(TS))
        runs.append(tw.Run(f"{name} {index}", TS, y, w, x0=np.array([1.0]), group=group))
    return tw.Dataset(tuple(runs), ("y",), ("w",))


def model():
    network = tw.Network(1, 1, 4, 1, zero_last=True)
    return tw.Twin(
        lambda x, w: -0.5 * x + 0.2 * w,
        observe=Observation(network),
        params={"r": tw.Unknown(0.3, positive=True, spread=1.0)},
        integrator=tw.RK4(),
    )


def steps(seed):
    random = np.random.default_rng(seed)
    return np.repeat(random.uniform(0.2, 3.0, 7), 10)[: len(TS)]


@pytest.mark.slow
def test_a_residual_that_constant_loads_cannot_tell_is_held_back():
    data, loads = relaxation([1.0]), relaxation([steps(1), steps(2)], name="load")
    with pytest.warns(UserWarning, match="held back"):
        found = guarded_fit(model(), data, loads, loss=LOSS, method=METHOD, progress=False)
    assert found.held_back
    assert found.fit is found.physics
    assert found.with_residual.inflation[".params['r']"] > 10
    # Held back, it is what the physics alone is; without the guard it would have been worse.
    wrong = tw.evaluate(found.full, loads, dtw=False).metrics["mae"].mean()
    assert tw.evaluate(found.fit, loads, dtw=False).metrics["mae"].mean() < wrong


@pytest.mark.slow
def test_a_residual_that_varied_loads_tell_is_kept_and_right():
    data, loads = relaxation([steps(3), steps(4), 1.0]), relaxation([steps(1), steps(2)], name="load")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = guarded_fit(model(), data, loads, loss=LOSS, method=METHOD, progress=False)
    assert not found.held_back
    assert found.fit is found.full
    assert found.with_residual.inflation[".params['r']"] < 10
    np.testing.assert_allclose(found.fit.twin.parameters()["r"], 0.4, rtol=0.02)
    kept, alone = (tw.evaluate(each, loads, dtw=False).metrics["mae"].mean() for each in (found.fit, found.physics))
    assert kept < 0.2 * alone


@pytest.mark.slow
def test_a_residual_without_inputs_is_kept():
    ts = 0.1 * np.arange(41)
    ys = [np.exp(-0.5 * ts)[:, None] * a for a in (1.0, 0.6)]
    data = tw.Dataset.from_arrays(ts, ys)
    twin = tw.Twin(
        tw.GreyBox(lambda x, p: -p["k"] * jnp.ones_like(x), tw.MLP(width=4, depth=1, zero_last=True)),
        params={"k": tw.Unknown(0.1, positive=True)},
    )
    found = guarded_fit(twin, data, data, loss=tw.Loss(l2=1e-6), method=METHOD, progress=False)
    assert not found.held_back


@pytest.mark.slow
def test_the_spread_of_a_prediction_is_that_of_repeated_fits():
    truth = relaxation([steps(3), steps(4)])
    where = relaxation([steps(1)], name="load")
    loss = tw.Loss(scale="off")
    twin = tw.Twin(
        lambda x, w: -0.5 * x + 0.2 * w,
        observe=lambda x, w, p: x - p["r"] * w - p["c"] * x**3,
        params={"r": tw.Unknown(0.3, positive=True), "c": tw.Unknown(0.2, positive=True)},
        integrator=tw.RK4(),
    )
    predictions, spreads = [], []
    for seed in range(30):
        random = np.random.default_rng(seed)
        noisy = [tw.Run(r.name, r.ts, r.y + 0.05 * random.standard_normal(r.y.shape), r.w, r.x0) for r in truth.runs]
        data = tw.Dataset(tuple(noisy), ("y",), ("w",))
        fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(12), loss=loss, progress=False)
        predictions.append(tw.predict(fit, where).predicted[0, 0, :, 0])
        spreads.append(posterior(fit, data, loss=loss).spread(where)[0, :, 0])
    seen = np.std(predictions, axis=0)
    np.testing.assert_allclose(np.median(spreads, axis=0).mean(), seen.mean(), rtol=0.3)


def test_nothing_believed_of_the_residual_is_refused():
    data = relaxation([1.0])
    with pytest.raises(ValueError, match="l2"):
        guarded_fit(model(), data, data, loss=tw.Loss())


def test_the_spread_of_a_quantity_follows_from_that_of_what_it_is_made_of():
    ts = np.linspace(0, 2, 41)
    noise = np.random.default_rng(3).normal(scale=0.01, size=(1, 41, 1))
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None] + noise, x0=np.ones((1, 1)))
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    loss = tw.Loss()
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(20), loss=loss, progress=False)
    found = posterior(fit, data, loss=loss)
    k = float(fit.twin.parameters()["k"])
    rate = found.spread_of(lambda twin: twin.parameters()["k"])
    # y = exp(-k t): by hand, the variance of k is s^2 tau / sum (dy/dk)^2.
    scale = float(np.std(data.runs[0].y))
    by_hand = found.error * scale * np.sqrt(41 / found.samples / np.sum((ts * np.exp(-k * ts)) ** 2))
    np.testing.assert_allclose(rate, by_hand, rtol=1e-5)
    np.testing.assert_allclose(found.spread_of(lambda twin: 1 / twin.parameters()["k"]), rate / k**2, rtol=1e-9)
    at = found.spread_of(lambda twin: jnp.exp(-twin.parameters()["k"] * ts[1:]))
    np.testing.assert_allclose(at, found.spread(data)[0, 1:, 0] * scale, rtol=1e-4)
