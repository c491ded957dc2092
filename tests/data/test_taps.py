"""Taps: what an input was before, at regular and irregular times; a plant with a pure delay."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.data._readers.table import pandas_module
from twinfold.data._taps import Interpolation


def data_of(ts, u, **options):
    return tw.Dataset.from_arrays(ts, [np.zeros(len(ts))], inputs=[np.asarray(u, float)], input_names=["u"], **options)


def tap(ts, u, delay, interpolation: Interpolation = "hold"):
    return data_of(ts, u).with_taps({"u": [delay]}, interpolation=interpolation).runs[0].w[:, 1]  # pyright: ignore[reportOptionalSubscript]


def test_taps_are_further_inputs_in_the_order_of_the_table():
    u = np.arange(8.0).reshape(4, 2)
    data = tw.Dataset.from_arrays(np.arange(4.0), [np.zeros(4)], inputs=[u], input_names=["a", "b"])
    data = data.with_taps({"b": [1.0, 2.0], "a": [1.0]})
    assert data.input_names == ("a", "b", "b(t-1)", "b(t-2)", "a(t-1)")
    w = data.runs[0].w
    assert w is not None
    np.testing.assert_array_equal(w[:, :2], u)
    np.testing.assert_allclose(w[:, 2:], [[1, 1, 0], [1, 1, 0], [3, 1, 2], [5, 3, 4]])  # held before the start


@pytest.mark.parametrize("interpolation", ["hold", "linear"])
def test_a_delay_of_whole_steps_is_a_shift(interpolation):
    """Also where the times are no exact multiples of the step: 0.1 * 3 > 0.3."""
    u = np.random.default_rng(0).normal(size=2000)
    for steps in (1, 2, 5):
        shifted = u[np.maximum(np.arange(2000) - steps, 0)]
        np.testing.assert_allclose(tap(0.1 * np.arange(2000), u, 0.1 * steps, interpolation), shifted, atol=1e-11)
    shifted = u[np.maximum(np.arange(2000) - 3, 0)]
    np.testing.assert_allclose(tap(1e6 + 0.1 * np.arange(2000), u, 0.3, interpolation), shifted, atol=1e-5)


def test_held_at_irregular_times_it_is_the_mean_over_the_step():
    """Compared with the delayed signal on a fine grid."""
    rng = np.random.default_rng(1)
    ts = np.cumsum(rng.uniform(0.05, 0.4, 40))
    u = rng.normal(size=40)
    for delay in (0.07, 0.2, 1.3):
        found = tap(ts, u, delay)
        for k in range(39):
            middle = ts[k] + (np.arange(40000) + 0.5) / 40000 * (ts[k + 1] - ts[k])
            held = u[np.maximum(np.searchsorted(ts, middle - delay, "right") - 1, 0)]
            np.testing.assert_allclose(found[k], held.mean(), atol=1e-4)
        assert found[-1] == u[np.searchsorted(ts, ts[-1] - delay, "right") - 1]


def test_interpolated_at_irregular_times_it_is_on_the_line():
    ts = np.cumsum(np.random.default_rng(2).uniform(0.05, 0.4, 40))
    found = tap(ts, 3 * ts + 1, 0.33, "linear")
    inside = ts - 0.33 > ts[0]
    np.testing.assert_allclose(found[inside], 3 * (ts[inside] - 0.33) + 1, rtol=1e-12)
    np.testing.assert_allclose(found[~inside], 3 * ts[0] + 1)


def test_a_jitter_of_the_times_moves_it_by_as_little():
    """A value picked at one time would be that of another sample half of the time."""
    rng, k = np.random.default_rng(3), np.arange(200)
    u = np.sign(np.sin(0.3 * k))
    exact = tap(0.1 * k, u, 0.1)
    np.testing.assert_allclose(tap(0.1 * k + 1e-4 * rng.uniform(-1, 1, 200), u, 0.1), exact, atol=0.01)


def test_blocks_know_what_came_before_them():
    u = np.arange(40.0)
    frame = pandas_module().DataFrame({"t": np.arange(40.0), "y": 0 * u, "u": u})
    loaded = tw.load_dataset(frame, outputs=["y"], inputs=["u"], taps={"u": [3.0]}, blocks=2)
    built = data_of(np.arange(40.0), u).with_taps({"u": [3.0]}).blocks(2)
    for data in (loaded, built):
        w = data.runs[1].w
        assert w is not None
        np.testing.assert_allclose(w[:, 1], w[:, 0] - 3)
    assert loaded.input_names == ("u", "u(t-3)")


def test_a_file_is_interpolated_if_its_gaps_are(tmp_path):
    path = Path(tmp_path) / "a.csv"
    path.write_text("t,u,y\n0,0,1\n1,2,1\n2,4,1\n3,6,1\n")
    line = tw.Dataset.from_csv(path, outputs=["y"], inputs=["u"], taps={"u": [0.5]}, fill="linear")
    held = tw.Dataset.from_csv(path, outputs=["y"], inputs=["u"], taps={"u": [0.5]})
    for data, expected in ((line, [0, 1, 3, 5]), (held, [0, 1, 3, 4])):
        w = data.runs[0].w
        assert w is not None
        np.testing.assert_allclose(w[:, 1], expected)


@pytest.mark.parametrize(
    ("taps", "message"),
    [
        ({"v": [1.0]}, "there is no input 'v'; there are: u"),
        ({"y0": [1.0]}, "'y0' is an output"),
        ({"u": [0.0]}, "positive times"),
        ({"u": [-1.0]}, "positive times"),
        ({"u": [float("nan")]}, "positive times"),
        ({"u": [1.0, 1.0]}, "names two columns"),
    ],
)
def test_what_is_no_tap_is_refused(taps, message):
    with pytest.raises(ValueError, match=message):
        data_of(np.arange(4.0), np.arange(4.0)).with_taps(taps)


def delayed_plant(delay=0.6, dt=0.2, samples=120):
    """x' = 2 (u(t - delay) - x), simulated exactly: u is held, and the delay is a number of steps."""
    u = np.repeat(np.random.default_rng(0).normal(size=samples // 4), 4)
    late = u[np.maximum(np.arange(samples) - round(delay / dt), 0)]
    x = [0.0]
    for value in late[:-1]:
        x.append(value + (x[-1] - value) * np.exp(-2 * dt))
    return tw.Dataset.from_arrays(
        dt * np.arange(samples), [np.array(x)], inputs=[u], x0=[[0.0]], input_names=["u"], output_names=["x"]
    )


@pytest.mark.slow
def test_a_plant_with_a_pure_delay():
    """The model with the tap finds the rate; the one without explains little, whatever its rate."""
    data = delayed_plant()
    rate = {"a": tw.Unknown(1.0, positive=True)}
    errors = {}
    for name, use, runs in (("tap", 1, data.with_taps({"u": [0.6]})), ("none", 0, data)):
        twin = tw.Twin(lambda x, w, p, use=use: p["a"] * (w[use] - x), params=rate, integrator=tw.RK4(4))
        fit = tw.fit(twin, runs, progress=False)
        errors[name] = tw.evaluate(fit.twin, runs, dtw=False).aggregate()["fit_percent"]["mean"]
        if use:
            np.testing.assert_allclose(fit.twin.parameters()["a"], 2.0, rtol=1e-4)
    assert errors["tap"] > 99.9
    assert errors["none"] < 50


@pytest.mark.slow
def test_a_network_learns_which_tap_acts():
    """A learned part that sees three taps: its response is that to the middle one."""
    data = delayed_plant().with_taps({"u": [0.4, 0.6, 0.8]})
    part = tw.MLP(states=[], inputs=[1, 2, 3], adds_to=[0], width=6, depth=1, zero_last=True)
    fit = tw.fit(tw.Twin(tw.GreyBox(lambda x: -2 * x, part)), data, progress=False)
    respond = fit.twin.field.residual.response  # pyright: ignore[reportFunctionMemberAccess]
    slope = [float((respond(jnp.asarray(u)) - respond(jnp.zeros(3)))[0]) for u in np.eye(3)]
    np.testing.assert_allclose(slope, [0, 2, 0], atol=0.2)
