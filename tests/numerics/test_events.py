"""Events against closed forms: a bouncing ball, a relay, an emptying capacitor; their derivatives in three ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.jacobians import QUICK
from support.strict import strict_promotion

import twinfold as tw
from twinfold._core import RESULTS, outcome_codes, tree_structure_text
from twinfold.model import simulate_unchecked
from twinfold.numerics import _rollout
from twinfold.numerics._move import move

G = 9.81
ZENO = int(outcome_codes(RESULTS.events))


def fall(x, p):
    return jnp.stack([x[1], -p["g"]])


BOUNCE = tw.Event(lambda x: x[0], reset=lambda x, p: jnp.stack([x[0], -p["e"] * x[1]]), name="bounce")
BALL = tw.Twin(fall, params={"e": 0.8, "g": G}, events=[BOUNCE])
TS = np.linspace(0, 1.5, 16)


@pytest.fixture(scope="module")
def drop():
    """A compiled run of the ball as a function of (height, e, g), and its derivatives in both directions."""

    def outcome(theta):
        height, e, g = theta
        out = simulate_unchecked(BALL, jnp.stack([height, 0 * height]), jnp.asarray(TS), None, {"e": e, "g": g})
        assert out.events is not None
        return jnp.concatenate([out.events.first(2).times, out.xs[-1]]), out

    def with_derivatives(theta):
        value, push, out = jax.linearize(outcome, theta, has_aux=True)
        forward = jax.vmap(push, out_axes=1)(jnp.eye(3))
        (reverse,) = jax.vmap(jax.linear_transpose(push, theta))(jnp.eye(value.shape[0]))
        return value, out, forward, reverse

    compiled = jax.jit(jax.vmap(with_derivatives), compiler_options=QUICK)

    def padded(thetas):
        """Always a batch of seven, so that one program serves all tests."""
        thetas = np.asarray(thetas, float)
        rows = np.concatenate([thetas, np.repeat(thetas[-1:], 7 - len(thetas), axis=0)])
        return jax.tree.map(lambda leaf: leaf[: len(thetas)], compiled(rows))

    return padded


def bounces(theta):
    """Times of the first two bounces and the state at 1.5 s, in closed form."""
    height, e, g = theta
    speed = jnp.sqrt(2 * g * height)
    first = jnp.sqrt(2 * height / g)
    second = first + 2 * e * speed / g
    rest = TS[-1] - second
    return jnp.stack([first, second, e**2 * speed * rest - g * rest**2 / 2, e**2 * speed - g * rest])


def test_a_bouncing_ball_and_its_derivatives(drop):
    """Forward and reverse derivatives, the closed form's, and central differences."""
    theta = np.array([1.0, 0.8, G])
    shifts = 1e-5 * np.eye(3)
    value, out, forward, reverse = drop(np.concatenate([theta[None], theta + shifts, theta - shifts]))
    np.testing.assert_allclose(value[0], bounces(theta), rtol=1e-13)
    np.testing.assert_allclose(forward[0], jax.jacfwd(bounces)(jnp.asarray(theta)), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(forward[0], reverse[0], rtol=1e-12, atol=1e-12)
    differences = (np.asarray(value[1:4]) - np.asarray(value[4:])).T / 2e-5
    np.testing.assert_allclose(forward[0], differences, rtol=1e-7, atol=1e-7)
    log = jax.tree.map(lambda leaf: leaf[0], out.events)
    first, second = log.table()
    assert (first["event"], first["after"][1]) == ("bounce", -0.8 * first["before"][1])
    assert first["time"] == pytest.approx(np.sqrt(2 / G), abs=1e-15)
    assert second["time"] == pytest.approx(float(value[0, 1]))


def test_runs_of_a_batch_bounce_at_their_own_times(drop):
    heights = np.array([0.5, 1.0, 2.0, 20.0])
    value, out, *_ = drop([[height, 0.8, G] for height in heights])
    np.testing.assert_allclose(value[:3, 0], np.sqrt(2 * heights[:3] / G), rtol=1e-14)
    assert np.asarray(jax.vmap(lambda log: log.count)(out.events)).tolist() == [3, 2, 1, 0]
    assert np.isnan(value[2, 1])
    assert np.isnan(value[3, 0])
    assert not np.any(out.trajectory.failed)


def test_events_without_end_are_a_failure(drop):
    """A ball that comes to rest, down to one that does not bounce at all: flagged, and not through the floor."""
    _, out, forward, _ = drop([[0.2, e, G] for e in (0.6, 0.3, 0.1, 0.01, 0.0)])
    codes = np.asarray(outcome_codes(out.trajectory.result))
    assert (codes[:, -1] == ZENO).all()
    assert (codes[:, 0] == 0).all()
    assert np.abs(out.xs[:, -1, 0]).max() < 1e-6
    assert np.isfinite(forward[:, 2:]).all()
    with pytest.raises(tw.SimulationError, match="max_events"):
        BALL.simulate([0.2, 0.0], TS, p={"e": 0.3})


@pytest.mark.slow
def test_a_relay_oscillates_with_its_period():
    """RC between 0.3 and 0.7 of its source: each half takes tau log(7 / 3)."""
    tau = 0.9
    events = [
        tw.Event(lambda y: y[0] - 0.7, "rising", mode=0, name="off"),
        tw.Event(lambda y: y[0] - 0.3, mode=1, name="on"),
    ]
    relay = tw.Twin(
        lambda x, p: (jnp.where(p["mode"] == 1, 1.0, 0.0) - x) / p["tau"],
        params={"mode": 1, "tau": tau},
        observe=lambda x, p: jnp.stack([x[0], p["mode"].astype(x.dtype)]),
        integrator=tw.RK4(16),
        events=events,
    )
    with strict_promotion():
        out = relay.simulate([0.0], np.linspace(0, 5, 26))
    assert out.events is not None
    halves = np.diff(out.events.first(6).times)
    np.testing.assert_allclose(halves, tau * np.log(7 / 3), rtol=1e-9)
    assert [row["event"] for row in out.events.table()] == ["off", "on"] * 3
    assert [row["mode"] for row in out.events.table()] == [0, 1] * 3
    np.testing.assert_array_equal(out.ys[:, 1], out.trajectory.modes)
    assert out.trajectory.stopped is not None
    assert not out.trajectory.stopped.any()


def test_a_stopped_run_holds_its_state():
    half = tw.Twin(lambda x: -x, integrator=tw.RK4(10), events=[tw.Event(lambda x: x[0] - 0.5, stop=True)])
    out = half.simulate([1.0], np.linspace(0, 1.5, 4))
    assert float(out.trajectory.end_time) == pytest.approx(np.log(2), abs=1e-7)
    np.testing.assert_allclose(out.xs[:, 0], [1, np.exp(-0.5), 0.5, 0.5], rtol=1e-7)
    assert out.trajectory.stopped is not None
    assert out.trajectory.stopped.tolist() == [False, False, True, True]
    # A condition that is past zero from the start has nothing to cross.
    assert float(half.simulate([0.4], np.linspace(0, 1.5, 4)).trajectory.end_time) == 1.5


@pytest.mark.parametrize(("interpolation", "time"), [("hold", 0.5), ("linear", 0.35)])
def test_inputs_between_samples(interpolation, time):
    """x = 0, w = 0, 0, 1, ...: held, x + w - 0.4 jumps at the third sample; interpolated, it crosses at 0.35."""
    ts, w = np.arange(5) * 0.25, np.array([0.0, 0.0, 1.0, 1.0, 1.0])[:, None]
    event = tw.Event(lambda x, w: x[0] + w[0] - 0.4, "rising", stop=True)
    twin = tw.Twin(lambda x: 0 * x, events=[event], input_interpolation=interpolation)
    assert float(twin.simulate([0.0], ts, w).trajectory.end_time) == pytest.approx(time, abs=1e-15)


@pytest.mark.slow
def test_a_reset_changes_what_is_conserved():
    """Between bounces the energy is kept to rounding, at the level that each bounce leaves."""
    energy = tw.Conserved(lambda x, p: 0.5 * x[1] ** 2 + p["g"] * x[0])
    ball = tw.Twin(
        fall,
        params={"e": 0.5, "g": G},
        events=[BOUNCE],
        constraint=energy,
        projection=tw.Newton(),
        integrator=tw.Heun(),
    )
    ts = np.linspace(0, 1.0, 11)
    out = ball.simulate([1.0, 0.0], ts)
    assert out.events is not None
    first = np.sqrt(2 / G)
    second = first + 0.5 * np.sqrt(2 * G) * 2 / G
    np.testing.assert_allclose(out.events.first(2).times, [first, second], rtol=1e-12)
    level = G * np.where(ts < first, 1, np.where(ts < second, 0.25, 0.0625))
    np.testing.assert_allclose(0.5 * out.xs[:, 1] ** 2 + G * out.xs[:, 0], level, rtol=1e-12)


@pytest.mark.slow
def test_conditions_of_algebraic_variables_under_an_implicit_integrator():
    """z = x^3 by Newton's method; x = exp(-t) falls to z = 1/8 at log 2, where x is doubled."""
    event = tw.Event(lambda z: z[0] - 0.125, reset=lambda x: 2 * x, name="doubled")
    twin = tw.Twin(
        lambda x: -x,
        algebraic=tw.Implicit(lambda x, z: jnp.cbrt(z) - x, guess=lambda x: x),
        integrator=tw.Radau(2),
        events=[event],
    )
    out = twin.simulate([1.0], np.linspace(0, 2, 11))
    assert out.events is not None
    np.testing.assert_allclose(out.events.first(2).times, [np.log(2), 2 * np.log(2)], rtol=1e-8)
    np.testing.assert_allclose(out.xs[-1], 4 * np.exp(-2), rtol=1e-8)


def test_single_precision_under_strict_promotion():
    with strict_promotion():
        out = BALL.simulate(np.array([1.0, 0.0], np.float32), TS.astype(np.float32))
    assert out.events is not None
    assert out.events.times.dtype == np.float32
    np.testing.assert_allclose(out.events.first(2).times, bounces((1.0, 0.8, G))[:2], rtol=3e-7)
    np.testing.assert_allclose(out.xs[-1], bounces((1.0, 0.8, G))[2:], rtol=1e-5)


@pytest.mark.slow
def test_two_events_at_the_same_time_follow_each_other():
    events = [
        tw.Event(lambda x: x[0] - 1, "rising", reset=lambda x: x.at[1].set(5.0), name="first"),
        tw.Event(lambda t: t - 1, "rising", reset=lambda x: x.at[2].set(x[1] + 1), name="second"),
    ]
    out = tw.Twin(lambda x: jnp.zeros(3).at[0].set(1.0) + 0 * x, events=events).simulate(np.zeros(3), [0.0, 0.7, 1.4])
    assert out.events is not None
    assert [row["event"] for row in out.events.table()] == ["first", "second"]
    np.testing.assert_allclose(out.events.first(2).times, 1, rtol=1e-15)
    np.testing.assert_allclose(out.xs[-1], [1.4, 5, 6], rtol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [tw.RK4(2), tw.Radau()], ids=["RK4", "Radau"])
def test_a_twin_without_events_is_the_same_program(integrator, monkeypatch):
    twin = tw.Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
        params={"k": 2.0},
        constraint=tw.Conserved(lambda x, p: x[1] ** 2 + p["k"] * x[0] ** 2),
        projection=tw.Newton(),
        integrator=integrator,
    )

    def lowered():
        def loss(x0, p):
            return jnp.sum(tw.rollout(twin.observed_cell, x0, jnp.linspace(0, 1, 5), p=p, throw=False).xs ** 2)

        return jax.jit(jax.value_and_grad(loss)).lower(jnp.ones(2), twin.parameters()).as_text()

    now = lowered()
    monkeypatch.setattr(_rollout, "advance", move)  # which knows no events
    assert now == lowered()


def test_a_twin_without_events_has_the_same_fingerprint():
    text = tree_structure_text(tw.Twin(lambda x: -x))
    assert "events=" not in text
    assert "observe=None,\n  trajectory" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"direction": "down"}, "direction='down'"),
        ({"reset": 1.0}, "reset=1.0"),
        ({"mode": 0.5}, "mode=0.5"),
        ({"reset": lambda u: u}, "argument 'u'"),
    ],
)
def test_what_an_event_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        tw.Event(lambda x: x[0], **arguments)


def test_what_a_twin_with_events_refuses():
    switch = tw.Event(lambda x: x[0], mode=1)
    with pytest.raises(ValueError, match="the mode at the start"):
        tw.Twin(lambda x: -x, events=[switch])
    with pytest.raises(ValueError, match="an integer"):
        tw.Twin(lambda x: -x, params={"mode": 0.5}, events=[switch])
    with pytest.raises(ValueError, match="max_events=0"):
        tw.Twin(lambda x: -x, events=[BOUNCE], max_events=0)
    with pytest.raises(ValueError, match="not integrated"):
        tw.Twin(lambda x: -x, trajectory=lambda t, x: x, events=[BOUNCE])
