"""The sections of a report: words and tables that stand by themselves, and places for the figures."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.numerics import Unconstrained
from twinfold.report import _figures as figures
from twinfold.report import _learned_figures as learned_figures
from twinfold.report import _words as words
from twinfold.report._estimates import Estimated
from twinfold.report._learned import Learned
from twinfold.report._page import grid, number, pairs, text
from twinfold.report._scores import BASELINES, names_of, splits_of, table
from twinfold.report._seen import Part
from twinfold.report._tables import run_rows
from twinfold.report._words import Facts
from twinfold.train import Fit

NAMES = {
    "results": "Results",
    "trajectories": "Trajectories",
    "learned": "What was learned",
    "parameters": "Parameters",
    "constraint": "Constraint",
    "training": "Training",
    "settings": "Configuration",
    "files": "Files",
}


class Data:
    """What the script of the page draws, gathered while the sections are written."""

    def __init__(self, runs: list[dict[str, Any]]):
        self.content: dict[str, Any] = {"runs": runs, "figures": {}, "outputs": {}, "choices": {}}


def summary(title: str, facts: Facts) -> str:
    """Title, links, and what there is to say in words."""
    links = "".join(f"<a href='#{key}'>{text(name)}</a>" for key, name in NAMES.items())
    said = "".join(
        f"<h3>{heading}</h3>" + "".join(f"<p>{text(line)}</p>" for line in lines)
        for heading, lines in (
            ("What it is", words.what_it_is(facts)),
            ("How good it is", words.how_good(facts)),
            ("What failed", words.what_failed(facts)),
            ("What to be careful about", words.careful(facts)),
        )
    )
    return (
        f"<header><p class='soft'>twinfold report</p><h1>{text(title)}</h1></header><nav>{links}</nav>"
        f"<div class='words'>{said}</div>"
        "<noscript><p><strong>The figures of this page need JavaScript, which is switched off.</strong> All that they "
        "show is also in the words and tables here and in the CSV files beside this page.</p></noscript>"
    )


def scores(metrics: Mapping[str, Any]) -> str:
    """The twin beside its baselines, a table for each split."""
    parts = [_title("results")]
    for split in splits_of(metrics):
        if names_of(metrics, split):
            parts.append(f"<h3>{text(split)} data</h3>{table(metrics, split)}")
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in BASELINES.items())
    parts.append(
        f"<p class='soft'>Mean over the runs, each predicted from its initial state and its inputs alone. "
        f"{text(meanings)}. The best of a column stands out.</p>"
    )
    return "".join(parts) if len(parts) > 2 else f"{parts[0]}<p>No metrics were given.</p>"


def trajectories(data: Data, facts: Facts, units: Mapping[str, str], cut: Mapping[str, Dataset]) -> str:
    """Each output of a chosen run, what is left of it, and its inputs."""
    runs, train = data.content["runs"], facts.train
    if not runs:
        return f"{_title('trajectories')}<p>No run could be predicted.</p>"
    bands = any("low" in run for run in runs)
    places = []
    for index, name in enumerate(train.output_names):
        data.content["outputs"][f"output-{index}"] = figures.output(index, name, units, bands=bands)
        places.append(f"<h3>{text(name)}</h3>{_plot(f'output-{index}', f'{name} over time')}")
    if train.input_names:
        data.content["outputs"]["inputs"] = figures.inputs(
            train.input_names, units, facts.twin.cell.input_interpolation
        )
        places.append(f"<h3>inputs</h3>{_plot('inputs', 'inputs over time')}")
    options = "".join(
        f"<option value='{place}'>{text(run['split'])}: {text(run['name'])}</option>" for place, run in enumerate(runs)
    )
    more = "".join(f" {len(each)} more {split} runs are left out of this page." for split, each in cut.items())
    rows = [
        [name, split, str(samples), *(number(value) for value in rmse), "failed" if failed else ""]
        for split, name, samples, *rmse, failed in run_rows(facts.shown)
    ]
    columns = ["run", "split", "samples", *(f"RMSE {name}" for name in train.output_names), ""]
    seeds = " The band is from the lowest to the highest of all seeds." if bands else ""
    return (
        f"{_title('trajectories')}<div class='pick'><label for='run'>Run</label>"
        f"<select id='run'>{options}</select></div>"
        f"<p class='soft'>Dots: measured. Line: the twin, from the initial state and the inputs alone. Under it: "
        f"measured minus twin. Drag to zoom, double-click to go back; on a touch screen tap a figure for its "
        f"buttons.{seeds}{text(more)}</p>"
        + "".join(places)
        + f"<details><summary>All runs in numbers</summary><div class='tall'>{grid(columns, rows)}</div></details>"
    )


def learned(data: Data, found: Sequence[Learned], parts: Sequence[Part], units: Mapping[str, str]) -> str:
    """Curves and heat maps of every learned part, and the same in words."""
    body = [_title("learned")]
    if not parts:
        return f"{body[0]}<p>The twin has no learned part.</p>"
    body.append(
        "<p class='soft'>In colour: where training data are near. Grey: extrapolation, where it is a guess. The bars "
        "and small dots are the samples of the training data. A curve is drawn with the other inputs at their "
        "median.</p>"
    )
    for place, each in enumerate(found):
        body.append(_learned_part(data, f"learned-{place}", each, units))
    drawn = {each.part.place for each in found}
    for part in parts:
        if part.place not in drawn:
            body.append(f"<h3>{text(part.title)}</h3><p>It is not drawn: what it sees cannot be told from outside.</p>")
    return "".join(body)


def _learned_part(data: Data, key: str, found: Learned, units: Mapping[str, str]) -> str:
    part = found.part
    choices = [learned_figures.figures(found, output, units) for output in range(len(part.gives))]
    data.content["choices"][key] = choices
    options = "".join(f"<option value='{i}'>{text(name)}</option>" for i, name in enumerate(part.gives))
    verb = "adds to" if part.kind == "MLP" else "gives"
    pick = (
        f"<div class='pick'><label for='{key}'>What it {verb}</label><select id='{key}'>{options}</select></div>"
        if len(part.gives) > 1
        else ""
    )
    left = len(part.sees) - len(found.curves)
    more = f"<p class='soft'>{left} more inputs, which matter less, are not drawn.</p>" if left > 0 else ""
    plots = "".join(
        f"<div>{_plot(f'{key}-{i}', f'{part.title}, figure {i + 1}')}</div>" for i in range(len(choices[0]))
    )
    rows = [
        [part.sees[curve.input], gives, *(f"{v:.4g}" for v in _extent(curve.at, curve.values[:, i], curve.known))]
        for curve in found.curves
        for i, gives in enumerate(part.gives)
    ]
    columns = ["along", verb, "from", "to", "least", "most"]
    return (
        f"<h3>{text(part.title)}: what it {verb} {text(words.listed(part.gives))}</h3>{pick}"
        f"<div class='plots'>{plots}</div>"
        f"{more}<details><summary>The same in numbers</summary>{grid(columns, rows)}</details>"
    )


def _extent(at: np.ndarray, values: np.ndarray, known: np.ndarray) -> tuple[float, float, float, float]:
    return at[known].min(), at[known].max(), values[known].min(), values[known].max()


def parameters(estimated: Sequence[Estimated]) -> str:
    """What was estimated, and how sure it is."""
    if not estimated:
        return f"{_title('parameters')}<p>No physical parameter was unknown.</p>"
    rows = [
        [
            each.name,
            f"{each.value:.6g}",
            "not told by the data" if math.isinf(each.error) else _or_missing(each.error, ".2g"),
            f"{each.start:.6g}",
            _or_missing(each.inflation, ".3g"),
        ]
        for each in estimated
    ]
    columns = ["parameter", "estimate", "standard error", "first guess", "inflation"]
    return (
        f"{_title('parameters')}{grid(columns, rows)}<p class='soft'>The standard error counts neighbouring errors of "
        "the model as one where they are correlated. Inflation: how many times less sure a parameter is because "
        "something was learned beside it; the standard error includes it where it was computed.</p>"
    )


def violation(data: Data, facts: Facts, units: Mapping[str, str]) -> str:
    """How far each run leaves the manifold."""
    if isinstance(facts.twin.constraint, Unconstrained):
        return f"{_title('constraint')}<p>The twin has no constraint.</p>"
    if not facts.shown:
        return f"{_title('constraint')}<p>No run could be predicted.</p>"
    data.content["figures"]["violation"] = figures.violation(facts.shown, units)
    rows = []
    for split, each in facts.shown.items():
        values = each.predictions.relative[0][each.predictions.real]
        rows.append([split, number(float(values.mean())), number(float(values.max()))])
    return (
        f"{_title('constraint')}{_plot('violation', 'relative violation over time')}"
        "<p class='soft'>|g - level| / max(|level|, ‖∂g/∂x(x₀)‖ ‖x₀‖), the largest over the equations, one line for "
        "each run. What is below 1e-16, the rounding of float64, is drawn there.</p>"
        + grid(["", "mean", "largest"], rows)
    )


def training(data: Data, history: Mapping[str, Any] | None, fit: Fit | None) -> str:
    """Loss of each seed over the epochs, and where each seed ended."""
    if history is None or len(history.get("loss", ())) == 0:
        return f"{_title('training')}<p>No record of the training was given.</p>"
    loss = np.asarray(history["loss"], float)
    seeds = tuple(range(loss.shape[1])) if fit is None else fit.seeds
    data.content["figures"]["training-curves"] = figures.training(history, seeds)
    score = np.asarray(history["score"], float)
    rows = []
    for place, seed in enumerate(seeds):
        best = np.nanmin(np.where(np.isfinite(score[:, place]), score[:, place], np.inf))
        note = "" if fit is None else fit.failures.get(seed, "chosen" if place == fit.best else "")
        rows.append([f"seed {seed}", number(float(loss[-1, place])), number(float(best)), note])
    took = "" if fit is None else f" The fit took {fit.seconds:.0f} s for {fit.parameters} trained numbers."
    return (
        f"{_title('training')}{_plot('training-curves', 'loss over the epochs')}"
        "<p class='soft'>Dotted: training loss. Solid: the score by which the best parameters are chosen, on the "
        f"validation runs where there are some. Dashed upright lines: a new stage begins.{text(took)}</p>"
        + grid(["", "last training loss", "best score", ""], rows)
    )


def settings(config: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """The configuration and whatever else was given about the run."""
    return f"{_title('settings')}{pairs(_flat(config)) if config else '<p>None was given.</p>'}" + (
        f"<h3>Versions and origin</h3>{pairs(_flat(info))}" if info else ""
    )


def files(names: Sequence[str]) -> str:
    """What lies beside the page."""
    links = "".join(f"<li><a href='{text(name)}'>{text(name)}</a></li>" for name in names)
    said = "Every number of this page, with all digits, is in the tables beside it."
    return f"{_title('files')}<p>{said}</p><ul>{links}</ul>"


def _title(key: str) -> str:
    return f"<h2 id='{key}'>{text(NAMES[key])}</h2>"


def _plot(key: str, meaning: str) -> str:
    return f"<figure><div class='plot' id='{key}' role='img' aria-label='{text(meaning)}'></div></figure>"


def _or_missing(value: float, form: str) -> str:
    return "not computed" if math.isnan(value) else f"{value:{form}}"


def _flat(content: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Nested tables as a.b = value."""
    found: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{before}{name}.")
        else:
            said = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((f"{before}{name}", said))
    return found
