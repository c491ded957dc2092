"""Reports: the numbers behind the figures against known functions, and the text of the page."""

import csv
import json
import math
import re
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.report_case import HOSTILE, friction, known_twin, make_fit, simulated_runs

import twinfold as tw
from twinfold.identify._uncertainty import uncertainty
from twinfold.report import format_number, write_twin_report
from twinfold.report._estimates import ParameterEstimate, estimate_parameters
from twinfold.report._learned_parts import Samples, describe_parts, sample_states
from twinfold.report._metrics import metric_tables, metric_units
from twinfold.report._predictions import thin
from twinfold.report._response_figures import response_figures, unsupported_intervals
from twinfold.report._responses import MARGIN, SUPPORT_RADIUS, is_supported_inside, part_function, response
from twinfold.report._summary import _learned_part, _openings, _slacks, slack_verdict
from twinfold.report._tables import parameter_table

METRICS = {
    "twin": {"test": {"rmse": 0.0123, "failed": 0.0}, "train": {"rmse": {"mean": 0.0101, "std": 0.0007}}},
    "fitted physics": {"test": {"rmse": 0.00912, "failed": 0.0}},
    "constant": {"test": {"rmse": 0.987, "failed": 1.0}},
}


def at_speeds(v):
    """Samples of a spring whose speeds are given."""
    x = np.stack([np.linspace(-1.0, 1.0, len(v)), v], axis=1)
    return Samples(np.zeros(len(v)), x, np.zeros((len(v), 1)), np.zeros(len(v), int))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report with hostile names."""
    twin = known_twin()
    data = simulated_runs(twin, ["one", HOSTILE, "three"])
    folder = tmp_path_factory.mktemp("report") / "report"
    index = write_twin_report(
        folder,
        title=f"Spring {HOSTILE}",
        twin=twin,
        train=data.select(["one", "three"]),
        test=data.select([HOSTILE]),
        metrics=METRICS,
        config={"data": {"files": [HOSTILE]}, "fit": {"seeds": 3}},
        info={"versions": {"twinfold": tw.__version__}, HOSTILE: 1},
        states=["x", f"v{HOSTILE}"],
        units={"x": HOSTILE, "time": "s"},
    )
    return data, index.read_text(encoding="utf-8"), folder


def content(page):
    """The data that the script of a page draws."""
    found = re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_known_residual_is_drawn_with_its_values_and_greyed_outside_the_data():
    """tanh with weights set by hand; speeds in [-1, 2] with nothing between 0.2 and 1."""
    v = np.concatenate([np.linspace(-1.0, 0.2, 60), np.linspace(1.0, 2.0, 60)])
    twin = known_twin()
    (part,) = describe_parts(twin, at_speeds(v), ["x", "v"], ["push"])
    assert (part.inputs, part.outputs, part.weights) == (("v",), ("dv/dt",), 4)
    found = response(twin, None, part)
    (curve,) = found.curves
    np.testing.assert_allclose(curve.values[:, 0], friction(curve.x), rtol=1e-12)
    span = 3.0
    np.testing.assert_allclose(curve.x[[0, -1]], [-1 - MARGIN * span, 2 + MARGIN * span])
    near = SUPPORT_RADIUS * span
    expected = ((curve.x >= -1) & (curve.x <= 0.2 + near)) | ((curve.x >= 1 - near) & (curve.x <= 2))
    np.testing.assert_array_equal(curve.supported, expected)

    (figure,) = response_figures(found, 0, {})
    traces = {trace["name"]: trace for trace in figure["data"]}
    drawn = np.array(traces["learned"]["y"], float)
    np.testing.assert_allclose(drawn[curve.supported], friction(curve.x)[curve.supported], rtol=1e-5)
    assert np.isnan(drawn[~curve.supported]).all()
    grey = [(shape["x0"], shape["x1"]) for shape in figure["layout"]["shapes"]]
    step = curve.x[1] - curve.x[0]
    np.testing.assert_allclose(grey, [(curve.x[0], -1), (0.2 + near, 1 - near), (2, curve.x[-1])], atol=step)
    assert grey[0][1] == -1
    assert grey[-1][0] == 2
    assert sum(traces["samples"]["y"]) == len(v)


def test_points_without_data_near_are_not_supported():
    at = np.array([-0.1, 0.0, 0.04, 0.5, 0.97, 1.0, 1.01])
    np.testing.assert_array_equal(is_supported_inside(at, np.array([0.0, 1.0])), [0, 1, 1, 0, 1, 1, 0])
    np.testing.assert_array_equal(is_supported_inside(np.array([2.9, 3.0]), np.array([3.0, 3.0])), [0, 1])
    assert unsupported_intervals(np.arange(5.0), np.array([True, True, False, False, True])) == [(1.0, 4.0)]
    assert unsupported_intervals(np.arange(4.0), np.array([False, True, True, False])) == [(0.0, 1.0), (2.0, 3.0)]


def test_a_residual_of_more_inputs_has_a_surface_over_the_two_most_influential():
    """tanh(x2 + 0.5 w) and nothing of x0: the surface is over x2 and w, grey away from the diagonal of the data."""
    residual = tw.MLP(states=[2, 0], inputs=[1], adds_to=[1], width=1, depth=1, time=True)
    twin = tw.Twin(tw.GreyBox(lambda x: 0 * x, residual=residual)).initialise(jax.random.key(0), states=3, inputs=2)
    weights = jnp.array([[1.0, 0.0, 0.5, 0.0]])
    values = [weights, jnp.zeros(1), jnp.array([[2.0]]), jnp.array([0.3])]
    twin = eqx.tree_at(
        lambda twin: [
            leaf for layer in twin.cell.field.residual.network.weights.layers for leaf in (layer.weight, layer.bias)
        ],
        twin,
        values,
    )
    t = np.linspace(0, 1, 400)
    samples = Samples(t, np.stack([t**2, t, t], 1), np.stack([t, 2 * t], 1), np.zeros(400, int))
    (part,) = describe_parts(twin, samples, ["a", "b", "c"], ["u", "w"])
    assert part.inputs == ("c", "a", "w", "time")
    found = response(twin, None, part)
    assert [part.inputs[curve.input] for curve in found.curves[:2]] == ["c", "w"]
    surface = found.surface
    assert surface is not None
    assert [part.inputs[index] for index in surface.inputs] == ["c", "w"]
    grid = np.tanh(surface.x[None, :] + 0.5 * surface.y[:, None])
    np.testing.assert_allclose(surface.values[:, :, 0], 2 * grid + 0.3, rtol=1e-12)
    x, y = np.meshgrid(surface.x, surface.y / 2)  # in parts of the ranges, 1 and 2
    away = np.abs(x - y) / np.sqrt(2)
    inside = (x + y > 0) & (x + y < 2)
    np.testing.assert_array_equal(surface.supported[inside], away[inside] <= SUPPORT_RADIUS + 1e-4)
    assert not surface.supported[(x + y < -0.2) | (x + y > 2.2)].any()
    whole = part_function(twin.cell.field.residual)
    x0, w0 = jnp.array([0.1, 0.2, 0.3]), jnp.array([0.4, 0.5])
    assert whole(jnp.array([0.3, 0.1, 0.5, 0.6]))[0] == pytest.approx(twin.cell.field.residual(0.6, x0, w0)[1])


def test_the_response_of_a_scaled_network_is_in_physical_units():
    scaling = tw.model.Scaling(jnp.array([0.4]), jnp.array([2.0]), jnp.array([30.0]))
    residual = tw.MLP(states=[1], adds_to=[0], width=3, depth=1, scaling=scaling)
    twin: Any = tw.Twin(tw.GreyBox(lambda x: 0 * x, residual=residual)).initialise(jax.random.key(0), states=2)
    law = twin.cell.field.residual
    value = float(law(jnp.array(0.0), jnp.array([0.1, 0.7]))[0])
    assert part_function(law)(jnp.array([0.7]))[0] == pytest.approx(value, rel=1e-12)


def test_inputs_of_a_network_inside_a_users_function_are_recorded():
    def field(x, p):
        return -p["law"](x[1:] * 3.0)[0] * x

    class Field(eqx.Module):
        law: tw.Network

        def __call__(self, t, x, z, w, p):
            return field(x, {"law": self.law})

    twin: Any = tw.Twin(Field(tw.Network(1, 1, 3, 1))).initialise(jax.random.key(0), states=2)
    v = np.linspace(-1.0, 2.0, 50)
    (part,) = describe_parts(twin, at_speeds(v), ["x", "v"], [])
    np.testing.assert_allclose(np.sort(part.samples[:, 0]), 3 * v, rtol=1e-12)
    curve = response(twin, None, part).curves[0]
    np.testing.assert_allclose(curve.values, jax.vmap(twin.field.law)(jnp.asarray(curve.x)[:, None]), rtol=1e-12)


def test_hidden_states_are_simulated():
    twin = known_twin(observe=lambda x: x[:1])
    full = simulated_runs(known_twin(), ["one"], noise=0.0)
    data = tw.Dataset.from_arrays(
        full.runs[0].ts, [full.runs[0].y[:, :1]], inputs=[full.runs[0].w], x0=[full.runs[0].x0]
    )
    samples = sample_states(twin, data)
    measured = np.isfinite(full.runs[0].y[:, 1])
    np.testing.assert_allclose(samples.x[measured, 1], full.runs[0].y[measured, 1], rtol=1e-9)


def test_standard_errors_are_those_of_the_linear_model():
    """y = a t + noise, b unused: the error of a is s / sqrt(sum t^2), and the data do not identify b."""
    ts = np.linspace(0.1, 2.0, 200)
    y = 1.5 * ts[:, None] + 0.1 * np.random.default_rng(0).normal(size=(200, 1))
    data = tw.Dataset.from_arrays(ts, [y], x0=[[0.0]])
    a = float((ts @ y[:, 0]) / (ts @ ts))
    twin = tw.Twin(
        lambda x: 0 * x,
        params={"a": tw.Unknown(a, positive=True), "b": tw.Unknown([4.0, 5.0])},
        observe=lambda t, x, p: p["a"] * t,
    )
    problems = []
    found = {each.name: each for each in estimate_parameters(twin, None, data, {}, problems)}
    expected = uncertainty(y[:, 0] - a * ts, ts[:, None], ["a"])
    assert found["a"].value == pytest.approx(a)
    assert found["a"].error == pytest.approx(expected.errors["a"], rel=0.02)
    assert found["a"].error == pytest.approx(expected.noise / np.sqrt(ts @ ts), rel=0.25)
    assert list(found) == ["a", "b[0]", "b[1]"]
    assert math.isinf(found["b[0]"].error)
    assert math.isnan(found["a"].inflation)
    assert problems == []


def test_thinning_keeps_the_largest_error():
    left = np.full((10_000, 2), 1e-3)
    left[7777, 1], left[5] = -4.0, np.nan
    keep = thin(left, 300)
    assert len(keep) <= 302
    assert {0, 7777, 9999} <= set(keep.tolist())
    np.testing.assert_array_equal(thin(left[:50], 300), np.arange(50))


def test_the_numbers_of_the_page_are_those_given(report):
    data, page, folder = report
    for value in (0.0123, 0.0101, 0.00912, 0.987):
        assert format_number(value, 3) in page
    assert "0.0101 ± 7.0e-4" in page
    found = {(row["model"], row["split"], row["metric"]): row["value"] for row in rows(folder / "metrics.csv")}
    assert float(found["twin", "test", "rmse"]) == 0.0123
    assert found["pure physics", "test", "rmse"] == ""
    assert '<th scope="row">pure physics</th><td>not given</td>' in page
    drawn = content(page)
    runs = {run["name"]: run for run in drawn["runs"]}
    assert [run["split"] for run in drawn["runs"]] == ["test", "train", "train"]
    np.testing.assert_allclose(runs["three"]["measured"], data.runs[2].y.T, rtol=1e-5)
    assert runs["one"]["measured"][1][5:8] == [None] * 3
    twin = known_twin()
    ys = np.asarray(twin.simulate(data.runs[2].x0, data.runs[2].ts, data.runs[2].w).ys)
    np.testing.assert_allclose(runs["three"]["predicted"], ys.T, rtol=1e-5)
    np.testing.assert_allclose(runs["three"]["residual"], (data.runs[2].y - ys).T, rtol=1e-3)
    per_run = {row["run"]: row for row in rows(folder / "runs.csv")}
    assert float(per_run["three"]["rmse v"]) == pytest.approx(np.sqrt(np.mean((data.runs[2].y - ys)[:, 1] ** 2)))
    assert len(rows(folder / "predictions.csv")) == 3 * 25 * 2


def test_the_summary_states_whether_the_twin_is_better_or_worse(report):
    page = report[1]
    assert "the twin&#39;s RMSE is 0.0123." in page
    assert "0.00912. The twin is WORSE: its error is higher by 35%." in page  # than fitted physics
    assert "0.987. The twin&#39;s error is lower by a factor of 80." in page  # than a constant
    assert re.search(r"Baseline &#39;pure physics&#39; \([^)]*\): not given\.", page)
    assert "There is only one seed" in page
    assert "1 → 1 → 1 network with 4 weights; inputs v" in page
    assert "k = 2 ± " in page
    assert "explicit Runge-Kutta method of order 4" in page
    assert "It has no constraint." in page
    assert "No training history was given." in page


def test_nothing_that_a_user_named_is_executed(report):
    page = report[1]
    assert HOSTILE not in page
    assert page.count("<script") == 3  # the data, plotly, and the page's own
    assert "alert('run')</script>" not in page
    assert "&lt;script&gt;alert(&#39;run&#39;)&lt;/script&gt;" in page
    drawn = content(page)
    assert drawn["outputs"]["output-0"]["layout"]["yaxis"]["title"]["text"] == (
        "x [&lt;script&gt;alert('run')&lt;/script&gt;]"  # plotly reads tags in its labels
    )


def test_nothing_comes_from_the_network(report):
    page, folder = report[1], report[2]
    assert re.findall(r'src="([^"]*)"', page) == ["plotly.min.js"]
    assert not re.search(r"(?:src|href)=['\"]?(?:https?:)?//", page)
    assert (folder / "plotly.min.js").stat().st_size > 1_000_000
    assert "<noscript>" in page


@pytest.mark.slow
def test_a_fit_adds_spread_training_curves_and_the_violation(tmp_path):
    """Two seeds: the band is from the lower to the higher of them; the constraint is monitored."""
    first = known_twin(constraint=tw.Conserved(lambda x: x @ x))
    bias: Any = lambda twin: twin.cell.field.residual.network.weights.layers[-1].bias  # noqa: E731
    fit = make_fit([first, eqx.tree_at(bias, first, jnp.array([0.05]))])
    data = simulated_runs(first, ["one", "two"], samples=12)
    index = write_twin_report(
        tmp_path, title="t", twin=fit.twin, fit=fit, train=data, metrics={}, config={"loss": {"l2": 1e-6}}, info={}
    )
    page = index.read_text(encoding="utf-8")
    drawn = content(page)
    both = tw.predict(fit, data).predicted
    np.testing.assert_allclose(drawn["runs"][1]["low"], both[:, 1].min(axis=0).T, rtol=1e-5)
    np.testing.assert_allclose(drawn["runs"][1]["high"], both[:, 1].max(axis=0).T, rtol=1e-5)
    (curve,) = drawn["choices"]["learned-0"][0]
    low, high, best = (np.array(curve["data"][i]["y"], float) for i in (0, 1, 3))
    assert (low <= high).all()
    inside = np.isfinite(best)
    each = np.minimum(np.abs(best - low), np.abs(best - high))[inside]
    np.testing.assert_allclose(each, 0, atol=1e-5)  # of two seeds, one is the best
    training = drawn["figures"]["training-curves"]
    np.testing.assert_allclose(training["data"][0]["y"], fit.history["loss"][:, 0], rtol=1e-4)
    assert [shape["x0"] for shape in training["layout"]["shapes"]] == [3.5]
    violation = drawn["figures"]["violation"]["data"][0]["y"]
    largest = tw.predict(fit.twin, data).relative_violation[0, 0, :, 0]
    np.testing.assert_allclose(violation[1:12], largest[1:], rtol=5e-3)
    assert violation[12] is None
    assert "monitored but not enforced" in page
    assert "No error of the twin was given" in page
    assert float(rows(tmp_path / "parameters.csv")[0]["inflation"]) >= 1


def test_bands_are_drawn_for_the_runs_that_have_one(tmp_path):
    ts = np.linspace(0, 1, 6)
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0)})
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts), np.exp(-2 * ts)], names=["a", "b"], output_names=["x"])
    given = {"title": "t", "twin": twin, "train": data, "metrics": {}, "config": {}, "info": {}}
    y = np.exp(-ts)[:, None]
    page = write_twin_report(
        tmp_path / "with", **given, bands={"train": [(y - 0.1, y + 0.2)]}, probability=0.95
    ).read_text(encoding="utf-8")
    assert "contains a measurement with a probability of 95 %." in page
    first, second = content(page)["runs"]
    np.testing.assert_allclose([*first["lower"], *first["upper"]], [y[:, 0] - 0.1, y[:, 0] + 0.2], rtol=1e-5)
    assert second["lower"] == second["upper"] == [[None] * 6]
    # Around the prediction, which is exp(-t) here, and around the residual.
    np.testing.assert_allclose(first["lower residual"][0], -0.1, atol=1e-4)
    np.testing.assert_allclose(first["upper residual"][0], 0.2, atol=1e-4)
    drawn = [each for each in content(page)["outputs"]["output-0"]["data"] if each["name"] == "95 % band"]
    assert [(each["column"], each.get("yaxis")) for each in drawn] == [
        (["upper", 0], None),
        (["upper residual", 0], "y2"),
    ]
    without = write_twin_report(tmp_path / "without", **given).read_text(encoding="utf-8")
    assert "grey band" not in without
    assert "lower" not in content(without)["runs"][0]


def test_a_split_that_cannot_be_predicted_is_reported_and_the_rest_is_written(tmp_path):
    def decay(x, p):
        return -p["k"] * x

    twin = tw.Twin(decay, params={"k": tw.Unknown(1.0)})
    ts = np.linspace(0, 1, 6)
    headless = np.where(ts == 0, np.nan, np.exp(-ts))
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts), np.exp(-2 * ts), headless], names=["a", "b", "c"])
    index = write_twin_report(
        tmp_path,
        title="t",
        twin=twin,
        train=data.select(["a", "b"]),
        test=data.select(["c"]),
        metrics={"twin": {"train": {"rmse": 0.1}}},
        config={},
        info={},
    )
    page = index.read_text(encoding="utf-8")
    assert "The test runs could not be predicted: data: the initial state of run &#39;c&#39; cannot be formed" in page
    assert [run["name"] for run in content(page)["runs"]] == ["a", "b"]
    assert "No test error was given" in page
    assert [row["name"] for row in rows(tmp_path / "parameters.csv")] == ["k"]
    assert "The twin has no learned part." in page


def test_a_run_that_diverges_is_reported_and_does_not_extend_the_range_of_the_data(tmp_path):
    """x' = x^2 from 1 is infinite at t = 1; from 0.1 it ends at 0.1 / (1 - 0.2)."""
    ts = np.linspace(0, 2, 21)
    twin = tw.Twin(lambda x: x**2, observe=lambda x: x)
    data = tw.Dataset.from_arrays(ts, np.full((2, 21, 1), 0.1), x0=[[1.0], [0.1]], names=["far", "near"])
    index = write_twin_report(tmp_path, title="t", twin=twin, train=data, metrics={}, config={}, info={})
    page = index.read_text(encoding="utf-8")
    assert "The training run &#39;far&#39; failed at t = 1." in page
    assert "&#39;near&#39; failed" not in page
    assert content(page)["runs"][0]["predicted"][0][-1] is None
    assert sample_states(twin, data).x.max() == pytest.approx(0.125, rel=1e-6)


