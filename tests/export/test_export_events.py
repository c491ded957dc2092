"""Events in exported steps: C, FMU and StableHLO compute what the twin computes; ONNX refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.export import ExportSpec, NotExportable, export_c, export_onnx, export_twin
from twinfold.export._step import build_step

RELAY = tw.Twin(
    lambda x, w, p: (jnp.where(p["mode"] == 1, w, 0 * w) - x) / p["tau"],
    params={"mode": 1, "tau": 0.5},
    observe=lambda x, p: jnp.stack([x[0], p["mode"].astype(x.dtype)]),
    integrator=tw.RK4(4),
    events=[
        tw.Event(lambda y: y[0] - 0.7, "rising", mode=0, name="off"),
        tw.Event(lambda y: y[0] - 0.3, mode=1, name="on"),
    ],
)
SPEC = ExportSpec(
    "relay", ["u"], ["source"], ["u", "closed"], dt=0.1, x0=[0.0], x_low=[0], x_high=[1], w_low=[0.9], w_high=[1.1]
)


@pytest.mark.slow
def test_the_state_of_a_step_has_the_mode_and_the_last_event():
    step = build_step(RELAY, SPEC)
    places = step.description()["state"]
    one, p = jnp.ones(1), jnp.asarray(step.defaults)
    state, y, status = step.init(0.0, jnp.zeros(1), one, p)
    follow = jax.jit(step.step)
    for k in range(7):
        state, y, status = follow(0.1 * k, one, one, p, state)
    time = 0.5 * np.log(1 / 0.3)
    np.testing.assert_allclose(state[slice(*places["event"])], [0, time], rtol=1e-6)
    np.testing.assert_allclose(y, [0.7 * np.exp((time - 0.7) / 0.5), 0], rtol=1e-6)
    assert (state[places["mode"][0]], state[places["stopped"][0]], status) == (0, 0, 0)


@pytest.mark.slow
def test_exports_compute_what_the_twin_computes(tmp_path):
    reports = export_twin(RELAY, SPEC, tmp_path, to=["c", "fmu", "stablehlo"], samples=100, horizon=60)
    for report in reports:
        assert report.checked, report.messages
    header = (tmp_path / "c" / "relay.h").read_text()
    assert "#define RELAY_MODE_AT 5" in header
    assert "relay_event_names" in header


@pytest.mark.slow
def test_resets_onto_a_manifold_in_c(tmp_path):
    ball = tw.Twin(
        lambda x: jnp.stack([x[1], jnp.full_like(x[1], -9.81)]),
        params={"e": 0.8},
        constraint=tw.Conserved(lambda x: 0.5 * x[1] ** 2 + 9.81 * x[0]),
        projection=tw.Newton(),
        events=[tw.Event(lambda x: x[0], reset=lambda x, p: jnp.stack([x[0], -p["e"] * x[1]]), name="bounce")],
    )
    spec = ExportSpec("ball", ["h", "v"], [], ["h", "v"], dt=0.05, x0=[1.0, 0.0], x_low=[0.1, -4], x_high=[1, 4])
    report = export_c(ball, spec, tmp_path, samples=50, horizon=30)
    assert report.checked, report.messages


def test_onnx_refuses(tmp_path):
    pytest.importorskip("jax2onnx")
    pytest.importorskip("onnxruntime")
    with pytest.raises(NotExportable, match="events"):
        export_onnx(RELAY, SPEC, tmp_path)
