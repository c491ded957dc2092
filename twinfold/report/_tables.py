"""The tables of a report: rounded for the page, and with all digits for the CSV files."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.metrics import fit_percent
from twinfold.report._estimates import ParameterEstimate
from twinfold.report._metrics import DIGITS, SPLITS, metric_title
from twinfold.report._numbers import format_estimate, format_number
from twinfold.report._page import Table
from twinfold.report._predictions import SplitPredictions
from twinfold.report._responses import Response
from twinfold.train import Fit


def run_rows(splits: Mapping[str, SplitPredictions]) -> list[list[Any]]:
    """Split, run, samples, RMSE and fit of each output (NaN if not measured), and whether the run failed."""
    rows = []
    for split, each in splits.items():
        with np.errstate(over="ignore"):
            squares = np.nansum(each.residual**2, axis=1)
        measured = np.isfinite(each.residual).sum(axis=1)
        rmse = np.sqrt(np.where(measured > 0, squares / np.maximum(measured, 1), np.nan))
        failed = each.predictions.failed_steps[0].any(axis=-1)
        arrays = each.predictions.predicted[0], each.predictions.y, each.predictions.mask
        outputs = range(rmse.shape[1])
        fits = np.stack([fit_percent(*(values[..., k : k + 1] for values in arrays)) for k in outputs], axis=-1)
        for run, name in enumerate(each.data.names):
            numbers = (*rmse[run].tolist(), *fits[run].tolist())
            rows.append([split, name, int(each.predictions.length[run]), *numbers, bool(failed[run])])
    return rows


def run_table(splits: Mapping[str, SplitPredictions], outputs: Sequence[str], units: Mapping[str, str]) -> Table:
    """The errors of each run; `units` of the metrics."""
    rows = []
    for split, name, samples, *numbers, failed in run_rows(splits):
        cells = [format_number(number, DIGITS) for number in numbers]
        rows.append([name, SPLITS.get(split, split), samples, *cells, "failed" if failed else ""])
    titles = [metric_title(f"{metric} {name}", units) for metric in ("rmse", "fit_percent") for name in outputs]
    return Table(["run", "data", "samples", *titles, ""], rows)


def prediction_rows(splits: Mapping[str, SplitPredictions]) -> Iterable[list[Any]]:
    """Split, run, output, time, measured, predicted, lowest and highest prediction over the seeds."""
    for split, each in splits.items():
        predictions = each.predictions
        for run, name in enumerate(each.data.names):
            for sample in range(int(predictions.length[run])):
                for index, output in enumerate(each.data.output_names):
                    place = run, sample, index
                    measured = predictions.y[place] if predictions.mask[place] else ""
                    bounds = ["" if bound is None else float(bound[place]) for bound in (each.low, each.high)]
                    value = float(predictions.predicted[0][place])
                    yield [split, name, output, float(predictions.ts[run, sample]), measured, value, *bounds]


def response_rows(response: Response) -> Iterable[list[Any]]:
    """Input, output, its place and value, lowest and highest value over the seeds, and whether data are near."""
    for curve in response.curves:
        for index, output in enumerate(response.part.outputs):
            for place, x in enumerate(curve.x.tolist()):
                bounds = ["" if bound is None else float(bound[place, index]) for bound in (curve.low, curve.high)]
                value, supported = float(curve.values[place, index]), bool(curve.supported[place])
                yield [response.part.inputs[curve.input], output, x, value, *bounds, supported]


def response_table(response: Response) -> Table:
    """The supported range of each input, and the range of each output along it."""
    rows = []
    for curve in response.curves:
        x = curve.x[curve.supported]
        for index, output in enumerate(response.part.outputs):
            values = curve.values[curve.supported, index]
            numbers = (x.min(), x.max(), values.min(), values.max())
            rows.append([response.part.inputs[curve.input], output, *(f"{number:.4g}" for number in numbers)])
    return Table(["input", "output", "from", "to", "minimum", "maximum"], rows)


def parameter_table(estimates: Sequence[ParameterEstimate], units: Mapping[str, str]) -> Table:
    """Estimates with their standard errors, flagged where these are larger."""

    def optional(value: float, digits: str) -> str:
        return "not computed" if math.isnan(value) else f"{value:{digits}}"

    rows = [
        [
            f"{each.name} [{units[each.name]}]" if units.get(each.name) else each.name,
            format_estimate(each.value, each.error),
            "not identifiable" if math.isinf(each.error) else optional(each.error, ".2g"),
            f"{each.guess:.5g}",
            optional(each.inflation, ".3g"),
            each.flag,
        ]
        for each in estimates
    ]
    return Table(["parameter", "estimate", "standard error", "first guess", "inflation", ""], rows)


def violation_table(splits: Mapping[str, SplitPredictions]) -> Table:
    """Mean and largest relative violation of each split."""
    rows = [
        [SPLITS.get(split, split), format_number(each.violations.mean()), format_number(each.violations.max())]
        for split, each in splits.items()
    ]
    return Table(["data", "mean", "largest"], rows)


def training_table(history: Mapping[str, Any], seeds: Sequence[int], fit: Fit | None) -> Table:
    """The last loss and the best score of each seed."""
    loss, score = np.asarray(history["loss"], float), np.asarray(history["score"], float)
    best = np.where(np.isfinite(score), score, np.inf).min(axis=0)
    rows = []
    for place, seed in enumerate(seeds):
        note = "" if fit is None else fit.failures.get(seed, "selected" if place == fit.best else "")
        rows.append([f"seed {seed}", format_number(loss[-1, place]), format_number(best[place]), note])
    return Table(["", "last training loss", "best score", ""], rows)