def test_mistakes_are_named(tmp_path, monkeypatch):
    twin = known_twin()
    given = {"title": "t", "twin": twin, "train": simulated_runs(twin, ["a"]), "metrics": {}, "config": {}, "info": {}}
    with pytest.raises(ValueError, match=r"states: 1 names \(x\) for 2 states"):
        write_twin_report(tmp_path, states=["x"], **given)
    for names in ({"states": ["x", "\x1b[2J"]}, {"units": {"x": "m\x00"}}):
        with pytest.raises(ValueError, match="control character"):
            write_twin_report(tmp_path, **names, **given)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"pip install 'twinfold\[report\]'"):
        write_twin_report(tmp_path, **given)
    assert list(tmp_path.iterdir()) == []


def test_a_value_smaller_than_its_error_is_flagged_and_openings_are_stated():
    sure, unsure, lost = (ParameterEstimate("k", -2.0, 1.0, error) for error in (1.9, 2.1, math.inf))
    assert (sure.flag, unsure.flag, lost.flag) == ("", "the error exceeds the value", "not identifiable")
    cells = parameter_table([sure, unsure], {"k": "N/m"}).rows
    assert [row[0] for row in cells] == ["k [N/m]"] * 2
    assert [row[-1] for row in cells] == ["", "the error exceeds the value"]
    assert _openings({"fit": 1}) == "The test data were opened once so far (fit 1), by one fit."
    assert "4 times so far (fit 3, report 1), by 3 fits: if their errors decided" in _openings({"fit": 3, "report": 1})


