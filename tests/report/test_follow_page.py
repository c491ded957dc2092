"""The page about plants: what it says, and, in a real browser, that it is drawn and that names are harmless."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from support.figures import FIGURES
from support.report_case import HOSTILE

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise
from twinfold.follow import Fleet, InnovationAlarms
from twinfold.follow._following import Following
from twinfold.follow._history import MAX_SAMPLES, MAX_SHOWN, History
from twinfold.follow._rows import Rows
from twinfold.follow._samples import Sample
from twinfold.report._follow_page import write_follow_page

SICK = f"sick {HOSTILE}"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Three assets, of which one with a hostile name goes wrong."""
    twin = tw.Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
        params={"k": tw.Unknown(2.0, positive=True, spread=0.1)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
        integrator=tw.Midpoint(),
    )
    estimator = ExtendedKalmanFilter(twin, Noise([0.0, 0.1], [0.05], drift={"k": 0.02}), gate=1e-6)
    fleet = Fleet(estimator, std=[0.05, 0.5])
    rows = Rows("t", ["y"], ["x", "v"], fleet.parameters, 0.9)
    history = History(rows.numbers)
    alarms = InnovationAlarms(["y"], window=20, false_alarm_rate=1e-4, gate=1e-6)
    following = Following(fleet, alarms, rows, key="", watch=history.record)
    rng = np.random.default_rng(0)
    for k in range(300):
        t = 0.05 * k
        y = np.cos(np.sqrt(2) * t) + 0.05 * rng.normal(size=3)
        y[1] += 2.0 if k == 100 else 0.0
        y[2] += 0.4 * np.sin(9 * t) if k > 150 else 0.0
        samples = [Sample(k, name, t, (), (float(v),)) for name, v in zip(("one", "two", SICK), y, strict=True)]
        for _ in following.take(samples):
            pass
    return write_follow_page(
        tmp_path_factory.mktemp("page"),
        history,
        title=f"Plants {HOSTILE}",
        outputs=["y"],
        states=["x", "v"],
        parameters=fleet.parameters,
        units={"y": f"m {HOSTILE}"},
        probability=0.9,
        false_alarm_rate=1e-4,
        window=20,
    )


def test_it_says_what_happened_and_escapes_names(index):
    page = index.read_text()
    assert "<script>alert" not in page
    assert "900 samples of 3 assets" in page
    assert re.search(r"Alarms now: sick", page)
    assert (index.parent / "plotly.min.js").exists()


def test_the_history_is_bounded_and_keeps_those_with_alarms():
    history = History(["t"])

    def give(names, t, raised):
        count = len(names)
        numbers = np.full((count, 1), t)
        one = np.zeros((count, 1))
        t_all, none, yes = numbers[:, 0], one[:, :0], np.ones(count, bool)
        known = (one, one, one, one, one, one > 1, t_all, none, none, yes)
        out = tw.follow.FleetOutput(np.arange(count), t_all, *known, [""] * count)
        mark = np.array([name == raised for name in names])
        history.record(names, numbers, out, tw.follow.Judged(numbers[:, 0], numbers[:, 0], mark, mark))

    many = [f"asset {k}" for k in range(MAX_SHOWN + 10)]
    give(many, 0.0, "")
    assert list(history.shown) == many[:MAX_SHOWN]
    give(many, 1.0, many[-1])
    assert many[-1] in history.shown
    assert len(history.shown) == MAX_SHOWN
    for k in range(MAX_SAMPLES + 7):
        give(["asset 5"], 2.0 + k, "")
    kept = history.samples("asset 5")[:, 0]
    assert len(kept) == MAX_SAMPLES
    assert kept[-1] == 2.0 + MAX_SAMPLES + 6
    assert (np.diff(kept) == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 900)])
def test_in_a_browser(browser, index, width, height):
    page = browser.new_page(viewport={"width": width, "height": height})
    said, asked = [], []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(index.as_uri())
    page.wait_for_function("document.querySelectorAll('.plot:not(.js-plotly-plot)').length === 0")
    figures = {each["id"]: each for each in page.evaluate(FIGURES)}
    assert set(figures) == {"output-0", "alarm", "parameter-0", "state-0", "state-1"}
    for each in figures.values():
        assert each["marks"] >= 1, each
        assert each["width"] > 300, each
        assert each["right"] <= width, each
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.input_value("#run") == "0"
    assert page.inner_text("#run option:first-child") == SICK
    first = page.evaluate("document.getElementById('output-0').data[2].y.slice()")
    page.select_option("#run", label="two")
    assert page.evaluate("document.getElementById('output-0').data[2].y.slice()") != first
    refused = page.evaluate("document.getElementById('output-0').data[4].y.filter(each => each !== null).length")
    assert refused == 1
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()
