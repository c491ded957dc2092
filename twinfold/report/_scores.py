"""The numbers of a twin beside those of its baselines: what was given, in order, and what is missing."""

import math
from collections.abc import Mapping
from typing import Any

from twinfold.report._page import grid, number

TWIN = "twin"
BASELINES = {
    "fitted physics": "the physics with its unknown parameters fitted and nothing learned",
    "pure physics": "the physics at its first guess, with the learned parts at zero",
    "constant": "every output at its mean over the training data",
}
SPLITS = ("test", "valid", "train")
TITLES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "mse": "MSE",
    "dtw": "DTW",
    "valid_time": "valid time",
    "failed": "failed runs",
    "violation_mean": "mean violation",
    "violation_max": "largest violation",
    "relative_violation_mean": "mean relative violation",
    "relative_violation_max": "largest relative violation",
}
HIGHER = ("valid_time",)  # where more is better
MISSING = "not given"


def value_of(metrics: Mapping[str, Any], model: str, split: str, name: str) -> float | None:
    """One number, or None where it was not given; of a metric with its spread over seeds, the mean."""
    found = (metrics.get(model) or {}).get(split) or {}
    value = found.get(name)
    value = value.get("mean") if isinstance(value, Mapping) else value
    return None if value is None else float(value)


def models_of(metrics: Mapping[str, Any]) -> list[str]:
    """The twin, its baselines whether given or not, and whatever else was."""
    known = [TWIN, *BASELINES]
    return known + [name for name in metrics if name not in known]


def splits_of(metrics: Mapping[str, Any]) -> list[str]:
    """The splits of which there are numbers, test first."""
    given = {split for model in metrics.values() for split in model or {}}
    return [*(split for split in SPLITS if split in given), *sorted(given - set(SPLITS))]


def names_of(metrics: Mapping[str, Any], split: str) -> list[str]:
    """The metrics that any model has on a split and that say something, in the order of `TITLES`."""
    given = dict.fromkeys(name for model in metrics.values() for name in (model or {}).get(split) or {})
    said = [name for name in given if any(_finite(value_of(metrics, m, split, name)) for m in metrics)]
    return sorted(said, key=lambda name: list(TITLES).index(name) if name in TITLES else len(TITLES))


def table(metrics: Mapping[str, Any], split: str) -> str:
    """Models one under the other, metrics side by side; the best of each column stands out."""
    models, names = models_of(metrics), names_of(metrics, split)
    values = [[value_of(metrics, model, split, name) for name in names] for model in models]
    rows = [
        [model, *(_cell(value, metrics, model, split, name) for name, value in zip(names, row, strict=True))]
        for model, row in zip(models, values, strict=True)
    ]
    best = [None, *(_best([row[i] for row in values], name in HIGHER) for i, name in enumerate(names))]
    return grid(["", *(TITLES.get(name, name) for name in names)], rows, best)


def rows_of(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each model, split and metric, all digits."""
    return [
        {"model": model, "split": split, "metric": name, "value": value_of(metrics, model, split, name)}
        for model in models_of(metrics)
        for split in splits_of(metrics)
        for name in names_of(metrics, split)
    ]


def headline(metrics: Mapping[str, Any]) -> tuple[str, str] | None:
    """The split and the error by which the twin is judged in words; None where the twin has no error at all."""
    for split in splits_of(metrics):
        for name in ("rmse", "mae", "mse", "dtw"):
            if value_of(metrics, TWIN, split, name) is not None:
                return split, name
    return None


def _finite(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _cell(value: float | None, metrics: Mapping[str, Any], model: str, split: str, name: str) -> str:
    if value is None:
        return MISSING
    if name == "failed" and value == int(value):
        return str(int(value))
    given = metrics[model][split][name]
    spread = given.get("std") if isinstance(given, Mapping) else None
    return number(value) + (f" ± {number(float(spread))}" if spread else "")


def _best(column: list[float | None], higher: bool) -> int | None:
    finite = [(i, value) for i, value in enumerate(column) if value is not None and math.isfinite(value)]
    if len({value for _, value in finite}) < 2:
        return None
    pick = max if higher else min
    return pick(finite, key=lambda pair: pair[1])[0]
