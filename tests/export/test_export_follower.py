"""A follower in C and in an FMU: the same estimates as in Python, sample by sample."""

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Follower, Noise, UnscentedKalmanFilter
from twinfold.export import ExportSpec, export_follower
from twinfold.export._c.compiled import CompiledStep, build, find_compiler
from twinfold.export._follower_step import build_follower_step

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")

# A point on a circle, pushed around: one constraint, an input, a parameter that is followed and one that is not.
TWIN = tw.Twin(
    lambda x, w, p: jnp.stack([-p["rate"] * w[0] * x[1], p["rate"] * w[0] * x[0], w[0] - p["drag"] * x[2]]),
    params={"rate": tw.Unknown(1.0, positive=True, spread=0.1), "drag": tw.Unknown(0.5, positive=True)},
    observe=lambda x: x[1:],
    constraint=tw.Constraint(lambda x: x[0] ** 2 + x[1] ** 2 - 1),
    projection=tw.Newton(),
    integrator=tw.Midpoint(),
)
NOISE = Noise([0.02, 0.02, 0.05], [0.05, 0.1], drift={"rate": 0.01})
SPEC = ExportSpec(
    "wheel", ["c", "s", "v"], ["u"], ["sine", "speed"], dt=0.05, x0=[1.0, 0.0, 0.2], w_low=[-1], w_high=[1]
)
STD = [0.1, 0.1, 0.3]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("follower")
    estimator = ExtendedKalmanFilter(TWIN, NOISE, gate=1e-6)
    (report,) = export_follower(estimator, SPEC, folder, std=STD, to=["c"], samples=10_000)
    return folder / "c", report


@pytest.mark.slow
def test_ten_thousand_samples_agree_to_1e_10(exported):
    _, report = exported
    assert report.checked, report.messages
    assert report.largest_difference <= 1e-10
    assert report.free_running_difference <= 1e-10
    assert [file.name for file in report.files] == ["wheel_follower.c", "wheel_follower.h"]
    for text in (file.read_text() for file in report.files):
        assert "malloc" not in text
        assert "calloc" not in text


@pytest.mark.slow
def test_the_compiled_follower_is_the_one_in_python(exported, tmp_path):
    """Beside `Follower` itself: missing values, an outlier, other noise at run time, on the manifold."""
    folder, _ = exported
    library = build(str(find_compiler()), [folder / "wheel_follower.c"], tmp_path / "wheel.so")
    step = build_follower_step(ExtendedKalmanFilter(TWIN, NOISE, gate=1e-6), SPEC, np.array(STD), {})
    assert step.parameters[:2] == ("drag", "noise.measurement[0]")
    compiled = CompiledStep(library, "wheel_follower", step.state_size, len(step.spec.outputs), np.dtype(float))
    louder = Noise([0.02, 0.02, 0.05], [0.1, 0.1], drift={"rate": 0.01})
    p = step.defaults.copy()
    p[1] = 0.1
    follower = Follower(ExtendedKalmanFilter(TWIN, louder, gate=1e-6), SPEC.x0, STD)
    rng, state, before = np.random.default_rng(0), np.zeros(0), np.zeros(0)
    names = list(step.spec.outputs)
    for k in range(60):
        angle = 0.05 * k
        y = np.array([np.sin(angle), 0.2]) + [0.05, 0.1] * rng.normal(size=2) + [5.0 * (k == 20), 0.0]
        there = np.array([k % 7 != 3, k % 5 != 2], float) if k else np.ones(2)
        w = np.concatenate([[1.0], np.where(there, y, 1e30), there])
        if k == 0:
            state, out, status = compiled.init(0.0, np.array(SPEC.x0), w, p)
        else:
            state, out, status = compiled.step(0.05 * (k - 1), before, w, p, state)
        before = w
        known = follower.step(0.05 * k, w=[1.0], y=np.where(there, y, np.nan))
        assert status == 0
        np.testing.assert_allclose(state[:3], known.x, rtol=1e-10, atol=1e-12)
        assert abs(state[0] ** 2 + state[1] ** 2 - 1) < 1e-14
        found = dict(zip(names, out, strict=True))
        np.testing.assert_allclose(
            [found["predicted.sine"], found["std.sine"]], [known.y[0], known.y_std[0]], rtol=1e-10
        )
        np.testing.assert_allclose(found["innovation.speed"], np.nan_to_num(known.residual[1]), atol=1e-11)
        assert [found["accepted.sine"], found["accepted.speed"]] == known.accepted.tolist()
        np.testing.assert_allclose(found["nis"], known.nis, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found["estimate.v.std"], known.x_std[2], rtol=1e-10)
        np.testing.assert_allclose(found["parameter.rate"], known.parameters["rate"], rtol=1e-10)
        np.testing.assert_allclose(found["parameter.rate.std"], known.parameters_std["rate"], rtol=1e-9)
    assert not follower.step(3.0, w=[1.0], y=[9.0, 0.2]).accepted[0]


def test_a_small_one_agrees(tmp_path):
    estimator = ExtendedKalmanFilter(
        tw.Twin(lambda x, w: w - x, integrator=tw.Euler()), Noise([0.1], [0.05]), gate=1e-4
    )
    spec = ExportSpec("lag", ["x"], ["u"], ["x"], dt=0.1, x0=[1.0], w_low=[-1], w_high=[1])
    (report,) = export_follower(estimator, spec, tmp_path, std=[0.5], to=["c"], samples=1000)
    assert report.checked, report.messages
    assert report.free_running_difference is not None
    assert report.free_running_difference <= 1e-10


def test_what_does_not_fit_is_refused(tmp_path):
    estimator = ExtendedKalmanFilter(TWIN, NOISE)
    with pytest.raises(ValueError, match="no export to 'onnx'"):
        export_follower(estimator, SPEC, tmp_path, std=STD, to=["onnx"])
    with pytest.raises(ValueError, match="3 states"):
        export_follower(estimator, SPEC, tmp_path, std=[0.1], to=["c"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ExtendedKalmanFilter, UnscentedKalmanFilter])
def test_c_and_fmu(kind, tmp_path):
    conserved = tw.Twin(
        lambda x, w: jnp.stack([x[1], -4.0 * x[0]]),
        observe=lambda x: x[:1],
        constraint=tw.Conserved(lambda x: 0.5 * x[1] ** 2 + 2.0 * x[0] ** 2),
        projection=tw.Newton(),
    )
    spec = ExportSpec("spring", ["x", "v"], ["u"], ["x"], dt=0.05, x0=[0.5, 0.0])
    estimator = kind(conserved, Noise([0.0, 0.05], [0.02]), gate=1e-6)
    for report in export_follower(estimator, spec, tmp_path, std=[0.1, 0.2], samples=2000):
        assert report.checked, report.messages
        assert report.free_running_difference is not None
        assert report.free_running_difference <= 1e-10
