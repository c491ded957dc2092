"""One folder about a fitted twin that opens in a browser, offline: index.html, plotly's script, and tables."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from twinfold.data import Dataset
from twinfold.io import atomic_write
from twinfold.model import Twin
from twinfold.report import _sections as sections
from twinfold.report._estimates import estimates
from twinfold.report._learned import learned
from twinfold.report._page import page
from twinfold.report._scores import rows_of
from twinfold.report._seen import Part, Samples, parts_of, samples_of
from twinfold.report._shown import drawn_runs, show
from twinfold.report._tables import learned_rows, prediction_rows, run_rows, write_rows
from twinfold.report._words import Facts, outside_range
from twinfold.train import Fit

SCRIPT = "plotly.min.js"


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
) -> Path:
    """Write a report about a fitted twin: summary, baselines, trajectories, what was learned, violation, training.

    **Arguments:**

    - `folder`, made where it is not there; files of an earlier report in it are replaced.
    - `title` of the page; `twin`, fitted; `fit`, for the spread over seeds; `history`, as that of a `Fit`, whose own
      is used when left out.
    - `train`, `valid`, `test`: the data, of which every run is predicted and drawn (60 of each at most).
    - `metrics`: model -> split -> metric -> number, or mean and std; the models are "twin" and its baselines
      "constant", "pure physics" and "fitted physics", any of which may be missing, and others.
    - `config` and `info` (versions, command, ...): shown as they are. A table `config["loss"]`, with fields of `Loss`,
      is used for standard errors.
    - `states`, their names; when left out, those of the outputs where these are the states, or else "x0", ...
    - `units` by name, and that of "time".

    **Returns:** the path of index.html. **Raises:** `ImportError` without plotly; `ValueError` where the names of the
    states do not fit the twin, or the twin not the training data.
    """
    folder, units = Path(folder), dict(units or {})
    script = _plotly()
    samples = samples_of(twin, train)
    observed = train.output_names if states is None and twin.observe is None else states
    names = _state_names(observed, samples)
    problems: list[str] = []
    given = {"test": test, "valid": valid, "train": train}
    shown, cut = show(twin, fit, {name: data for name, data in given.items() if data is not None}, problems)
    parts = parts_of(twin, samples, names, train.input_names)
    found = [learned(twin, fit, part) for part in parts if part.seen.size]
    outside = {
        split: outside_range(parts, _parts(twin, each.data, names)) for split, each in shown.items() if split != "train"
    }
    estimated = estimates(twin, fit, train, config, problems)
    facts = Facts(twin, fit, train, names, parts, estimated, metrics, shown, outside, problems)
    units |= {f"d{name}/dt": _rate_unit(units, name) for name in names if name in units}
    history = fit.history if history is None and fit is not None else history
    data = sections.Data(drawn_runs(shown))
    body = [
        sections.summary(title, facts),
        sections.scores(metrics),
        sections.trajectories(data, facts, units, cut),
        sections.learned(data, found, parts, units),
        sections.parameters(estimated),
        sections.violation(data, facts, units),
        sections.training(data, history, fit),
        sections.settings(config, info),
    ]
    files = {
        "metrics.csv": (["model", "split", "metric", "value"], [list(row.values()) for row in rows_of(metrics)]),
        "runs.csv": (
            ["split", "run", "samples", *(f"rmse {n}" for n in train.output_names), "failed"],
            run_rows(shown),
        ),
        "predictions.csv": (
            ["split", "run", "output", "time", "measured", "predicted", "lowest seed", "highest seed"],
            prediction_rows(shown),
        ),
        "parameters.csv": (
            ["name", "value", "first guess", "standard error", "inflation"],
            [[e.name, e.value, e.start, e.error, e.inflation] for e in estimated],
        ),
    } | {_learned_file(place): (LEARNED, learned_rows(each)) for place, each in enumerate(found)}
    for name, (columns, rows) in files.items():
        write_rows(folder / name, columns, rows)
    _write(folder / SCRIPT, script)
    body.append(sections.files([*files, SCRIPT]))
    view = resources.files("twinfold.report").joinpath("view.js").read_text(encoding="utf-8")
    body.append(f"<script type='application/json' id='report-data'>{_inline(data.content)}</script>")
    body.append(f"<script src='{SCRIPT}'></script><script>{view}</script>")
    # Last, so that a page is never there before what it refers to.
    _write(folder / "index.html", page(title, body))
    return folder / "index.html"


LEARNED = ["input", "output", "at", "value", "lowest seed", "highest seed", "data near"]


def _learned_file(place: int) -> str:
    return "learned.csv" if place == 0 else f"learned_{place + 1}.csv"


def _parts(twin: Twin, data: Dataset, states: Sequence[str]) -> list[Part]:
    return parts_of(twin, samples_of(twin, data), states, data.input_names)


def _state_names(states: Sequence[str] | None, samples: Samples) -> list[str]:
    count = samples.x.shape[1]
    if states is None:
        return [f"x{index}" for index in range(count)]
    if len(states) != count:
        raise ValueError(f"states: {len(states)} names ({', '.join(states)}) for {count} states; give one for each.")
    return list(states)


def _rate_unit(units: Mapping[str, str], name: str) -> str:
    per = units.get("time", "")
    return f"{units[name]}/{per}" if per else ""


def _inline(content: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("A report needs plotly: pip install 'twinfold[report]'.") from error
    return get_plotlyjs()


def _write(path: Path, content: str) -> None:
    with atomic_write(path) as file:
        file.write(content.encode())
