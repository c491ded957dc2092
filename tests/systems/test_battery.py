"""The equations of the battery against published values, conservation laws and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.systems import Interaction, battery, charged
from twinfold.systems._battery.equations import expansion, printed_expansion
from twinfold.systems._battery.parameters import FARADAY, SETS, published

ROOM = 292.0 - 273.15


def values(name="paper"):
    return {key: jnp.asarray(value) for key, value in published(name).items()}


def discharge(current=2.0, seconds=3000.0, dt=10.0, celsius=24.0, rest=2):
    ts = np.arange(0.0, seconds + dt / 2, dt)
    i = np.full_like(ts, current)
    i[:rest] = 0.0
    return ts, np.stack([i, np.full_like(ts, celsius)], axis=1)


def test_the_expansion_has_the_published_values():
    x = jnp.array([0.4, 0.45, 0.6, 0.8, 0.95])
    found = jax.vmap(lambda x: expansion(x, values()["A_p"]))(x)
    np.testing.assert_allclose(found, [0.15116, 0.06973, -0.08406, -0.18143, -0.20747], atol=5e-6)


@pytest.mark.parametrize("k", range(13))
def test_each_term_of_the_expansion_is_the_derivative_of_its_excess_energy(k):
    # Redlich-Kister: the excess energy x(1-x) A_k (2x-1)^k gives V_INT as its partial molar part, up to sign.
    coefficients = jnp.zeros(13).at[k].set(1.0)
    for x in (0.1, 0.37, 0.5, 0.62, 0.9):

        def energy(n, x=x):
            y = n / (n + (1 - x))  # n atoms of the one kind beside 1 - x of the other
            return (n + (1 - x)) * y * (1 - y) * (2 * y - 1) ** k

        partial = jax.grad(energy)(x) - jax.grad(lambda m, x=x: _other(m, x, k))(1 - x)
        found = expansion(jnp.array(x), coefficients) * FARADAY
        np.testing.assert_allclose(found, -partial, atol=1e-12)


def _other(m, x, k):
    y = x / (x + m)
    return (x + m) * y * (1 - y) * (2 * y - 1) ** k


def test_the_printed_expansion_diverges_at_one_half():
    coefficients = values()["A_p"]
    near = [abs(float(printed_expansion(jnp.array(0.5 + gap), coefficients))) for gap in (1e-3, 1e-6)]
    assert near[1] > 500 * near[0]
    assert abs(float(expansion(jnp.array(0.5), coefficients))) < 0.2


def test_the_voltage_at_full_charge():
    twin = battery()
    x0 = charged(jnp.array(0.6), values())
    v = twin.outputs(jnp.array(0.0), x0, jnp.array([0.0, ROOM]), twin.parameters())
    np.testing.assert_allclose(v, [4.1914], atol=5e-5)


@pytest.mark.parametrize("name", SETS)
def test_charge_is_conserved_and_moves_with_the_current(name):
    twin = battery(name, integrator=tw.RK4(16))
    ts, w = discharge()
    x0 = charged(jnp.array(0.6), values(name))
    out = twin.simulate(x0, ts, w)
    p, xs = values(name), np.asarray(out.xs)
    np.testing.assert_allclose(xs[:, :4].sum(1), float(p["q_max"]), rtol=1e-13)
    passed = 2.0 * (ts[-1] - ts[2])
    np.testing.assert_allclose(xs[0, 2:4].sum() - xs[-1, 2:4].sum(), passed, rtol=1e-12)
    np.testing.assert_allclose(xs[-1, :2].sum() - xs[0, :2].sum(), passed, rtol=1e-12)
    np.testing.assert_allclose(out.zs["x_p"] + out.zs["x_n"], 1.0, atol=1e-13)
    # The drops follow their algebraic targets; V_o' has the closed form R_o i (1 - exp(-t / tau_o)).
    exact = float(p["R_o"]) * 2.0 * (1 - np.exp(-(ts[2:] - ts[2]) / float(p["tau_o"])))
    np.testing.assert_allclose(xs[2:, 4], exact, atol=1e-6)
    assert (np.diff(np.asarray(out.ys)[3:, 0]) < 0).all()


@pytest.mark.slow
def test_the_integrator_converges_with_its_order():
    ts, w = discharge(dt=20.0, seconds=2000.0)
    x0 = charged(jnp.array(0.6), values())
    fine = np.asarray(battery(integrator=tw.RK4(32)).simulate(x0, ts, w).xs)
    errors = [
        np.abs(np.asarray(battery(integrator=tw.Heun(n)).simulate(x0, ts, w).xs) - fine)[:, 4:].max() for n in (8, 16)
    ]
    assert errors[0] / errors[1] > 2 ** (2 - 0.1)


@pytest.mark.slow
def test_overcharge_and_deep_discharge_stay_finite():
    ts, w = discharge(current=4.0, seconds=9000.0)  # far beyond empty
    out = battery().simulate(charged(jnp.array(0.6), values()), ts, w)
    assert np.isfinite(np.asarray(out.ys)).all()
    ts, w = discharge(current=-4.0, seconds=9000.0)  # far beyond full
    out = battery().simulate(charged(jnp.array(0.1), values()), ts, w)
    assert np.isfinite(np.asarray(out.ys)).all()
    gradient = jax.grad(lambda q: jnp.sum(_final(q, jnp.asarray(ts), jnp.asarray(w))))(jnp.array(13200.0))
    assert np.isfinite(gradient)


def _final(q_max, ts, w):
    twin = battery()
    p = twin.parameters() | {"q_max": q_max}
    out = tw.rollout(twin.cell, charged(jnp.array(0.1), p), ts, w, p=p, throw=False)
    return twin.outputs(ts[-1], out.xs[-1], w[-1], p)


@pytest.mark.parametrize("filled", [0.1, 0.35, 0.6])
@pytest.mark.parametrize("current", [0.0, 1.0])
def test_the_state_at_rest_explains_the_first_sample(filled, current):
    twin = battery(initial="rest")
    p, w = twin.parameters(), jnp.array([current, 30.0])
    state = charged(jnp.array(filled), p, current * p["R_o"])
    y = twin.outputs(jnp.array(0.0), state, w, p)
    np.testing.assert_allclose(twin.initial_state(jnp.array(0.0), y, w, p), state, rtol=1e-9)

    def start(v, r):
        return twin.initial_state(jnp.array(0.0), v[None], w, p | {"R_o": r})

    h = 1e-5
    slopes = jax.jacfwd(start, argnums=(0, 1))(y[0], p["R_o"])
    for slope, up, down in zip(
        slopes,
        (start(y[0] + h, p["R_o"]), start(y[0], p["R_o"] + h)),
        (start(y[0] - h, p["R_o"]), start(y[0], p["R_o"] - h)),
        strict=True,
    ):
        np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("width", "count"), [(4, 68), (69, 10_078)])
def test_parameter_counts_of_the_paper(width, count):
    sides = {side: Interaction(tw.Network(1, 1, width, 2), replaces=True) for side in ("positive", "negative")}
    unknown = {"q_max": tw.Unknown(13200.0, positive=True), "R_o": tw.Unknown(0.085, positive=True)}
    twin = battery(unknown=unknown, positive=sides["positive"], negative=sides["negative"]).initialise(
        jax.random.key(0), states=7, inputs=2
    )
    assert tw.model.count_parameters(twin) == count


@pytest.mark.slow
def test_a_cell_is_recovered_from_its_own_voltage():
    truth = battery()
    x0 = charged(jnp.array(0.6), values())
    loads = [discharge(current, 2400.0, 20.0) for current in (1.0, 2.0, 3.5)]
    ys = [np.asarray(truth.simulate(x0, *load).ys) for load in loads]
    data = tw.Dataset.from_arrays(
        [load[0] for load in loads], ys, inputs=[load[1] for load in loads], groups=["cell"] * 3
    )
    unknown = {
        "q_max": tw.Unknown(1.1e4, positive=True, per_group=True),
        "R_o": tw.Unknown(0.2, positive=True, per_group=True),
    }
    fit = tw.fit(battery(unknown=unknown), data, method=tw.LevenbergMarquardt(30), progress=False)
    found = fit.twin.parameters("cell")
    np.testing.assert_allclose([found["q_max"], found["R_o"]], [13200.0, 0.085], rtol=1e-6)


def test_an_unstable_explicit_step_is_refused():
    ts, w = discharge(dt=21.0)
    x0 = charged(jnp.array(0.6), values())
    with pytest.raises(ValueError, match=r"step of 21 .* decay.* within 10 .* substeps=2"):
        battery(integrator=tw.Euler()).simulate(x0, ts, w)
    wild = battery(integrator=tw.Euler()).simulate(x0, ts, w, throw=False)
    assert np.abs(np.asarray(wild.ys)).max() > 100  # the diverged result
    ts, w = discharge(dt=19.0)
    with pytest.warns(UserWarning, match=r"step of 19 .* near its stability limit .* decay.* within 10 "):
        battery(integrator=tw.Euler()).simulate(x0, ts, w)


def test_bad_arguments():
    with pytest.raises(ValueError, match="'papers'"):
        battery("papers")
    with pytest.raises(ValueError, match="no parameter 'qmax'"):
        battery(unknown={"qmax": tw.Unknown(1.0)})


def test_the_default_integrator_resolves_the_fastest_decay():
    # Heun's method with the default substeps against a converged reference, for samples up to 20 s apart.
    ts, w = discharge(dt=20.0, seconds=600.0)
    x0 = charged(jnp.array(0.6), values())
    coarse, fine = (twin.simulate(x0, ts, w).ys for twin in (battery(), battery(integrator=tw.RK4(32))))
    np.testing.assert_allclose(coarse, fine, atol=0.02)
