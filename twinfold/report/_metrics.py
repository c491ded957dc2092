"""The metrics of a twin and its baselines: model -> split -> metric -> number, or mean and standard deviation."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from twinfold.report._numbers import format_number
from twinfold.report._page import Table

TWIN = "twin"
BASELINES = {
    "fitted physics": "the known equations with fitted parameters, without learned parts",
    "pure physics": "the known equations at the first guess of the parameters, without learned parts",
    "constant": "the mean of each output over the training data",
}
SPLITS = {"test": "test", "valid": "validation", "train": "training"}
DIGITS = 3  # of a metric
TITLES = {
    "fit_percent": "FIT %",
    "nrmse": "NRMSE",
    "rmse": "RMSE",
    "mae": "MAE",
    "mse": "MSE",
    "dtw": "DTW",
    "valid_time": "valid time",
    "coverage": "coverage of bands",
    "failed": "failed runs",
    "violation_mean": "mean violation",
    "violation_max": "largest violation",
    "relative_violation_mean": "mean relative violation",
    "relative_violation_max": "largest relative violation",
}
HIGHER_IS_BETTER = ("valid_time", "fit_percent")


def metric_units(outputs: Sequence[str], units: Mapping[str, str]) -> dict[str, str]:
    """The unit of each metric that has one.

    Errors over all outputs have the unit of these if they share it.
    """
    shared = {units.get(name, "") for name in outputs}
    common = shared.pop() if len(shared) == 1 else ""
    found = {"rmse": common, "mae": common, "valid_time": units.get("time", "")}
    found |= {f"rmse {name}": units.get(name, "") for name in outputs}
    return {name: unit for name, unit in found.items() if unit}


def metric_value(metrics: Mapping[str, Any], model: str, split: str, name: str) -> float | None:
    """One number, the mean if it has a spread over seeds; None if it was not given."""
    value = ((metrics.get(model) or {}).get(split) or {}).get(name)
    value = value.get("mean") if isinstance(value, Mapping) else value
    return None if value is None else float(value)


def metric_splits(metrics: Mapping[str, Any]) -> list[str]:
    """The splits with at least one metric that is not NaN, test first."""
    given = {split for model in metrics.values() for split in model or {}}
    ordered = [*(split for split in SPLITS if split in given), *sorted(given - set(SPLITS))]
    return [split for split in ordered if _metric_names(metrics, split)]


def metric_tables(metrics: Mapping[str, Any], split: str, units: Mapping[str, str]) -> list[Table]:
    """Models by metrics, with the `units` of these, and by those of single outputs if there are any."""
    names = _metric_names(metrics, split)
    overall, by_output = ([name for name in names if (" " in name) == single] for single in (False, True))
    return [_metric_table(metrics, split, chosen, units) for chosen in (overall, by_output) if chosen]


def _metric_table(metrics: Mapping[str, Any], split: str, names: Sequence[str], units: Mapping[str, str]) -> Table:
    """The best of each column is highlighted."""
    models = _models(metrics)
    rows = [[model, *(_cell(metrics, model, split, name) for name in names)] for model in models]
    best = []
    for column, name in enumerate(names, start=1):
        values = [metric_value(metrics, model, split, name) for model in models]
        finite = {row: value for row, value in enumerate(values) if value is not None and math.isfinite(value)}
        if len(set(finite.values())) > 1:
            pick = max if name.partition(" ")[0] in HIGHER_IS_BETTER else min
            best.append((pick(finite, key=lambda row: finite[row]), column))
    return Table(["", *(metric_title(name, units) for name in names)], rows, best)


def metric_rows(metrics: Mapping[str, Any]) -> list[list[Any]]:
    """Model, split, metric and value, one row each."""
    return [
        [model, split, name, metric_value(metrics, model, split, name)]
        for model in _models(metrics)
        for split in metric_splits(metrics)
        for name in _metric_names(metrics, split)
    ]


def headline(metrics: Mapping[str, Any]) -> tuple[str, str, float] | None:
    """The split, name and value of the error that the summary quotes; None if the twin has no error."""
    for split in metric_splits(metrics):
        for name in ("rmse", "mae", "mse", "dtw"):
            value = metric_value(metrics, TWIN, split, name)
            if value is not None:
                return split, name, value
    return None


def metric_title(name: str, units: Mapping[str, str]) -> str:
    """The title of a metric, or of that of one output: "rmse x" is "RMSE x [m]"."""
    metric, _, output = name.partition(" ")
    title = f"{TITLES.get(metric, metric)} {output}".strip()
    return f"{title} [{units[name]}]" if name in units else title


def _models(metrics: Mapping[str, Any]) -> list[str]:
    """The twin, its baselines whether given or not, and other models."""
    return list(dict.fromkeys([TWIN, *BASELINES, *metrics]))


def _metric_names(metrics: Mapping[str, Any], split: str) -> list[str]:
    """The metrics of a split that are not NaN for at least one model, in the order of `TITLES`."""
    given = dict.fromkeys(name for model in metrics.values() for name in (model or {}).get(split) or {})
    values = {name: [metric_value(metrics, model, split, name) for model in metrics] for name in given}
    names = [name for name in given if any(v is not None and not math.isnan(v) for v in values[name])]
    return sorted(names, key=lambda name: list(TITLES).index(name) if name in TITLES else len(TITLES))


def _cell(metrics: Mapping[str, Any], model: str, split: str, name: str) -> str:
    value = metric_value(metrics, model, split, name)
    if value is None:
        return "not given"
    if name == "failed" and value.is_integer():
        return str(int(value))
    given = metrics[model][split][name]
    spread = given.get("std") if isinstance(given, Mapping) else None
    return format_number(value, DIGITS) + (f" ± {format_number(float(spread))}" if spread else "")