def test_metrics_have_the_unit_of_their_outputs():
    assert metric_units(["a", "b"], {"a": "m", "b": "m", "time": "s"}) == {
        "rmse": "m",
        "mae": "m",
        "valid_time": "s",
        "rmse a": "m",
        "rmse b": "m",
    }
    assert metric_units(["a", "b"], {"a": "m", "b": "V"}) == {"rmse a": "m", "rmse b": "V"}
    metrics = {
        name: {"test": {"fit_percent": fit, "rmse a": 1.0}} for name, fit in (("twin", 90.0), ("constant", -3.0))
    }
    overall, by_output = metric_tables(metrics, "test", {"rmse a": "m"})
    assert overall.columns == ["", "FIT %"]
    assert overall.best == [(0, 1)]  # the highest
    assert by_output.columns == ["", "RMSE a [m]"]


def test_the_residual_is_tested_on_a_held_out_run(report):
    _, page, _ = report
    (sentence,) = re.findall(r"<p>(On the test run .*residual of x .*)</p>", page)
    assert "&lt;script&gt;" in sentence
    figures = content(page)["figures"]
    assert {"residual-0", "residual-1"} <= set(figures)
    drawn = figures["residual-0"]["data"][2]
    assert drawn["x"] == list(range(1, 7))  # a quarter of its 24 samples


