"""The report of a fitted twin: a folder with index.html, plotly's script, and the tables as CSV files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.io import write_csv, write_text
from twinfold.io._names import check_name
from twinfold.model import Twin
from twinfold.numerics import Unconstrained
from twinfold.report._analysis import Analysis, analyse
from twinfold.report._figures import input_figure, output_figure, training_figure, violation_figure
from twinfold.report._metrics import BASELINES, SPLITS, metric_rows, metric_splits, metric_tables, metric_units
from twinfold.report._page import render
from twinfold.report._predictions import Ends, page_runs
from twinfold.report._residuals import describe_residuals, examine_residuals, residual_figures
from twinfold.report._response_figures import response_figures
from twinfold.report._responses import Response
from twinfold.report._summary import listed, summarise
from twinfold.report._tables import (
    parameter_table,
    prediction_rows,
    response_rows,
    response_table,
    run_rows,
    run_table,
    training_table,
    violation_table,
)
from twinfold.train import Fit

PLOTLY = "plotly.min.js"


def write_twin_report(
    folder: str | Path,
    *,
    title: str,
    twin: Twin,
    fit: Fit | None = None,
    history: Mapping[str, Any] | None = None,
    train: Dataset,
    valid: Dataset | None = None,
    test: Dataset | None = None,
    metrics: Mapping[str, Any],
    config: Mapping[str, Any],
    info: Mapping[str, Any],
    states: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    test_openings: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
    bands: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]] | None = None,
    probability: float = 0.9,
) -> Path:
    """Write a report about a fitted twin: summary, baselines, trajectories, residuals, learned parts, training, ...

    **Arguments:**

    - `folder`, created if it does not exist; files of an earlier report in it are replaced.
    - `title` of the page; `twin`, fitted; `fit`, for the spread over seeds; `history`, default that of `fit`.
    - `train`, `valid`, `test`: the data; every run is predicted and drawn, at most 60 of each split.
    - `metrics`: model -> split -> metric -> number, or mean and std; the models are "twin", its baselines "constant",
      "pure physics" and "fitted physics", each of them optional, and any others.
    - `config` and `info` (versions, command, ...): shown unchanged. A table `config["loss"]` with fields of `Loss` is
      used for the standard errors.
    - `states`, their names; default: the names of the outputs if these are the states, else "x0", ...
    - `units` by name, and that of "time".
    - `test_openings`: how often each command has predicted the test data so far; stated in the summary.
    - `notes`: further sentences about the errors, for the summary.
    - `bands` to draw: "train", "valid" or "test" -> lower and upper end [T, k] for each of its first runs; the
      `probability` with which a measurement lies inside.

    **Returns:** the path of index.html. **Raises:** `ImportError` without plotly; `ValueError` if the names of the
    states do not match the twin or contain control characters, or the twin does not match the training data.

    **Example:**

    ```python
    ts = np.linspace(0.0, 2.0, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)[:, None]], output_names=["charge"])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0)})
    metrics = {"twin": {"train": {"rmse": 1e-6}}, "constant": {"train": {"rmse": 0.25}}}
    index = tw.report.write_twin_report(
        "report", title="Decay", twin=twin, train=data, metrics=metrics, config={}, info={}, units={"time": "s"}
    )
    index.exists()  # True
    ```
    """
    for name in (*(states or ()), *(name for pair in (units or {}).items() for name in pair if name)):
        check_name(name, "write_twin_report(states=..., units=...)")
    folder, script = Path(folder), plotly_script()
    given = {"test": test, "valid": valid, "train": train}
    data = {split: each for split, each in given.items() if each is not None}
    units = dict(units or {})
    analysis = analyse(twin, fit, data, metrics, config, states, units, test_openings or {}, notes)
    in_units = metric_units(train.output_names, units)
    per_time = f"/{units['time']}" if units.get("time") else ""
    units |= {f"d{name}/dt": f"{units[name]}{per_time}" for name in analysis.states if name in units and per_time}
    tables = _csv_tables(analysis)
    for name, (columns, rows) in tables.items():
        write_csv(folder / name, rows, columns)
    write_text(folder / PLOTLY, script)
    context = {
        "title": title,
        "kind": "twinfold report",
        "summary": summarise(analysis),
        "results": [
            (SPLITS.get(split, split), metric_tables(metrics, split, in_units)) for split in metric_splits(metrics)
        ],
        "baselines": BASELINES,
        **_run_sections(analysis, units, bands, probability),
        "learned": [_learned_section(index, each, units) for index, each in enumerate(analysis.responses)],
        **_residual_section(analysis),
        "unobserved": [part.title for part in analysis.parts if not part.samples.size],
        "parameters": parameter_table(analysis.estimates, units) if analysis.estimates else None,
        **_training_section(fit.history if history is None and fit is not None else history, fit),
        "config": _flatten(config),
        "info": _flatten(info),
        "files": [*tables, PLOTLY],
        "plotly": PLOTLY,
    }
    page = render("twin.html", **context, data=_script_data(context))
    # Last, so that the page never exists without the files that it refers to.
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _csv_tables(analysis: Analysis) -> dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]]:
    """The columns and rows of each CSV file."""
    splits, seeds = analysis.splits, ("lowest seed", "highest seed")
    errors = [f"{metric} {name}" for metric in ("rmse", "fit_percent") for name in analysis.train.output_names]
    parameters = [[each.name, each.value, each.guess, each.error, each.inflation] for each in analysis.estimates]
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[Any]]]] = {
        "metrics.csv": (("model", "split", "metric", "value"), metric_rows(analysis.metrics)),
        "runs.csv": (("split", "run", "samples", *errors, "failed"), run_rows(splits)),
        "predictions.csv": (
            ("split", "run", "output", "time", "measured", "predicted", *seeds),
            prediction_rows(splits),
        ),
        "parameters.csv": (("name", "value", "first guess", "standard error", "inflation"), parameters),
    }
    for number, each in enumerate(analysis.responses, start=1):
        name = "learned.csv" if number == 1 else f"learned_{number}.csv"
        tables[name] = (("input", "output", "at", "value", *seeds, "data near"), response_rows(each))
    return tables


def _run_sections(
    analysis: Analysis, units: Mapping[str, str], known: Mapping[str, Sequence[Ends]] | None, probability: float
) -> dict[str, Any]:
    """The sections about the predicted runs: trajectories and constraint."""
    splits, train = analysis.splits, analysis.train
    bands = any(each.low is not None for each in splits.values())
    inside = probability if known else None
    figures = {
        f"output-{index}": (name, output_figure(index, name, units, bands=bands, probability=inside))
        for index, name in enumerate(train.output_names)
    }
    if train.input_names:
        interpolation = analysis.twin.cell.input_interpolation
        figures["inputs"] = ("Inputs", input_figure(train.input_names, units, interpolation))
    constrained = not isinstance(analysis.twin.constraint, Unconstrained)
    return {
        "runs": page_runs(splits, known),
        "splits": SPLITS,
        "run_figures": figures if splits else {},
        "bands": bands,
        "probability": None if inside is None else f"{100 * inside:.3g} %",
        "omitted": {split: count for split, count in analysis.omitted.items() if count},
        "run_table": run_table(splits, train.output_names, metric_units(train.output_names, units)),
        "constrained": constrained,
        "violation": violation_figure(splits, units) if constrained and splits else None,
        "violations": violation_table(splits) if constrained else None,
    }


def _learned_section(index: int, response: Response, units: Mapping[str, str]) -> dict[str, Any]:
    part = response.part
    return {
        "key": f"learned-{index}",
        "title": part.title,
        "target": f"{'added to' if part.kind == 'MLP' else 'outputs'} {listed(part.outputs)}",
        "outputs": part.outputs,
        "figures": [response_figures(response, output, units) for output in range(len(part.outputs))],
        "omitted": len(part.inputs) - len(response.curves),
        "table": response_table(response),
    }


def _residual_section(analysis: Analysis) -> dict[str, Any]:
    test = examine_residuals(analysis.splits)
    sentences = ["No run could be predicted."] if test is None else describe_residuals(test)
    return {"residuals": sentences, "residual_figures": {} if test is None else residual_figures(test)}


def _training_section(history: Mapping[str, Any] | None, fit: Fit | None) -> dict[str, Any]:
    if history is None or len(history.get("loss", ())) == 0:
        return {"training": None, "training_table": None, "fit": fit}
    seeds = tuple(range(len(history["loss"][0]))) if fit is None else fit.seeds
    return {
        "training": training_figure(history, seeds),
        "training_table": training_table(history, seeds, fit),
        "fit": fit,
    }


def _script_data(context: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the script of the page draws, from the context of its template."""
    figures = {"violation": context["violation"], "training-curves": context["training"]}
    figures |= {key: drawn for key, (_, drawn) in context["residual_figures"].items()}
    return {
        "runs": context["runs"],
        "outputs": {key: drawn for key, (_, drawn) in context["run_figures"].items()},
        "figures": {key: drawn for key, drawn in figures.items() if drawn is not None},
        "choices": {each["key"]: each["figures"] for each in context["learned"]},
    }


def _flatten(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested tables as pairs of dotted names and values."""
    pairs: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            pairs += _flatten(value, f"{prefix}{name}.")
        else:
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            pairs.append((f"{prefix}{name}", text))
    return pairs


def plotly_script() -> str:
    """The text of plotly's script. **Raises:** `ImportError` without plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("A report needs plotly: pip install 'twinfold[report]'.") from error
    return get_plotlyjs()
