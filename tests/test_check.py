"""The examination before any training, against planted mistakes and against clean data."""

import io
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from twinfold.check import channels, identify, invariant, manifold, physics
from twinfold.check.examine import examine
from twinfold.check.noise import noise_of, spikes
from twinfold.check.show import show
from twinfold.check.subject import subject_of
from twinfold.check.words import combination
from twinfold.constraint.base import Conserved, Constraint, Stack
from twinfold.constraint.bounds import Bounds
from twinfold.data.dataset import Dataset
from twinfold.field.boxes import GreyBox
from twinfold.field.residual import MLP
from twinfold.field.unknown import Unknown
from twinfold.integrate.explicit import RK4
from twinfold.project.tangent import Tangent
from twinfold.twin import Twin

TS = np.linspace(0.0, 10.0, 201)
NET: dict[str, Any] = {"width": 4, "depth": 1}


def integrated(field, x0, ts, w=None):
    """A fine reference: 20 steps of RK4 a sample, in numpy."""
    xs = [np.asarray(x0, float)]
    for k, dt in enumerate(np.diff(ts) / 20):
        x, u = xs[-1], 0.0 if w is None else w[k]
        for _ in range(20):
            a = field(x, u)
            b = field(x + dt / 2 * a, u)
            c = field(x + dt / 2 * b, u)
            d = field(x + dt * c, u)
            x = x + dt / 6 * (a + 2 * b + 2 * c + d)
        xs.append(x)
    return np.array(xs)


