"""Names on the console and in figures: shown as they are, whatever syntax of rich or matplotlib they contain."""

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import twinfold as tw
from twinfold.check._figures import draw_overview, draw_run
from twinfold.check._subject import Subject
from twinfold.io import ModelInfo
from twinfold.monitor._figure import draw_scores
from twinfold.workspace._display import print_metrics
from twinfold.workspace._fit import Fitted
from twinfold.workspace._simulate import SimulatedRun, plot_simulation
from twinfold.workspace._system import System

TS = np.linspace(0.0, 1.0, 5)
FORMULAS = ["$x$", r"$\undefined{$", "$$", "price [$]", "_x"]


@pytest.mark.parametrize("name", ["speed [m/s]", "[/]", "[bold]x[/bold]", ":smile:"])
def test_markup_in_the_name_of_an_output_is_text(name):
    out = io.StringIO()
    print_metrics({"twin": {"test": {f"rmse {name}": 0.1}}}, Console(file=out, width=200))
    assert f"RMSE {name}" in out.getvalue()


def texts(figure, tmp_path) -> str:
    """All texts of a figure, as it draws them."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        tw.plot.save(figure, tmp_path / "figure.svg")
    return (tmp_path / "figure.svg").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def simulated():
    """A twin and a simulation of it."""
    twin, w = tw.Twin(lambda x, w: w - x), np.cos(TS)[:, None]
    return twin, w, twin.simulate(np.ones(1), TS, w)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_in_a_name_is_text(name, simulated, tmp_path):
    twin, w, simulation = simulated
    units = {name: name, "t": name, "time": name}
    run = tw.Run(name, TS, np.asarray(simulation.ys), w=w, x0=np.ones(1))

    info = ModelInfo(states=(name,), inputs=("u",), outputs=(name,), units=units)
    fitted = Fitted(System(Path("system.py"), "", twin, (name,), units), twin, info, None)
    drawn = texts(plot_simulation(SimulatedRun(run, simulation, True, (), len(TS)), fitted), tmp_path)
    assert f">{name} [{name}]<" in drawn
    assert f">time [{name}]<" in drawn

    subject = Subject(twin, tw.Dataset((run,), (name,), ("u",)), (name,), units, 0)
    for figure in (draw_overview(subject), draw_run(subject, 0, [])):
        drawn = texts(figure, tmp_path)
        assert f">{name} [{name}]<" in drawn
        assert f">time [{name}]<" in drawn
    assert f">Run {name}<" in drawn

    row = {"score": 1.0, "running": 1.0, "limit": 2.0, "change": 0.5, "alarm": False, "run": "a", "changed": name}
    assert f">{name}<" in texts(draw_scores([row, row], 0.01), tmp_path)
