"""The examination before any training: channels and physics, against planted mistakes and against clean data."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from support.check_cases import NET, TS, bad, known, look, spring, spring_data, spring_twin

from twinfold.check import examine
from twinfold.check._channels import check_constant, check_missing, check_outliers, check_sampling, check_shapes
from twinfold.check._physics import check_inputs, check_simulation, check_stability
from twinfold.data._dataset import Dataset
from twinfold.model._fields import GreyBox
from twinfold.model._learned.mlp import MLP
from twinfold.model._twin import Twin
from twinfold.numerics._integrate.explicit import RK4


def test_clean_data_have_no_warning():
    out = examine(spring_twin(), spring_data(*spring()), units={"x": "m", "v": "m/s", "u": "N", "t": "s"})
    assert bad(out) == []
    assert out.worst in ("ok", "note")
    shapes = out.select("shapes")[0].message
    assert "2 runs" in shapes
    assert "x [m], v [m/s]" in shapes
    explained = out.select("physics")[0].detail["explained"]
    assert 0 < explained["x"] < 1
    (noise,) = out.select("noise")
    assert noise.detail["noise"]["x"] == pytest.approx(0.01, rel=0.2)
    errors = next(each.detail["errors"] for each in out.select("identify", "ok") if "errors" in each.detail)
    assert 0 < errors["k"] < 0.05
    assert any("residual on v can be identified" in each.message for each in out.select("identify"))
    assert {"overview", "run_0", "run_1"} == set(out.figures)
    text = json.dumps(out.as_dict(), allow_nan=False)
    assert json.loads(text)["counts"]["problem"] == 0
    console = Console(record=True, width=100, file=io.StringIO())
    out.show(console)
    printed = console.export_text()
    assert "physics" in printed
    assert "No problems found." in printed


# Channels


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
    _, gaps = look(check_sampling, twin, data)
    assert gaps.severity == "warning"
    assert gaps.detail["gaps"] == [{"run": "1", "from": pytest.approx(TS[79]), "to": pytest.approx(TS[120])}]
    (found,) = look(check_outliers, twin, data)
    where = {(p["run"], p["output"], round(p["t"], 3)) for p in found.detail["places"]}
    assert where == {("0", "x", 1.5), ("0", "twice", 1.5), ("1", "v", 7.5)}
    assert "t = 1.5" in found.message
    (absent,) = look(check_missing, twin, data)
    assert absent.detail["x"] == {"share": pytest.approx(4 / 362), "longest": 4}
    assert absent.severity == "note"
    words = [each.message for each in look(check_constant, twin, data)]
    assert any("still is constant" in each for each in words)
    assert any("x and twice are the same channel" in each for each in words)


def test_marks_for_missing_values_and_first_samples_without_one():
    ys, ws = spring()
    ys = ys.copy()
    ys[0, [5, 60, 61], 0] = -999.0
    ys[1, 0, 1] = np.nan
    data = spring_data(ys, ws)
    (mark,) = look(check_outliers, spring_twin(), data)
    assert (mark.severity, mark.detail) == ("problem", {"output": "x", "value": -999.0, "count": 3})
    late = look(check_missing, spring_twin(), data)[-1]
    assert late.severity == "problem"
    assert late.detail["runs"] == ["1"]


def test_irregular_sampling_is_a_note_and_an_unknown_unit_is_named():
    ts = np.sort(np.random.default_rng(0).uniform(0, 10, 201))
    data = spring_data(*spring(ts=ts), ts=ts)
    found = look(check_sampling, spring_twin(), data)
    assert [each.severity for each in found] == ["note"]
    wrong = look(check_shapes, spring_twin(), data, units={"volt": "V"})[-1]
    assert "no quantity 'volt'" in wrong.message


# Physics


def test_the_run_and_time_at_which_the_physics_fails():
    # x' = x^2 from x0 ends at t = 1 / x0.
    ts = np.linspace(0, 2, 41)
    data = Dataset.from_arrays(ts, np.ones((2, 41, 1)), x0=[[0.1], [1.0]], names=["calm", "wild"])
    twin = Twin(lambda x: x**2, initial=None, integrator=RK4(substeps=4))
    (found,) = look(check_simulation, twin, data)
    assert found.severity == "problem"
    (failed,) = found.detail["failed"]
    assert failed["run"] == "wild"
    assert failed["t"] == pytest.approx(1.0, abs=0.5)
    assert "run 'wild'" in found.message


def test_a_twin_that_does_not_fit_stops_nothing():
    out = examine(Twin(lambda x, w: -x * w[0]), Dataset.from_arrays(TS, [np.cos(TS)]), plots=False)
    (broken,) = out.select("physics")
    assert broken.severity == "problem"
    assert out.select("sampling")[0].severity == "ok"
    assert "Not checked" in out.select("stability")[0].message
    wrong = look(check_simulation, Twin(lambda x, p: p["k"] * x), spring_data(*spring()))[0]
    assert "(KeyError in test_check.py, line " in wrong.message
    fewer = examine(Twin(lambda x: -x, observe=lambda x: x[:1]), spring_data(*spring()), plots=False)
    assert "initial" in fewer.select("physics")[0].message


def test_an_unstable_explicit_step_is_named_with_its_cure():
    data = Dataset.from_arrays(TS, [np.exp(-TS)[:, None]])
    (found,) = look(check_stability, Twin(lambda x: -100.0 * x), data)
    # RK4 is stable to 2.785: 0.05 * 100 = 5 needs two substeps.
    assert found.severity == "problem"
    assert "substeps=2" in found.message
    (calm,) = look(check_stability, Twin(lambda x: -100.0 * x, integrator=RK4(substeps=3)), data)
    assert calm.severity == "ok"


@pytest.mark.slow
def test_an_input_that_nothing_looks_at():
    ys, ws = spring()
    data = Dataset.from_arrays(
        TS, list(ys), inputs=[np.concatenate([w, w[::-1]], 1) for w in ws], input_names=["u", "q"]
    )
    (found,) = look(check_inputs, spring_twin(), data)
    assert found.detail["unused"] == ["q"]
    seen = Twin(GreyBox(known, MLP(inputs=[1], zero_last=True, **NET)), params={"k": 1.0})
    assert look(check_inputs, seen, data)[0].severity == "ok"
