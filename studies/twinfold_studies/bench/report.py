"""What a demonstration leaves behind: figures, tables, and one page that needs nothing from the network."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinfold import plot
from twinfold.io import CONFIG, write_csv, write_lines, write_text
from twinfold.report import figure, page, pairs, text
from twinfold_studies.bench.demo import Results, stages
from twinfold_studies.bench.describe import describe
from twinfold_studies.bench.summary import Line, in_words, metric_rows, reasons, summary_rows, table

SUB = ("± over seeds", "median", "floor", "DTW", "largest")  # lines that belong to the one above them
COLUMNS = """MAE is the mean absolute error over all states: mean, standard deviation and median over seeds. The floor
is the error of the exact field under the same integrator, step and projection: a model below it has learned the
integrator. DTW is dynamic time warping with the Euclidean distance as local cost, over the first 1000 samples. The
relative violation is |g - g₀| / max(|g₀|, ‖∂g/∂x(x₀)‖ ‖x₀‖) over the long horizon: its mean, and the largest of all
steps, runs and seeds. Valid until: the mean time at which the error exceeds 30 % of the rms size of the truth. A failed
run has a value that is not finite or a step that did not succeed; none is left out of any number."""


def write_report(results: Results, out: Path) -> Path:
    """Write metrics.jsonl, summary.csv, the figures and report.html into the folder of the run."""
    write_lines(out / "metrics.jsonl", metric_rows(results))
    write_csv(out / "summary.csv", summary_rows(results))
    figures = draw(results, out) if results.outcomes else []
    config = json.loads((out / CONFIG).read_text(encoding="utf-8"))
    path = out / "report.html"
    write_text(path, _page(results, config, figures))
    return path


def draw(results: Results, out: Path) -> list[tuple[str, str, str]]:
    """Draw all figures; returns (file, title, caption) of each."""
    data = results.data
    predictions = {outcome.title: outcome.predictions for outcome in results.outcomes}
    chosen = {outcome.title: outcome.fit.best for outcome in results.outcomes}
    histories = {outcome.title: outcome.fit.history for outcome in results.outcomes}
    # That of the first model, which is not projected: the violation that the integrator alone causes.
    floor = results.outcomes[0].floor
    names = data.system.state_names
    band = (
        "Line: median over all seeds and test runs; band: 10th to 90th percentile. Dashed grey: the exact field under "
        "the same integrator, not projected."
    )
    run = int(
        np.median([outcome.metrics["long"].metrics["mae"].mean(0) for outcome in results.outcomes], axis=0).argmax()
    )
    one = (
        f"Test trajectory {run}, the hardest of them for the models together, predicted from its initial state alone "
        "by each model's best seed on validation data."
    )
    jobs: list[tuple[str, str, str, Callable[[], Any]]] = [
        (
            "trajectories.png",
            "Trajectories against truth",
            one,
            lambda: plot.trajectories(predictions, run=run, seeds=chosen, names=names, trained=data.horizon),
        ),
        (
            "phase.png",
            "Phase plot",
            f"The same trajectory over {data.long:g} units of time.",
            lambda: plot.phase(predictions, run=run, seeds=chosen, names=names),
        ),
        (
            "error.png",
            "Error over time",
            band,
            lambda: plot.errors_over_time(predictions, floor=floor, trained=data.horizon),
        ),
        (
            "violation.png",
            "Violation of the invariants over time",
            f"{band} What is below {plot.SMALLEST:g}, the rounding of float64, is drawn there.",
            lambda: plot.violations_over_time(predictions, floor=floor, trained=data.horizon),
        ),
        (
            "training.png",
            "Training",
            "One pair of lines for each seed; dotted lines separate the stages. In the stages on short windows the "
            "training loss is that of the windows, while validation is always on whole trajectories.",
            lambda: plot.training(histories, stages=[_stage(method) for method in stages(results.settings)]),
        ),
    ]
    for file, _, _, drawn in jobs:
        plot.save(drawn(), out / file)
    return [(file, title, caption) for file, title, caption, _ in jobs]


def _stage(method: Any) -> str:
    short = method.name.replace("Levenberg-Marquardt", "LM")
    return f"{short} on whole runs" if method.window is None else f"{short} on windows"


def _page(results: Results, config: dict[str, Any], figures: list[tuple[str, str, str]]) -> str:
    system, settings = results.data.system, results.settings
    known, equations = describe(settings.system)
    failed = reasons(results)
    parts = [
        f"<header><p class='soft'>twinfold demo · {config['versions']['twinfold']}</p>",
        f"<h1>{text(system.title)}: {len(results.outcomes)} models of one system</h1>",
        f"<p>{text(known)}</p></header>",
        "<ul class='words'>" + "".join(f"<li>{text(line)}</li>" for line in in_words(results)) + "</ul>",
    ]
    if results.outcomes:
        parts += [
            "<h2>Results</h2>",
            f"<div class='scroll'>{_table([o.title for o in results.outcomes], table(results))}</div>",
            f"<p class='soft'>{text(' '.join(COLUMNS.split()))}</p>",
        ]
    parts += [figure(*each) for each in figures]
    if failed:
        parts.append("<h2>Failures</h2>" + pairs(failed))
    parts += [
        "<h2>The system</h2>",
        f"<pre>{text(chr(10).join(equations))}</pre><p class='soft'>{text(system.notes)}</p>",
        "<h2>Settings</h2>",
        pairs([(name, _value(value)) for name, value in config["settings"].items()]),
        "<h2>Time</h2>",
        "<p class='soft'>Fit and evaluation together, in this call: a model that was fitted before only loads.</p>",
        pairs([(part, f"{seconds:.1f} s") for part, seconds in results.seconds.items()]),
        "<h2>Versions and command</h2>",
        pairs(list(config["versions"].items())),
        f"<pre>{text(config['command'])}</pre>",
        "<footer>Every number of this page is in <code>metrics.jsonl</code> (one line for each model, horizon, seed "
        "and run) and <code>summary.csv</code>; the configuration is in <code>config.json</code>.</footer>",
    ]
    return page(f"twinfold demo: {system.title}", parts)


def _table(titles: list[str], lines: list[Line]) -> str:
    head = "".join(f"<th scope='col'>{text(title)}</th>" for title in titles)
    body = []
    for line in lines:
        cells = "".join(
            f"<td{' class=best' if index == line.best else ''}>{text(cell)}</td>"
            for index, cell in enumerate(line.cells)
        )
        kind = " class='sub'" if line.label in SUB else ""
        body.append(f"<tr{kind}><th scope='row'>{text(line.label)}</th>{cells}</tr>")
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _value(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
