"""The runs of a report: measured and predicted values, thinned so that the page stays small."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold._core import tree_take
from twinfold.data import Dataset
from twinfold.data._dataset import join, split_rows
from twinfold.metrics import Predictions, predict
from twinfold.metrics._predict import BY_SEED
from twinfold.model import Twin
from twinfold.report._numbers import json_numbers
from twinfold.train import Fit

MAX_RUNS = 60  # of each split on the page
MAX_SAMPLES = 3000  # of each run on the page, fewer if there are many runs
MAX_VALUES = 400_000  # on the page, approximately


@dataclasses.dataclass(frozen=True, eq=False)
class SplitPredictions:
    """The runs of one split: what the twin predicts, and the range `low` to `high` over the seeds, [R, T, k]."""

    data: Dataset
    predictions: Predictions
    low: np.ndarray | None
    high: np.ndarray | None

    @property
    def residual(self) -> np.ndarray:
        """Measured minus predicted, [R, T, k]; NaN where one of them is missing."""
        error = self.predictions.y - self.predictions.predicted[0]
        return np.where(self.predictions.mask & np.isfinite(error), error, np.nan)

    @property
    def violations(self) -> np.ndarray:
        """The relative violation at all samples of all runs, [N, m]."""
        return self.predictions.relative_violation[0][self.predictions.is_sample]


def usable_seeds(fit: Fit | None) -> list[int]:
    """The indices of the seeds that did not fail; empty without a fit."""
    if fit is None:
        return []
    return [i for i, seed in enumerate(fit.seeds) if seed not in fit.failures and np.isfinite(fit.scores[i])]


def predict_splits(
    twin: Twin, fit: Fit | None, splits: Mapping[str, Dataset], problems: list[str]
) -> dict[str, SplitPredictions]:
    """Predict the first `MAX_RUNS` runs of every split; a split that cannot be predicted is reported in `problems`."""
    shown = {split: data.select(data.names[:MAX_RUNS]) for split, data in splits.items()}
    try:
        return _predict_together(twin, fit, shown)
    except ValueError:
        return _predict_one_by_one(twin, fit, shown, problems)


def _predict_together(twin: Twin, fit: Fit | None, splits: Mapping[str, Dataset]) -> dict[str, SplitPredictions]:
    """All splits in one prediction, since each shape is a program to compile."""
    together, rows = _predict_split(twin, fit, join(splits.values())), split_rows(splits)
    found = {}
    for split, data in splits.items():
        own = together.predictions.select(rows[split])
        bounds = (together.low, together.high)
        low, high = (None if each is None else each[rows[split], : own.ts.shape[1]] for each in bounds)
        found[split] = SplitPredictions(data, own, low, high)
    return found


def _predict_one_by_one(
    twin: Twin, fit: Fit | None, splits: Mapping[str, Dataset], problems: list[str]
) -> dict[str, SplitPredictions]:
    found = {}
    for split, data in splits.items():
        try:
            found[split] = _predict_split(twin, fit, data)
        except ValueError as error:
            # For example a run without its own parameters: the other splits are still worth a report.
            problems.append(f"The {split} runs could not be predicted: {error}")
    return found


def _predict_split(twin: Twin, fit: Fit | None, data: Dataset) -> SplitPredictions:
    usable = usable_seeds(fit)
    if fit is None or len(usable) < 2:
        return SplitPredictions(data, predict(twin, data), None, None)
    seeds = predict(fit, data)
    # Usually the twin is that of one seed and has just been predicted with the others.
    same = bool(eqx.tree_equal(*jax.device_get((twin, fit.twin))))
    values = np.where(np.isfinite(seeds.predicted), seeds.predicted, np.nan)[usable]
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    return SplitPredictions(data, _select_seed(seeds, fit.best) if same else predict(twin, data), low, high)


def _select_seed(predictions: Predictions, seed: int) -> Predictions:
    one, fields = slice(seed, seed + 1), ("seeds", *BY_SEED)
    values = {name: getattr(predictions, name)[one] for name in fields}
    return dataclasses.replace(predictions, **values, result=tree_take(predictions.result, one))


Ends = tuple[np.ndarray, np.ndarray]  # the lower and upper end of a band [T, k]


def page_runs(
    splits: Mapping[str, SplitPredictions], bands: Mapping[str, Sequence[Ends]] | None = None
) -> list[dict[str, Any]]:
    """One entry per run for the script of the page: times, measured and predicted values of each output, inputs.

    `bands` of the first runs of each split.
    """
    runs = sum(len(each.data) for each in splits.values())
    columns = 5 * max((len(each.data.output_names) for each in splits.values()), default=1)
    most = int(np.clip(MAX_VALUES // max(runs * columns, 1), 200, MAX_SAMPLES))
    return [
        _page_run(split, each, run, most, None if not bands else _band_of(each, run, bands.get(split, ())))
        for split, each in splits.items()
        for run in range(len(each.data))
    ]


def _band_of(each: SplitPredictions, run: int, known: Sequence[Ends]) -> Ends:
    """The band of a run; NaN for one that has none."""
    empty = np.full((int(each.predictions.length[run]), len(each.data.output_names)), np.nan)
    return known[run] if run < len(known) else (empty, empty)


def _page_run(split: str, each: SplitPredictions, run: int, most: int, band: Ends | None) -> dict[str, Any]:
    predictions, source = each.predictions, each.data.runs[run]
    length = int(predictions.length[run])
    chosen = thin(each.residual[run, :length], most)
    columns = {
        "measured": (np.where(predictions.mask[run], predictions.y[run], np.nan), 6),
        "predicted": (predictions.predicted[0, run], 6),
        "residual": (each.residual[run], 4),
        "inputs": (np.zeros((length, 0)) if source.w is None else source.w, 6),
    }
    if each.low is not None and each.high is not None:
        columns |= {"low": (each.low[run], 6), "high": (each.high[run], 6)}
    if band is not None:
        columns |= {"lower": (band[0], 6), "upper": (band[1], 6)}
        about = predictions.predicted[0, run, :length]
        columns |= {"lower residual": (band[0] - about, 4), "upper residual": (band[1] - about, 4)}
    return {
        "name": source.name,
        "split": split,
        "t": json_numbers(predictions.ts[run, chosen], 9),
        **{name: [json_numbers(column, digits) for column in v[chosen].T] for name, (v, digits) in columns.items()},
    }


def thin(residual: np.ndarray, most: int) -> np.ndarray:
    """At most about `most` indices of T samples: the first of each interval, and the one with the largest residual."""
    if len(residual) <= most:
        return np.arange(len(residual))
    size = np.abs(np.nan_to_num(residual)).max(axis=1)
    edges = np.linspace(0, len(residual), max(most // 2, 1) + 1).astype(int)
    largest = [start + int(size[start:stop].argmax()) for start, stop in itertools.pairwise(edges.tolist())]
    return np.unique([*edges[:-1], *largest, len(residual) - 1])
