"""The files of a demonstration: figures, tables, and a page that opens offline."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinfold import plot
from twinfold.io import RunFolder, write_csv, write_json_lines, write_text
from twinfold.report import Section, Table, render_page
from twinfold_studies.bench.demo import Results, stages
from twinfold_studies.bench.demo_summary import failure_reasons, metric_rows, summarise, summary_rows, table
from twinfold_studies.systems import describe

COLUMNS = """MAE is the mean absolute error over all states: mean, standard deviation and median over seeds. The floor
is the error of the true field under the same integrator, step and projection: a model below the floor has learned the
integrator. DTW is dynamic time warping with the Euclidean distance as local cost, over the first 1000 samples. The
relative violation is |g - g₀| / max(|g₀|, ‖∂g/∂x(x₀)‖ ‖x₀‖) over the long horizon: its mean, and the largest of all
steps, runs and seeds. Valid until: the mean time at which the error exceeds 30 % of the rms size of the truth. A run
fails if a value is not finite or a step does not succeed; failed runs are included in all numbers."""


def write_report(results: Results, out: Path) -> Path:
    """Write metrics.jsonl, summary.csv, the figures and report.html into the folder of the run."""
    write_json_lines(out / "metrics.jsonl", metric_rows(results))
    write_csv(out / "summary.csv", summary_rows(results))
    figures = draw(results, out) if results.outcomes else []
    config = RunFolder(out).read()
    path = out / "report.html"
    write_text(path, _page(results, config, figures))
    return path


def draw(results: Results, out: Path) -> list[Section]:
    """Draw all figures. **Returns:** the section of each."""
    data = results.data
    predictions = {outcome.title: outcome.predictions for outcome in results.outcomes}
    chosen = {outcome.title: outcome.fit.best for outcome in results.outcomes}
    histories = {outcome.title: outcome.fit.history for outcome in results.outcomes}
    # The floor of the first model, which is not projected: it has the violation that the integrator causes.
    floor = results.outcomes[0].floor
    names = data.system.state_names
    band = (
        "Line: median over all seeds and test runs; band: 10th to 90th percentile. Dashed grey: the true field under "
        "the same integrator, not projected."
    )
    run = int(
        np.median([outcome.metrics["long"].metrics["mae"].mean(0) for outcome in results.outcomes], axis=0).argmax()
    )
    one = (
        f"Test trajectory {run}, with the largest median error of all models, predicted from its initial state by the "
        "seed of each model with the lowest validation error."
    )
    jobs: list[tuple[str, str, str, Callable[[], Any]]] = [
        (
            "trajectories.png",
            "Trajectories against truth",
            one,
            lambda: plot.trajectories(predictions, run=run, seeds=chosen, names=names, training_duration=data.horizon),
        ),
        (
            "phase.png",
            "Phase plot",
            f"The same trajectory over {data.long:g} units of time.",
            lambda: plot.phase_portrait(predictions, run=run, seeds=chosen, names=names),
        ),
        (
            "error.png",
            "Error over time",
            band,
            lambda: plot.errors_over_time(predictions, floor=floor, training_duration=data.horizon),
        ),
        (
            "violation.png",
            "Violation of the invariants over time",
            f"{band} Values below {plot.LOG_FLOOR:g}, the rounding of float64, are drawn there.",
            lambda: plot.violations_over_time(predictions, floor=floor, training_duration=data.horizon),
        ),
        (
            "training.png",
            "Training",
            "One pair of lines for each seed; dotted lines separate the stages. In stages with short windows the "
            "training loss is that of the windows; the validation loss is always that of whole trajectories.",
            lambda: plot.training_curves(histories, stages=[_stage(method) for method in stages(results.settings)]),
        ),
    ]
    for file, _, _, drawn in jobs:
        plot.save(drawn(), out / file)
    return [Section(title, image=file, note=caption) for file, title, caption, _ in jobs]


def _stage(method: Any) -> str:
    short = method.name.replace("Levenberg-Marquardt", "LM")
    return f"{short} on whole runs" if method.window is None else f"{short} on windows"


def _page(results: Results, config: dict[str, Any], figures: list[Section]) -> str:
    system, settings = results.data.system, results.settings
    known, equations = describe(settings.system)
    failed, count = failure_reasons(results), len(results.outcomes)
    timing = "Fit and evaluation in this call; a model that was fitted before is only loaded."
    sections = [
        *([Section("Results", table=_table(results), note=" ".join(COLUMNS.split()))] if results.outcomes else []),
        *figures,
        *([Section("Failures", pairs=failed)] if failed else []),
        Section("The system", code="\n".join(equations), note=system.notes),
        Section("Settings", pairs=[(name, _value(value)) for name, value in config["settings"].items()]),
        Section("Time", pairs=[(part, f"{s:.1f} s") for part, s in results.seconds.items()], note=timing),
        Section("Versions and command", pairs=list(config["versions"].items()), code=config["command"]),
    ]
    return render_page(
        f"{system.title}: {count} {'model' if count == 1 else 'models'} of one system",
        kind=f"twinfold demo · {config['versions']['twinfold']}",
        introduction=known,
        summary=summarise(results),
        sections=sections,
        footer="Every number of this page is in metrics.jsonl (one line for each model, horizon, seed and run) and "
        "summary.csv; the configuration is in config.json.",
    )


def _table(results: Results) -> Table:
    lines = table(results)
    return Table(
        columns=["", *(outcome.title for outcome in results.outcomes)],
        rows=[[line.label, *line.cells] for line in lines],
        best=[(row, line.best + 1) for row, line in enumerate(lines) if line.best is not None],
        indented=[row for row, line in enumerate(lines) if line.indented],
    )


def _value(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
