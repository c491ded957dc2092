"""Tables of a report as files: everything that is drawn, and more of it, with all digits."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.io import atomic_write_text
from twinfold.report._learned import Learned
from twinfold.report._shown import Shown


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file with a header; it is there as a whole or not at all."""
    with atomic_write_text(path) as table:
        writer = csv.writer(table)
        writer.writerow(columns)
        writer.writerows(rows)


def prediction_rows(shown: Mapping[str, Shown]) -> Iterable[list[Any]]:
    """split, run, output, time, measured, predicted, and the lowest and highest prediction over the seeds."""
    for split, each in shown.items():
        predictions = each.predictions
        for run, name in enumerate(each.data.names):
            for sample in range(int(predictions.length[run])):
                for index, output in enumerate(each.data.output_names):
                    measured = predictions.y[run, sample, index] if predictions.mask[run, sample, index] else ""
                    bounds = ["" if b is None else float(b[run, sample, index]) for b in (each.low, each.high)]
                    value = float(predictions.predicted[0, run, sample, index])
                    yield [split, name, output, float(predictions.ts[run, sample]), measured, value, *bounds]


def learned_rows(found: Learned) -> Iterable[list[Any]]:
    """input, output, place, value, lowest and highest over the seeds, and whether data are near."""
    for curve in found.curves:
        for index, gives in enumerate(found.part.gives):
            for place, at in enumerate(curve.at.tolist()):
                bounds = ["" if b is None else float(b[place, index]) for b in (curve.low, curve.high)]
                value, known = float(curve.values[place, index]), bool(curve.known[place])
                yield [found.part.sees[curve.input], gives, at, value, *bounds, known]


def run_rows(shown: Mapping[str, Shown]) -> list[list[Any]]:
    """split, run, samples, the RMSE of each output (NaN where nothing was measured), and whether it failed."""
    rows = []
    for split, each in shown.items():
        with np.errstate(over="ignore"):
            square = np.nansum(each.left**2, axis=1)
        measured = np.isfinite(each.left).sum(axis=1)
        rmse = np.sqrt(np.where(measured > 0, square / np.maximum(measured, 1), np.nan))
        lost = each.predictions.failed_steps[0].any(axis=-1)
        for run, name in enumerate(each.data.names):
            rows.append([split, name, int(each.predictions.length[run]), *rmse[run].tolist(), bool(lost[run])])
    return rows
