"""Exports compared with the twin: C, FMU, ONNX and StableHLO; and arguments that are rejected."""

import ctypes
import dataclasses
import re
import shutil
import subprocess
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from support.exports import PENDULUM_SPEC as SPEC
from support.exports import STRICT, compiled_step, needs_compiler, pendulum_twin
from twinfold_studies.systems.registry import SYSTEMS, system

import twinfold as tw
import twinfold.export._c.export
import twinfold.export._fmu.export
from twinfold._core import Frozen
from twinfold._core._results import RESULTS
from twinfold.export import (
    ExportSpec,
    export_c,
    export_fmu,
    export_onnx,
    export_stablehlo,
    export_twin,
    load_stablehlo,
)
from twinfold.export._c.compiled import build, find_compiler
from twinfold.export._c.export import compare_library
from twinfold.export._c.source import write_source
from twinfold.export._reference import build_reference
from twinfold.export._step import MESSAGES, build_step, precision

PROJECTIONS = {"none": None, "tangent": tw.Tangent(), "newton": tw.Newton(), "adaptive": tw.Adaptive()}


@needs_compiler
def test_c_is_the_simulation(tmp_path):
    """One step from sampled states agrees to 1e-12; a simulation agrees with `Twin.simulate`, outputs included."""
    twin = pendulum_twin(tw.Tangent(), input_interpolation="linear")
    reference = build_reference(twin, SPEC, samples=300, horizon=100)
    report = export_c(twin, SPEC, tmp_path, reference=reference)
    assert report.checked, report.messages
    assert (report.largest_difference or 0.0) <= 1e-12
    assert [file.name for file in report.files] == ["pendulum.c", "pendulum.h"]
    step, run = reference.step, reference.simulation
    compiled = compiled_step(report.files[0], step)
    assert step.parameters == ("g", "l")
    for gravity in (9.81, 20.0):  # parameters are arguments
        p = np.array([gravity, 1.0])
        with precision(np.float64):
            out = twin.simulate(np.asarray(SPEC.x0), run.t, run.w, p={"g": gravity, "l": 1.0})
        state, y, _ = compiled.init(run.t[0], np.asarray(SPEC.x0), run.w[0], p)
        xs, ys = [state[:4]], [y]
        for k in range(100):
            state, y, status = compiled.step(run.t[k], run.w[k], run.w[k + 1], p, state)
            assert status == 0
            xs.append(state[:4])
            ys.append(y)
        np.testing.assert_allclose(xs, out.xs, atol=1e-12)
        np.testing.assert_allclose(ys, out.ys, atol=1e-12)


@needs_compiler
def test_c_symbols_and_text(tmp_path):
    """Only prefixed symbols are exported, nothing is allocated, and a strict compiler gives no warning."""
    with precision(np.float64):
        files = write_source(build_step(pendulum_twin(tw.Tangent()), SPEC), tmp_path)
    text = files[0].read_text()
    assert "malloc" not in text
    library = build(find_compiler() or "", [files[0]], tmp_path / "p.so", flags=STRICT)
    if shutil.which("nm"):
        listed = subprocess.run(
            ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
        )
        names = [line.split()[-1] for line in listed.stdout.splitlines()]
        assert names
        assert all(name.startswith("pendulum_") for name in names)
    message = ctypes.CDLL(str(library)).pendulum_message
    message.restype = ctypes.c_char_p
    assert message(1).decode() == MESSAGES[1] == RESULTS[RESULTS.nonfinite]
    assert message(99) == b"unknown status"


@needs_compiler
def test_c_reports_failures(tmp_path):
    """A non-finite state is rejected, and the status gives the reason."""
    twin = tw.Twin(lambda x: x**3, integrator=tw.Euler())
    spec = ExportSpec("burst", ["x"], [], ["x"], 1.0, [1e120])
    with precision(np.float64):
        step = build_step(twin, spec)
        files = write_source(step, tmp_path)
    compiled = compiled_step(files[0], step, flags=STRICT)
    state, _, status = compiled.step(0.0, np.zeros(0), np.zeros(0), np.zeros(0), np.array([1e120]))
    assert status == 1
    assert state[0] == 1e120