@pytest.mark.parametrize(
    ("size", "share", "verdict"),
    [(0.1, "0.99", "confirm it."), (1.0, "0.5", "in part."), (30.0, "0.0011", "contradict it")],
)
def test_the_slack_of_a_constraint_is_explained(size, share, verdict):
    sentence = slack_verdict(size)
    assert f"by {share} of the way" in sentence
    assert verdict in sentence
    assert f"{size:.3g} ± 0.02:" in slack_verdict(size, 0.0203)
    assert "±" not in sentence


def test_each_slack_of_a_stack_has_its_own_sentence():
    size = tw.Unknown(0.5, positive=True)
    stack = tw.Stack([tw.Constraint(lambda x: x[0]), tw.Slack(tw.Constraint(lambda x: x[1]), size)])
    estimates = [ParameterEstimate("cell.constraint.parts[1].size", 0.5, 1.0, 0.04)]
    (sentence,) = _slacks(stack, estimates)
    assert sentence.startswith("The part parts[1] of the constraint has a slack of 0.5 ± 0.04: ")
    assert not _slacks(tw.Slack(stack.parts[0], 0.5), [])  # given, not estimated


def test_a_twin_with_estimates_is_not_said_to_have_no_unknowns(report):
    _, page, _ = report
    assert "Estimated parameters: k = " in page
    assert "no unknown parameters" not in page


def test_what_is_true_of_a_part_by_construction_is_said():
    part = tw.MLP(states=[0], adds_to=[0], width=2, depth=1, structure=["odd", "dissipative"], bounds=(-2.0, 2.0))
    twin = tw.Twin(tw.GreyBox(lambda x: -x, part)).initialise(jax.random.key(0), states=1)
    samples = Samples(np.zeros(3), np.ones((3, 1)), None, np.zeros(3, int))
    (described,) = describe_parts(twin, samples, ["v"], [])
    sentence = _learned_part(described)
    assert "with 7 weights, odd, dissipative, from -2 to 2 by construction; inputs v; added to dv/dt." in sentence
    two = Samples(np.zeros(3), np.ones((3, 2)), None, np.zeros(3, int))
    (plain,) = describe_parts(known_twin(), two, ["x", "v"], ["w"])
    assert "construction" not in _learned_part(plain)
