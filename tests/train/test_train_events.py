"""Training through events: restitution from noisy bounces, and the windows that events forbid."""

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

TS = np.linspace(0, 1.6, 81)


def ball(e, **options):
    bounce = tw.Event(lambda x: x[0], reset=lambda x, p: jnp.stack([x[0], -p["e"] * x[1]]), name="bounce")
    return tw.Twin(
        lambda x: jnp.stack([x[1], jnp.full_like(x[1], -9.81)]),
        params={"e": e},
        events=[bounce],
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([jnp.ones_like(y[0]), jnp.zeros_like(y[0])]),
        **options,
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.asarray(ball(0.8).simulate([1.0, 0.0], TS).ys)
    return tw.Dataset.from_arrays(TS, [y + 0.01 * rng.normal(size=y.shape) for _ in range(3)])


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, tw.Adam(150, learning_rate=0.02)], ids=["Levenberg-Marquardt", "Adam"])
def test_restitution_from_noisy_bounces(data, method):
    """Three runs of two bounces with a noise of 1 cm, by forward and by reverse derivatives."""
    fit = tw.fit(ball(tw.Unknown(0.7, bounds=(0.0, 1.0))), data, method=method, progress=False)
    assert float(fit.twin.parameters()["e"]) == pytest.approx(0.8, abs=2e-3)


@pytest.mark.slow
def test_restitution_with_a_conserved_energy(data):
    """The level of the energy changes at a bounce, and the derivative knows."""
    energy = tw.Conserved(lambda x: 0.5 * x[1] ** 2 + 9.81 * x[0])
    twin = ball(tw.Unknown(0.7, bounds=(0.0, 1.0)), constraint=energy, projection=tw.Newton())
    fit = tw.fit(twin, data, progress=False)
    assert float(fit.twin.parameters()["e"]) == pytest.approx(0.8, abs=2e-3)


def test_windows_that_would_start_wrongly(data):
    switch = tw.Event(lambda x: x[0] - 0.5, mode=1)
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0), "mode": 0}, events=[switch])
    with pytest.raises(ValueError, match="switch the mode"):
        tw.fit(twin, data, window=11, progress=False)


@pytest.mark.slow
def test_restitution_of_a_ball_that_comes_to_rest():
    """Bounces, then a mode in which it lies still: a reset and a switch in one event, both differentiated."""

    def resting(e):
        lands = tw.Event(
            lambda x: x[0],
            reset=lambda x, p: jnp.stack([x[0], jnp.where(x[1] < -1, -p["e"] * x[1], 0.0)]),
            mode=lambda x: jnp.where(x[1] < -1, 0, 1),
        )
        return tw.Twin(
            lambda x, p: jnp.where(p["mode"] == 0, jnp.stack([x[1], jnp.full_like(x[1], -9.81)]), jnp.zeros_like(x)),
            params={"e": e, "mode": 0},
            events=[lands],
            observe=lambda x: x[:1],  # a velocity jumps from sample to sample as e changes, and so would the loss
        )

    ts = np.linspace(0, 2, 101)
    y = np.asarray(resting(0.5).simulate([1.0, 0.0], ts).ys)
    assert np.abs(y[-1]).max() < 1e-12
    noisy = y + 0.01 * np.random.default_rng(1).normal(size=y.shape)
    data = tw.Dataset.from_arrays(ts, [noisy], x0=[[1.0, 0.0]])
    fit = tw.fit(resting(tw.Unknown(0.45, bounds=(0.0, 1.0))), data, progress=False)
    assert float(fit.twin.parameters()["e"]) == pytest.approx(0.5, abs=2e-3)