@needs_compiler
def test_c_reports_outputs_that_are_not_finite(tmp_path):
    """From a finite state: an output that contains a missing input, and one that overflows."""
    twin = tw.Twin(lambda x: -x, observe=lambda x, w: jnp.stack([x[0] + w[0], x[0] ** 3]))
    spec = ExportSpec("passed", ["x"], ["u"], ["a", "b"], 0.1, [1.0])
    with precision(np.float64):
        step = build_step(twin, spec)
        compiled = compiled_step(write_source(step, tmp_path)[0], step, flags=STRICT)
    for x, w, expected in ((1.0, 1.0, 0), (1.0, np.nan, 1), (1e110, 0.0, 1)):
        inputs = np.full(1, w)
        assert compiled.init(0.0, np.full(1, x), inputs, np.zeros(0))[2] == expected
        state, _, status = compiled.step(0.0, np.zeros(1), inputs, np.zeros(0), np.full(1, x))
        assert status == expected
        assert state[0] == pytest.approx(x * np.exp(-0.1), rel=1e-5)


def test_without_a_compiler(tmp_path, monkeypatch):
    """The files are written, and a message states that they are not checked."""
    monkeypatch.setattr(twinfold.export._c.export, "find_compiler", lambda: None)
    monkeypatch.setattr(twinfold.export._fmu.export, "find_compiler", lambda: None)
    for report in (export_c(pendulum_twin(), SPEC, tmp_path), export_fmu(pendulum_twin(), SPEC, tmp_path)):
        assert not report.checked
        assert "no C compiler" in report.messages[0]
        assert all(file.exists() for file in report.files)