def spring(noise=0.01, runs=2, ts=TS):
    """m x'' = -2 x - 0.3 v |v| + u, both states measured."""
    rng = np.random.default_rng(1)
    ys, ws = [], []
    for run in range(runs):
        w = np.repeat(rng.normal(size=len(ts) // 10 + 1), 10)[: len(ts)]
        truth = integrated(
            lambda x, u: np.array([x[1], -2 * x[0] - 0.3 * x[1] * abs(x[1]) + u]), [1.0, 0.1 * run], ts, w
        )
        ys.append(truth + noise * rng.normal(size=truth.shape))
        ws.append(w[:, None])
    return np.array(ys), np.array(ws)


def spring_data(ys, ws, ts=TS):
    return Dataset.from_arrays(ts, list(ys), inputs=list(ws), output_names=["x", "v"], input_names=["u"])


def known(x, w, p):
    return jnp.stack([x[1], -p["k"] * x[0] + w[0]])


def spring_twin(**options):
    residual = MLP(states=[1], adds_to=[1], **NET)
    return Twin(GreyBox(known, residual), params={"k": Unknown(1.8, positive=True)}, **options)


def pendulum(length=1.0, noise=0.004, runs=2):
    """A pendulum in Cartesian coordinates: (x, y, vx, vy)."""
    rng = np.random.default_rng(2)
    ys = []
    for run in range(runs):
        angle = integrated(lambda a, _: np.array([a[1], -9.81 / length * np.sin(a[0])]), [1.0 + 0.2 * run, 0.0], TS)
        s, c = np.sin(angle[:, 0]), np.cos(angle[:, 0])
        truth = length * np.stack([s, -c, c * angle[:, 1], s * angle[:, 1]], axis=1)
        ys.append(truth + noise * rng.normal(size=truth.shape))
    return Dataset.from_arrays(TS, np.array(ys), output_names=["px", "py", "vx", "vy"])


def swinging(x, p):
    gravity = 9.81 * p["a"] * p["b"] if p else 9.81
    tension = (gravity * x[1] - x[2] ** 2 - x[3] ** 2) / (x[0] ** 2 + x[1] ** 2)
    return jnp.concatenate([x[2:], jnp.stack([tension * x[0], tension * x[1] - gravity])])


def rod(length):
    return Constraint(lambda x: x[0] ** 2 + x[1] ** 2 - length**2)


def look(check, twin, data, **options):
    """The findings of one check."""
    return check(subject_of(twin, data, options.get("states"), options.get("units"), 0))


def bad(examination):
    return [
        (each.kind, each.severity, each.words)
        for each in examination.findings
        if each.severity in ("warning", "problem")
    ]


def test_clean_data_have_no_warning():
    out = examine(spring_twin(), spring_data(*spring()), units={"x": "m", "v": "m/s", "u": "N", "t": "s"})
    assert bad(out) == []
    assert out.worst in ("ok", "note")
    shapes = out.of("shapes")[0].words
    assert "2 runs" in shapes
    assert "x [m], v [m/s]" in shapes
    explained = out.of("physics")[0].detail["explained"]
    assert 0 < explained["x"] < 1
    (noise,) = out.of("noise")
    assert noise.detail["noise"]["x"] == pytest.approx(0.01, rel=0.2)
    errors = next(each.detail["errors"] for each in out.of("identify", "ok") if "errors" in each.detail)
    assert 0 < errors["k"] < 0.05
    assert any("residual on v can be identified" in each.words for each in out.of("identify"))
    assert {"overview", "run_0", "run_1"} == set(out.figures)
    text = json.dumps(out.as_dict(), allow_nan=False)
    assert json.loads(text)["counts"]["problem"] == 0
    console = Console(record=True, width=100, file=io.StringIO())
    show(out, console)
    printed = console.export_text()
    assert "physics" in printed
    assert "Nothing to worry about." in printed


# Noise and outliers


def test_noise_is_found_at_any_sampling_and_spikes_do_not_count():
    rng = np.random.default_rng(0)
    regular, irregular = np.linspace(0, 10, 400), np.sort(rng.uniform(0, 10, 400))
    for ts in (regular, irregular):
        clean = np.sin(3 * ts)
        assert noise_of(ts, clean) < 1e-4
        noisy = clean + 0.05 * rng.normal(size=400)
        noisy[::50] += 3.0
        assert noise_of(ts, noisy) == pytest.approx(0.05, rel=0.2)
    coarse = np.linspace(0, 10, 60)  # twelve samples a period: second differences alone would say 0.1
    assert noise_of(coarse, np.sin(2 * np.pi * coarse / 2)) < 0.02
    assert np.isnan(noise_of(regular[:5], regular[:5]))


def test_spikes_are_told_from_noise_steps_and_peaks():
    rng = np.random.default_rng(0)
    ts = np.linspace(0, 10, 300)
    signal = np.where(ts > 5, 2.0, 0.0) + np.abs(np.sin(2 * ts)) + 0.02 * rng.normal(size=300)
    assert len(spikes(ts, signal)) == 0
    signal[[40, 41, 170, 299 - 20]] += [0.0, 0.6, -0.9, 0.7]
    signal[100] = np.nan
    np.testing.assert_array_equal(spikes(ts, signal), [41, 170, 279])
    assert len(spikes(ts, np.zeros(300))) == 0


def test_planted_gap_outliers_missing_values_and_idle_channels():
    ys, ws = spring()
    keep = np.r_[:80, 120:201]
    ys = ys.copy()
    ys[0, 30, 0] += 0.8
    ys[1, 150, 1] -= 1.0
    ys[1, 10:14, 0] = np.nan
    extra = np.concatenate([ys, ys[..., :1], np.full_like(ys[..., :1], 7.0)], axis=-1)
    data = Dataset.from_arrays(
        [TS, TS[keep]],
        [extra[0], extra[1][keep]],
        inputs=[ws[0], ws[1][keep]],
        output_names=["x", "v", "twice", "still"],
    )
    twin = spring_twin()
    _, gaps = look(channels.sampling, twin, data)
    assert gaps.severity == "warning"
    assert gaps.detail["gaps"] == [{"run": "1", "from": pytest.approx(TS[79]), "to": pytest.approx(TS[120])}]
    (found,) = look(channels.outliers, twin, data)
    where = {(p["run"], p["output"], round(p["t"], 3)) for p in found.detail["places"]}
    assert where == {("0", "x", 1.5), ("0", "twice", 1.5), ("1", "v", 7.5)}
    assert "t = 1.5" in found.words
    (absent,) = look(channels.missing, twin, data)
    assert absent.detail["x"] == {"share": pytest.approx(4 / 362), "longest": 4}
    assert absent.severity == "note"
    words = [each.words for each in look(channels.idle, twin, data)]
    assert any("still never changes" in each for each in words)
    assert any("x and twice are the same channel twice" in each for each in words)


def test_marks_for_missing_values_and_first_samples_without_one():
    ys, ws = spring()
    ys = ys.copy()
    ys[0, [5, 60, 61], 0] = -999.0
    ys[1, 0, 1] = np.nan
    data = spring_data(ys, ws)
    (mark,) = look(channels.outliers, spring_twin(), data)
    assert (mark.severity, mark.detail) == ("problem", {"output": "x", "value": -999.0, "count": 3})
    late = look(channels.missing, spring_twin(), data)[-1]
    assert late.severity == "problem"
    assert late.detail["runs"] == ["1"]


def test_irregular_sampling_is_a_note_and_an_unknown_unit_is_named():
    ts = np.sort(np.random.default_rng(0).uniform(0, 10, 201))
    data = spring_data(*spring(ts=ts), ts=ts)
    found = look(channels.sampling, spring_twin(), data)
    assert [each.severity for each in found] == ["note"]
    wrong = look(channels.shapes, spring_twin(), data, units={"volt": "V"})[-1]
    assert "no quantity 'volt'" in wrong.words


# Physics


def test_the_run_and_time_at_which_the_physics_fails():
    # x' = x^2 from x0 ends at t = 1 / x0.
    ts = np.linspace(0, 2, 41)
    data = Dataset.from_arrays(ts, np.ones((2, 41, 1)), x0=[[0.1], [1.0]], names=["calm", "wild"])
    twin = Twin(lambda x: x**2, initial=None, integrator=RK4(substeps=4))
    (found,) = look(physics.runs, twin, data)
    assert found.severity == "problem"
    (failed,) = found.detail["failed"]
    assert failed["run"] == "wild"
    assert failed["t"] == pytest.approx(1.0, abs=0.5)
    assert "run 'wild'" in found.words


def test_a_twin_that_does_not_fit_stops_nothing():
    out = examine(Twin(lambda x, w: -x * w[0]), Dataset.from_arrays(TS, [np.cos(TS)]), plots=False)
    (broken,) = out.of("physics")
    assert broken.severity == "problem"
    assert out.of("sampling")[0].severity == "ok"
    assert "Not looked at" in out.of("stability")[0].words
    wrong = look(physics.runs, Twin(lambda x, p: p["k"] * x), spring_data(*spring()))[0]
    assert "(KeyError in test_check.py, line " in wrong.words
    fewer = examine(Twin(lambda x: -x, observe=lambda x: x[:1]), spring_data(*spring()), plots=False)
    assert "initial" in fewer.of("physics")[0].words


def test_an_unstable_explicit_step_is_named_with_its_cure():
    data = Dataset.from_arrays(TS, [np.exp(-TS)[:, None]])
    (found,) = look(physics.stability, Twin(lambda x: -100.0 * x), data)
    # RK4 is stable to 2.785: 0.05 * 100 = 5 needs two substeps.
    assert found.severity == "problem"
    assert "substeps=2" in found.words
    (calm,) = look(physics.stability, Twin(lambda x: -100.0 * x, integrator=RK4(substeps=3)), data)
    assert calm.severity == "ok"


@pytest.mark.slow
def test_an_input_that_nothing_looks_at():
    ys, ws = spring()
    data = Dataset.from_arrays(
        TS, list(ys), inputs=[np.concatenate([w, w[::-1]], 1) for w in ws], input_names=["u", "q"]
    )
    (found,) = look(physics.inputs, spring_twin(), data)
    assert found.detail["unused"] == ["q"]
    seen = Twin(GreyBox(known, MLP(inputs=[1], zero_last=True, **NET)), params={"k": 1.0})
    assert look(physics.inputs, seen, data)[0].severity == "ok"


# Constraint


def energy(x):
    return 0.5 * (x[2] ** 2 + x[3] ** 2) + 9.81 * x[1]


@pytest.fixture(scope="module")
def swings():
    return pendulum()


@pytest.fixture(scope="module")
def stacked(swings):
    """Five constraints at once: a wrong length, the right one, the energy, a first guess of the length, bounds."""
    guessed = Constraint(lambda x, p: x[0] ** 2 + x[1] ** 2 - p["L"] ** 2)
    bounds = Bounds(lambda x: x[:2], lower=-2.0, upper=0.5)
    constraint = Stack([rod(1.1), rod(1.0), Conserved(energy), guessed, bounds])
    params = {"L": Unknown(1.1), "a": Unknown(0.5, positive=True), "b": Unknown(2.0, positive=True)}
    return examine(Twin(swinging, params=params, constraint=constraint), swings)


def test_a_constraint_that_the_data_contradict_is_a_problem_with_numbers(stacked):
    found = stacked.of("invariant")[0]
    assert found.severity == "problem"
    assert "contradict" in found.words
    assert found.detail["excess"] == pytest.approx(1.1**2 - 1, rel=0.01)
    assert found.detail["relative"] == pytest.approx(0.21 / 2, rel=0.02)
    assert found.detail["noise"] == pytest.approx(0.004, rel=0.3)
    assert stacked.worst == "problem"
    assert "invariant" in stacked.figures


def test_constraints_that_hold_but_for_noise(stacked):
    length, conserved = stacked.of("invariant")[1:3]
    assert length.severity == conserved.severity == "ok"
    assert (length.detail["conserved"], conserved.detail["conserved"]) == (False, True)
    assert length.detail["noise"] == pytest.approx(0.004, rel=0.3)


def test_a_first_guess_in_the_constraint_is_only_a_warning_and_bounds_are_looked_at(stacked, swings):
    guessed, px, py = stacked.of("invariant")[3:]
    assert guessed.severity == "warning"
    assert "first guess" in guessed.words
    assert px.severity == "problem"
    assert px.detail["share"] == pytest.approx(np.mean([run.y[:, 0] > 0.516 for run in swings.runs]), abs=0.01)
    assert py.severity == "ok"


def test_redundant_constraints(stacked):
    found = stacked.of("rank")[0]
    assert found.severity == "warning"
    assert (found.detail["redundant"], found.detail["among"]) == (2, ["g0", "g1", "g3"])


def test_an_initial_state_off_the_manifold_by_a_known_amount():
    start = np.array([1.02, 0.0])
    data = Dataset.from_arrays(TS, [np.stack([np.cos(TS), np.sin(TS)], 1)] * 2, x0=[start, [1.0, 0.0]])
    twin = Twin(lambda x: jnp.stack([-x[1], x[0]]), constraint=Constraint(lambda x: x @ x - 1), projection=Tangent())
    (found,) = look(manifold.initial, twin, data)
    assert found.severity == "warning"
    wanted = (1.02**2 - 1) / (2 * 1.02**2)
    assert found.detail["relative"] == {"0": pytest.approx(wanted, rel=1e-9), "1": 0.0}


@pytest.mark.slow
def test_much_noise_hides_nothing_and_invents_nothing():
    noisy = pendulum(noise=0.05)
    right, wrong = look(invariant.holds, Twin(swinging, constraint=Stack([rod(1.0), rod(1.1)])), noisy)
    assert right.severity == "ok"
    assert right.detail["noise"] == pytest.approx(0.05, rel=0.3)
    assert wrong.severity == "problem"


@pytest.mark.slow
def test_an_energy_that_is_lost_in_the_data():
    lost = Twin(known, params={"k": 2.0}, constraint=Conserved(lambda x: 0.5 * x[1] ** 2 + x[0] ** 2))
    (found,) = look(invariant.holds, lost, spring_data(*spring()))
    assert found.severity == "problem"


@pytest.mark.slow
def test_what_is_not_measured_cannot_be_told_and_what_is_can(swings):
    positions = Dataset.from_arrays(TS, [run.y[:, :2] for run in swings.runs], x0=[run.y[0] for run in swings.runs])
    speed = Constraint(lambda x: x[0] * x[2] + x[1] * x[3])
    twin = Twin(swinging, observe=lambda x: x[:2], constraint=Stack([rod(1.1), speed]))
    length, velocity = look(invariant.holds, twin, positions, states=["px", "py", "vx", "vy"])
    assert length.severity == "problem"
    assert velocity.severity == "note"
    assert "vx, vy, which is not measured" in velocity.words


@pytest.mark.slow
def test_conditioning_and_singular_points(swings):
    near = Stack([rod(1.0), Constraint(lambda x: x[0] ** 2 + x[1] ** 2 + 5e-7 * x[2])])
    (ill,) = look(manifold.rank, Twin(swinging, constraint=near), swings)
    assert ill.kind == "conditioning"
    assert ill.detail["condition"] > 1e6
    ts = np.linspace(-1, 1, 21)
    still = Dataset.from_arrays(ts, [np.stack([ts, ts], 1)])
    cross = Twin(lambda x: jnp.ones_like(x), constraint=Constraint(lambda x: x[0] * x[1] - x[0] ** 2))
    (point,) = look(manifold.rank, cross, still)
    assert point.severity == "problem"
    assert point.detail["t"] == pytest.approx(0.0, abs=1e-12)


# Identifiability


def test_a_pair_of_which_only_the_product_matters_and_one_that_does_nothing(stacked):
    dead, pair = stacked.of("identify")
    assert dead.detail["unseen"] == ["L"]  # it is in the constraint alone, which is not projected onto
    assert pair.severity == "warning"
    assert pair.detail["parameters"] == ["a", "b"]
    assert "only the product a * b matters" in pair.words


def test_combinations_in_words():
    both = {"a": True, "b": True}
    assert combination({"a": 0.5, "b": 0.5}, both) == "only the ratio a / b matters"
    assert combination({"a": -1.0, "b": 2.0}, both) == "only the product a^2 * b matters"
    assert "a by +10.5 %" in combination({"a": 1.0, "b": 0.37}, both)
    assert "b by -0.05" in combination({"a": 1.0, "b": -0.5}, {"a": True, "b": False})


@pytest.mark.slow
def test_a_parameter_that_the_residual_can_imitate_and_outputs_that_nothing_sees():
    data = spring_data(*spring())
    sees_x = GreyBox(known, MLP(states=[0, 1], adds_to=[1], **NET))
    found = look(identify.identifiable, Twin(sees_x, params={"k": Unknown(1.8, positive=True)}), data)
    assert any("k" in each.detail.get("inflation", {}) for each in found)
    # Only x0 is measured, and x1 never acts on it.
    apart = Twin(
        GreyBox(lambda x: -x, MLP(states=[0], adds_to=[0, 1], **NET)),
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0], 0.0]),
    )
    lone = Dataset.from_arrays(TS, [np.exp(-TS)[:, None]])
    found = look(identify.identifiable, apart, lone, states=["seen", "hidden"])
    assert [each.detail["residual"] for each in found] == [["hidden"], ["seen"]]
    # Position alone is measured: a push on the velocity and one on the position do much the same.
    both = Twin(
        GreyBox(lambda x: jnp.stack([x[1], -x[0]]), MLP(states=[0], adds_to=[0, 1], **NET)),
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0], 0.0]),
    )
    noisy = np.cos(TS) + 0.5 * np.random.default_rng(0).normal(size=len(TS))
    short = Dataset.from_arrays(TS[:25], [noisy[:25, None]])
    found = look(identify.identifiable, both, short, states=["q", "v"])
    assert any(
        each.severity == "warning" and "q" in each.detail["residual"] + each.detail.get("beside", []) for each in found
    )


@pytest.mark.slow
def test_parameters_of_single_runs_have_names():
    twin = Twin(
        lambda x, p: -p["c"] * x,
        params={"c": Unknown([1.0, 2.0], per_run=True)},
        observe=lambda x: x[:1] * x[1:],
        initial=lambda y: jnp.stack([y[0], 1.0]),
    )
    data = Dataset.from_arrays(TS, [np.exp(-3 * TS)[:, None]] * 2, names=["a", "b"])
    found = look(identify.identifiable, twin, data)
    pairs = [each.detail["parameters"] for each in found if "parameters" in each.detail]
    assert sorted(pairs) == [["c[0] of a", "c[1] of a"], ["c[0] of b", "c[1] of b"]]
