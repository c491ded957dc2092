"""Inputs that were held, interpolated or late: each is found in data made so, and nothing is said where it is equal."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.check_cases import look

from twinfold.check._timing import check_timing
from twinfold.data._dataset import Dataset
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown

DT, FINE = 0.2, 20
TS = DT * np.arange(160)


def response(linear=False, delay=0, wave=None, noise=0.002):
    """x'' = -4 x - 0.5 x' + u on a fine grid, u from samples; the position and the samples."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=len(TS)) if wave is None else wave(TS)
    late = u[np.maximum(np.arange(len(u)) - delay, 0)]
    x, v, xs = 0.0, 0.0, [0.0]
    for k in range(len(TS) - 1):
        for i in range(FINE):
            w = late[k] + linear * (i + 0.5) / FINE * (late[k + 1] - late[k])
            # One step of the midpoint method.
            h = DT / FINE
            xm, vm = x + h / 2 * v, v + h / 2 * (w - 4 * x - 0.5 * v)
            x, v = x + h * vm, v + h * (w - 4 * xm - 0.5 * vm)
        xs.append(x)
    return np.array(xs) + noise * rng.normal(size=len(xs)), u


def oscillator(x, w, p):
    return jnp.stack([x[1], w[0] - p["k"] * x[0] - 0.5 * x[1]])


def timing(linear, data, field=oscillator, warmup=None):
    twin = Twin(
        field,
        params={"k": Unknown(3.0, positive=True)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.zeros(2, y.dtype),
        input_interpolation="linear" if linear else "hold",
        warmup=warmup,
    )
    return look(check_timing, twin, data)


def as_data(y, u):
    return Dataset.from_arrays(TS, [y[:, None]], inputs=[u[:, None]], output_names=["y"], input_names=["u"])


@pytest.mark.parametrize("truth", [False, True])
def test_what_the_twin_does_otherwise_is_a_warning_and_the_same_is_ok(truth):
    data = as_data(*response(linear=truth))
    (found,) = timing(not truth, data)
    assert found.severity == "warning"
    assert found.detail["flipped"] == ["u"]
    assert found.detail["factor"] > 5
    assert f'input_interpolation="{"linear" if truth else "hold"}"' in found.message
    (same,) = timing(truth, data)
    assert same.severity == "ok"
    assert same.detail["factor"] > 5


def test_a_late_input_is_found_with_its_delay():
    (found,) = timing(False, as_data(*response(delay=2)))
    assert found.severity == "warning"
    assert found.detail["delays"] == {"u": 2}
    assert found.detail["flipped"] == []
    assert f"data.taps = {{u = [{2 * (TS[1] - TS[0]):.6g}]}}" in found.message


def test_nothing_is_said_where_it_makes_no_difference():
    slow = response(linear=True, wave=lambda t: np.sin(0.05 * t), noise=0.02)
    assert timing(False, as_data(*slow)) == []
    buried = response(linear=True, noise=3.0)
    assert timing(False, as_data(*buried)) == []


def test_a_regression_takes_the_place_of_physics_that_explains_nothing():
    def wrong(x, w, p):
        return jnp.stack([x[1], -0.01 * w[0] - p["k"] * x[0] - 5.0 * x[1]])

    (found,) = timing(False, as_data(*response(linear=True)), field=wrong)
    assert found.detail["source"] == "a linear regression"
    assert found.detail["flipped"] == ["u"]
    slow = response(linear=True, wave=lambda t: np.sin(0.05 * t), noise=0.02)
    assert timing(False, as_data(*slow), field=wrong) == []


def test_runs_with_delayed_inputs_are_recognised_where_initial_states_are_estimated():
    (found,) = timing(False, as_data(*response(delay=2)), warmup=5)
    assert found.detail["delays"] == {"u": 2}