def test_inconsistent_arguments_are_rejected(tmp_path):
    """Each message names the argument."""
    for change, message in (
        ({"name": "2nd"}, "name='2nd'"),
        ({"dt": 0.0}, "dt=0.0"),
        ({"x0": [1.0]}, "1 values for 4 states"),
        ({"x_low": [5.0] * 4}, "x_low"),
        ({"inputs": ["u", "u"]}, "duplicate name"),
        ({"x0": [1.0, float("nan"), 0.0, 0.0]}, r"x0=.*must be finite"),
        ({"w_high": [1.0, float("inf")]}, r"w_high=.*must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(SPEC, **change)
    with pytest.raises(ValueError, match="1 names for 2 outputs"), precision(np.float64):
        build_step(pendulum_twin(), dataclasses.replace(SPEC, outputs=["angle"]))
    with pytest.raises(ValueError, match=r"no parameter 'gg'.*Did you mean 'g'"), precision(np.float64):
        build_step(pendulum_twin(), dataclasses.replace(SPEC, parameters={"gg": 1.0}))
    with pytest.raises(ValueError, match="no export to 'fmi'"):
        export_twin(pendulum_twin(), SPEC, tmp_path, to=["fmi"])
    with pytest.raises(ValueError, match="function of time"), precision(np.float64):
        build_step(tw.Twin(lambda x: -x, trajectory=lambda t, x: x), ExportSpec("a", ["x"], [], ["x"], 0.1, [1.0]))


def test_a_failed_format_does_not_affect_the_others(tmp_path):
    """C has no `erf_inv`, StableHLO has it: one report gives the reason, the other export is written."""
    twin = tw.Twin(lambda x: jax.lax.erf_inv(0.1 * x))
    spec = ExportSpec("both", ["x"], [], ["x"], 0.1, [1.0])
    failed, written = export_twin(twin, spec, tmp_path, to=["c", "stablehlo"], samples=20, horizon=5)
    assert not failed.files
    assert "erf_inv" in failed.messages[0]
    assert written.checked, written.messages


@pytest.mark.slow
def test_stablehlo(tmp_path):
    """The loaded functions compute the same; loading them in another precision raises."""
    report = export_stablehlo(pendulum_twin(tw.Newton()), SPEC, tmp_path, samples=100)
    assert report.checked, report.messages
    with jax.enable_x64(False), pytest.raises(ValueError, match="float64"):
        load_stablehlo(tmp_path / "pendulum.json")


@pytest.mark.slow
@pytest.mark.parametrize("projection", ["none", "tangent", "newton"])
def test_onnx(projection, tmp_path):
    """Both precisions in onnxruntime, including the loops of a projection."""
    pytest.importorskip("jax2onnx")
    pytest.importorskip("onnxruntime")
    cumsum = jnp.cumsum
    report = export_onnx(pendulum_twin(PROJECTIONS[projection]), SPEC, tmp_path, samples=100)
    assert jnp.cumsum is cumsum  # jax2onnx replaces it when first used
    assert report.checked, report.messages


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("projection", list(PROJECTIONS))
@pytest.mark.parametrize("name", list(SYSTEMS))
def test_systems_in_c(name, projection, tmp_path):
    """Every system with every projection, from 10,000 states."""
    known = system(name)
    residual = tw.MLP(states=list(known.residual_states), adds_to=list(known.residual_adds_to), width=16, depth=2)
    twin = tw.Twin(
        tw.GreyBox(known.physics, residual),
        params=known.params,
        constraint=known.constraint,
        projection=PROJECTIONS[projection],
    )
    with precision(np.float64):
        twin = twin.initialise(jr.key(0), states=len(known.state_names))
        drawn = np.asarray(known.draw(jr.key(1), 200))
    ends: Any = {"x_low": drawn.min(axis=0), "x_high": drawn.max(axis=0)}
    spec = ExportSpec(name, known.state_names, [], known.state_names, known.dt, drawn[0], **ends)
    report = export_c(twin, spec, tmp_path)
    assert report.checked, report.messages
    assert (report.largest_difference or 0.0) <= 1e-12


def rectified(integrator):
    from twinfold_studies.systems.circuit import rectifier

    ends: Any = {"x_low": [0.0], "x_high": [4.0], "w_low": [1.0], "w_high": [6.0]}
    spec = ExportSpec("rectifier", ["v"], ["u"], ["out", "i"], 2e-4, [1.0], [5.0], **ends)
    return rectifier(integrator=integrator), spec


def stiff(integrator):
    twin = tw.Twin(lambda x: jnp.stack([x[1], 100 * (1 - x[0] ** 2) * x[1] - x[0]]), integrator=integrator)
    return twin, ExportSpec("stiff", ["x", "v"], [], ["x", "v"], 0.01, [2.0, 0.0], x_low=[1.2, -1.0], x_high=[2.0, 1.0])


def cell(kinetics):
    from twinfold.systems._battery.cell import battery

    twin = battery(kinetics=kinetics)
    x0 = np.asarray(twin.initial_state(0.0, jnp.zeros(1), jnp.zeros(2), twin.parameters()))
    ends: Any = {
        "x_low": 0.97 * x0,
        "x_high": 0.995 * x0 + 1e-3 * (x0 == 0),
        "w_low": [0.0, 15.0],
        "w_high": [3.0, 35.0],
    }
    names = [f"q{k}" for k in range(7)]
    return twin, ExportSpec("cell", names, ["current", "celsius"], ["voltage"], 10.0, x0, [1.0, 25.0], **ends)


def chain():
    from twinfold_studies.systems.chain import Chain

    made = Chain(10)
    x0 = np.asarray(made.state)
    twin = tw.Twin(lambda x: -0.1 * jnp.sin(3 * x), constraint=made.constraint, projection=tw.Tangent())
    names = [f"x{k}" for k in range(20)]
    return twin, ExportSpec("chain", names, [], names, 0.05, x0, x_low=x0 - 1e-3, x_high=x0 + 1e-3)


HARD = {
    "implicit algebraic equations": lambda: rectified(tw.RK4()),
    "Radau": lambda: stiff(tw.Radau()),
    "BDF": lambda: stiff(tw.BDF(order=2, substeps=2)),
    "battery": lambda: cell("symmetric"),
    "Butler-Volmer": lambda: cell("butler-volmer"),
    "ten constraints": chain,
    "bounds": lambda: (
        tw.Twin(lambda x, w: w - x, constraint=tw.Bounds(lambda x: x, lower=0.0, upper=1.0), projection=tw.Newton()),
        ExportSpec("kept", ["a"], ["u"], ["a"], 0.1, [0.5], x_low=[0.0], x_high=[1.0], w_low=[-20.0], w_high=[20.0]),
    ),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", list(HARD))
def test_hard_steps_in_c(name, tmp_path):
    """Iterations inside the step: algebraic equations, implicit integrators, factorisations, active sets."""
    with precision(np.float64):
        twin, spec = HARD[name]()
    report = export_c(twin, spec, tmp_path, samples=1000, horizon=100)
    assert report.checked, report.messages
    assert (report.largest_difference or 0.0) <= 1e-12


@needs_compiler
def test_a_wrong_weight_is_detected(tmp_path):
    """The check detects a weight that is wrong by one part in ten million."""
    with precision(np.float64):
        reference = build_reference(pendulum_twin(), SPEC, samples=1, horizon=20)
        files = write_source(reference.step, tmp_path)
    text = files[0].read_text()
    found = re.search(r"static const double pendulum_c\d+\[\d+\] = \{\s+([-.e\d]+)", text)
    assert found is not None
    weight = found.group(1)
    files[0].write_text(text.replace(weight, repr(float(weight) * (1 + 1e-7))))
    _, drift = compare_library(build(find_compiler() or "", files[:1], tmp_path / "p.so"), reference)
    assert drift > 1e-12


@needs_compiler
@pytest.mark.parametrize("outside", ["fade", "hold"])
def test_the_region_of_a_learned_part_is_exported(outside, tmp_path):
    """States are sampled inside and far outside of the region, where a network without it would differ."""

    def twin_with(region):
        part = tw.MLP(states=[0], inputs=[0], time=True, width=6, depth=1, outside=outside)
        twin = tw.Twin(tw.GreyBox(lambda x, w: w - x, part)).initialise(jr.key(0), states=1, inputs=1)
        return eqx.tree_at(
            lambda twin: twin.cell.field.residual.region, twin, Frozen(region), is_leaf=lambda node: node is None
        )

    three = jnp.ones(3)
    twin = twin_with(tw.model.Region(-three, three, 0.5 * three))
    spec = ExportSpec("part", ["x"], ["u"], ["x"], 0.1, [0.5], x_low=[-4], x_high=[4], w_low=[-1], w_high=[2])
    reports = export_twin(twin, spec, tmp_path, to=["c", "stablehlo"], samples=50, horizon=30)
    assert all(report.checked for report in reports), [report.messages for report in reports]
    other = twin_with(tw.model.Region(-9 * three, 9 * three, 0.5 * three))
    x, w = jnp.array([3.0]), jnp.zeros(1)
    assert np.abs(twin.field(0.0, x, None, w, {}) - other.field(0.0, x, None, w, {})).max() > 1e-3


@needs_compiler
@pytest.mark.parametrize(
    ("structure", "bounds"),
    [(("odd", "dissipative"), (-3.0, 3.0)), (("decreasing",), None), (("even", "positive"), (0.5, 2.0))],
    ids=lambda value: "-".join(map(str, value or ("none",))),
)
def test_a_structured_part_is_exported(structure, bounds, tmp_path):
    part = tw.MLP(states=[0], adds_to=[0], width=6, depth=1, structure=structure, bounds=bounds)
    twin = tw.Twin(tw.GreyBox(lambda x, w: w - x, part)).initialise(jr.key(0), states=1, inputs=1)
    spec = ExportSpec("part", ["x"], ["u"], ["x"], 0.1, [0.5], x_low=[-4], x_high=[4], w_low=[-1], w_high=[2])
    report = export_c(twin, spec, tmp_path, reference=build_reference(twin, spec, samples=100, horizon=50))
    assert report.checked, report.messages
    assert (report.largest_difference or 0.0) <= 1e-12
