"""The stepper is `simulate`, one sample at a time: the same numbers, nothing raised, a state that survives JSON."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.model._constraint.base import Conserved, Constraint
from twinfold.model._fields import GreyBox
from twinfold.model._implicit import Implicit
from twinfold.model._learned.mlp import MLP
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown
from twinfold.numerics._integrate.explicit import RK4, Euler
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent

RNG = np.random.default_rng(0)
TS = np.cumsum(RNG.uniform(0.02, 0.2, 40))  # irregular
W = RNG.normal(size=(40, 1))


def oscillator(x, w, p):
    return jnp.stack([x[1], -p["k"] * x[0] - 0.1 * x[1] + w[0]])


def turning(t, x):
    return jnp.stack([x[1], -x[0]]) * (1 + 0.3 * jnp.sin(t))


TWINS = {
    "hold": (Twin(oscillator, params={"k": 2.0}), [1.0, 0.0], W),
    "linear": (
        Twin(oscillator, params={"k": Unknown(2.0)}, input_interpolation="linear", observe=lambda x: x[:1]),
        [1.0, 0.0],
        W,
    ),
    "projected": (Twin(turning, constraint=Conserved(lambda x: x @ x), projection=Tangent()), [1.0, 0.5], None),
    "implicit": (
        Twin(
            lambda z: -z,
            algebraic=Implicit(lambda x, z, w: x + z + 0.1 * z**3 - w, 0.0),
            observe=lambda x, z: jnp.concatenate([x, z]),
        ),
        [0.7],
        W,
    ),
    "residual": (
        Twin(GreyBox(oscillator, MLP(adds_to=[1], inputs=[0], width=4, depth=1)), params={"k": 1.0}).initialise(
            jax.random.key(0), states=2, inputs=1
        ),
        [1.0, 0.0],
        W,
    ),
}


def stepped(stepper, ts, w, ys=None):
    rows = [None] * len(ts) if w is None else w
    return [stepper.step(t, row, None if ys is None else y) for t, row, y in zip(ts, rows, ys or ts, strict=True)]


LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("implicit", "residual", "hold")]


@pytest.mark.parametrize("name", ["linear", "projected", *LONG])
def test_it_is_simulate_one_sample_at_a_time(name):
    twin, x0, w = TWINS[name]
    whole = twin.simulate(np.array(x0), TS, w)
    one_by_one = stepped(twin.stepper(np.array(x0)), TS, w)
    assert all(each.ok and not each.message for each in one_by_one)
    np.testing.assert_allclose([each.y for each in one_by_one], whole.ys, rtol=0, atol=1e-13)
    np.testing.assert_allclose([each.x for each in one_by_one], whole.xs, rtol=0, atol=1e-13)
    relative = whole.trajectory.relative_violation
    np.testing.assert_allclose([each.violation for each in one_by_one], relative, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["linear", "projected", *LONG])
def test_a_state_restored_from_json_goes_on_exactly(name):
    twin, x0, w = TWINS[name]
    wanted = stepped(twin.stepper(np.array(x0)), TS, w)
    first = twin.stepper(np.array(x0))
    stepped(first, TS[:17], None if w is None else w[:17])
    text = json.dumps(first.state(), allow_nan=False)
    again = twin.stepper(np.array(x0))
    again.restore(json.loads(text))
    rest = stepped(again, TS[17:], None if w is None else w[17:])
    for one, other in zip(wanted[17:], rest, strict=True):
        np.testing.assert_array_equal(one.y, other.y)
        np.testing.assert_array_equal(one.x, other.x)
    assert len(json.dumps(again.state())) < 1.2 * len(text)  # it does not grow


@pytest.mark.slow
def test_float32_is_kept_and_restored_exactly():
    twin, x0, w = TWINS["hold"]
    stepper = twin.stepper(np.array(x0, np.float32))
    out = stepped(stepper, TS[:5], w[:5])[-1]
    assert out.y.dtype == np.float32
    other = twin.stepper(np.array(x0, np.float32))
    other.restore(json.loads(json.dumps(stepper.state())))
    np.testing.assert_array_equal(stepper.step(TS[5], w[5]).y, other.step(TS[5], w[5]).y)
    with pytest.raises(ValueError, match=r"dtype float64.*'float32'"):
        twin.stepper(np.array(x0)).restore(stepper.state())


def test_it_compiles_once():
    traced = []

    def counted(x, w):
        traced.append(1)
        return -x + w

    twin = Twin(counted, integrator=Euler())
    stepper = twin.stepper(np.ones(1))
    stepper.step(0.0, [0.0])
    before = len(traced)
    assert before > 0
    for index in range(1, 200):
        stepper.step(0.1 * index, [np.nan if index == 7 else 1.0], [np.nan])
    state = stepper.state()
    stepper.reset(np.zeros(1))
    stepper.step(0.0, [0.0])
    stepper.restore(state)
    stepper.step(100.0, [0.0])
    assert len(traced) == before


def test_without_x0_it_starts_at_the_first_measurement_that_is_complete():
    twin = Twin(lambda x: -x)
    stepper = twin.stepper()
    early = stepper.step(0.0, y=[1.0, np.nan])
    assert not early.ok
    assert "has not started" in early.message
    assert "neither x0 nor a measurement" in stepper.step(0.5).message
    stepper.step(1.0, y=[2.0, 3.0])
    last = stepper.step(1.1, y=[np.nan, 3.0])
    np.testing.assert_allclose(last.y, np.exp(-0.1) * np.array([2.0, 3.0]), rtol=1e-7)
    np.testing.assert_allclose(last.residual, [np.nan, 3.0 - 3.0 * np.exp(-0.1)], rtol=1e-6)


def test_an_initial_function_and_an_estimated_initial_state():
    computed = Twin(lambda x: -x, observe=lambda x: x[:1], initial=lambda y, w: jnp.stack([y[0], w[0]]))
    np.testing.assert_allclose(computed.stepper().step(0.0, [5.0], [2.0]).x, [2.0, 5.0])
    estimated = Twin(lambda x: -x, initial=Unknown([3.0], per_run=True)).for_runs(("a", "b"))
    np.testing.assert_allclose(estimated.stepper(run="b").step(0.0).x, [3.0])


def test_what_a_plant_sends_is_never_raised():
    twin, x0, _ = TWINS["hold"]
    stepper, clean = twin.stepper(np.array(x0)), twin.stepper(np.array(x0))
    assert "has not started" in stepper.step(0.0, [np.nan]).message
    assert stepper.step(0.0, [1.0]).ok
    for t in (0.0, -1.0, np.nan, np.inf):
        out = stepper.step(t, [1.0], [0.0, 0.0])
        assert not out.ok
        assert np.isnan(out.y).all()
        assert out.message
    held = stepper.step(0.1, [np.nan])
    assert held.ok
    assert "held" in held.message
    clean.step(0.0, [1.0])
    np.testing.assert_array_equal(held.y, clean.step(0.1, [1.0]).y)
    with pytest.raises(ValueError, match="w has shape"):
        stepper.step(0.2, [1.0, 2.0])


def test_divergence_is_flagged_until_reset():
    twin = Twin(lambda x: x**3, integrator=RK4())
    stepper = twin.stepper(np.array([3.0]))
    out = [stepper.step(0.5 * index, y=[1.0]) for index in range(8)]
    assert out[0].ok
    assert not out[-1].ok
    assert "non-finite state" in out[-1].message
    assert "reset" in out[-1].message
    assert np.isnan(out[-1].y).all()
    json.dumps(stepper.state(), allow_nan=False)
    stepper.reset(np.array([0.1]))
    assert stepper.step(100.0).ok


@pytest.mark.slow
def test_a_projection_that_fails_is_flagged_and_goes_on():
    nowhere = Constraint(lambda x: x @ x + 1)
    stepper = Twin(lambda x: -x, constraint=nowhere, projection=Newton()).stepper(np.ones(2))
    out = [stepper.step(0.1 * index) for index in range(3)]
    assert not any(each.ok for each in out)
    assert out[-1].message
    np.testing.assert_allclose(out[-1].x, np.exp(-0.2) * np.ones(2), rtol=1e-6)


@pytest.mark.parametrize("name", ["linear", pytest.param("projected", marks=pytest.mark.slow)])
def test_ahead_is_what_will_come(name):
    twin, x0, w = TWINS[name]
    stepper = twin.stepper(np.array(x0))
    stepped(stepper, TS[:10], None if w is None else w[:10])
    coming = stepper.ahead(TS[10:30], None if w is None else w[10:30])
    later = stepped(stepper, TS[10:30], None if w is None else w[10:30])
    np.testing.assert_allclose(coming.ys, [each.y for each in later], rtol=0, atol=1e-13)
    np.testing.assert_allclose(coming.ts, TS[10:30])
    with pytest.raises(ValueError, match="must increase"):
        stepper.ahead(TS[:3], None if w is None else w[:3])


def test_bad_arguments_are_named():
    twin = TWINS["hold"][0]
    with pytest.raises(ValueError, match="no parameter 'q'"):
        twin.stepper(np.ones(2), p={"q": 1.0})
    with pytest.raises(ValueError, match="x0="):
        twin.stepper([np.nan, 1.0])
    with pytest.raises(ValueError, match="there is no state"):
        twin.stepper(np.ones(2)).ahead([1.0], [[0.0]])
