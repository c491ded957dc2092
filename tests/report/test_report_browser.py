"""A report in a real browser: every figure is drawn, at phone and desktop width, without any network request."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from support.figures import FIGURES
from support.report_case import HOSTILE, known_twin, make_fit, simulated_runs

import twinfold as tw
from twinfold.report import write_twin_report


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A report with all kinds of figures: two seeds, two learned inputs, two outputs of them, a constraint."""
    twin = known_twin(constraint=tw.Conserved(lambda x: x @ x))
    data = simulated_runs(known_twin(), ["one", HOSTILE, "three"])
    both = tw.MLP(width=2, depth=1)
    seeds = [_with_residual(twin, both, seed) for seed in (0, 1)]
    fit = make_fit(seeds)
    return write_twin_report(
        tmp_path_factory.mktemp("report"),
        title=f"Spring {HOSTILE}",
        twin=fit.twin,
        fit=fit,
        train=data.select(["one", "three"]),
        test=data.select([HOSTILE]),
        metrics={"twin": {"test": {"rmse": 0.1}}},
        config={"fit": {"seeds": 2}},
        info={},
        units={"x": f"$x$ {HOSTILE}"},  # not a formula: plotly would complain that it cannot set it
    )


def _with_residual(twin: tw.Twin, residual: tw.MLP, seed: int) -> tw.Twin:
    changed = eqx.tree_at(lambda twin: twin.cell.field.residual, twin, residual)
    return changed.initialise(jax.random.key(seed), states=2, inputs=1, dtype=jnp.float64)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_every_figure_is_drawn_and_nothing_overflows(browser, index, width, height):
    page = browser.new_page(viewport={"width": width, "height": height})
    said, asked = [], []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(index.as_uri())
    page.wait_for_function("document.querySelectorAll('.plot:not(.js-plotly-plot)').length === 0")
    figures = {figure["id"]: figure for figure in page.evaluate(FIGURES)}
    learned = [f"learned-0-{index}" for index in range(4)]
    assert set(figures) == {
        "output-0",
        "output-1",
        "residual-0",
        "residual-1",
        "inputs",
        *learned,
        "violation",
        "training-curves",
    }
    for figure in figures.values():
        assert figure["marks"] >= 1, figure
        assert figure["width"] > 300, figure
        assert figure["height"] > 100, figure
        assert figure["right"] <= width, figure
    assert page.evaluate("document.documentElement.scrollWidth") <= width

    first = page.evaluate("document.getElementById('output-0').data[3].y.slice()")
    page.select_option("#run", label="training: one")
    assert page.evaluate("document.getElementById('output-0').data[3].y.slice()") != first
    before = page.evaluate("document.getElementById('learned-0-0').data[0].z[3].slice()")
    page.select_option("#learned-0", label="dv/dt")
    assert page.evaluate("document.getElementById('learned-0-0').data[0].z[3].slice()") != before
    # Zoomed in one output, the others show the same stretch of time.
    page.evaluate("Plotly.relayout('output-0', {'xaxis.range[0]': 0.5, 'xaxis.range[1]': 1.0})")
    page.wait_for_function("document.getElementById('inputs').layout.xaxis.range[0] === 0.5")

    # Of plotly's buttons none sends the figure anywhere.
    titles = page.eval_on_selector_all(".modebar-btn", "all => all.map(one => one.getAttribute('data-title'))")
    assert set(titles) == {"Zoom", "Pan", "Reset axes", "Download plot as a PNG"}

    page.set_viewport_size({"width": 700, "height": 800})
    page.wait_for_function("document.getElementById('output-0').querySelector('.main-svg').clientWidth > 500")
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


@pytest.mark.slow
def test_it_can_be_read_without_a_script(browser, index):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(index.as_uri())
    words = page.inner_text("main")
    for said in ("need JavaScript", "Accuracy", "the twin's RMSE is 0.10", "not given", "predictions.csv"):
        assert said in words
    context.close()
