"""What a report draws of the runs: predicted and measured values, thinned so that a page stays light."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold.data import Dataset
from twinfold.metrics import Predictions, predict
from twinfold.model import Twin
from twinfold.train import Fit

RUNS = 60  # of each split in the page
SAMPLES = 3000  # of each run in the page, fewer where there are many runs
VALUES = 400_000  # in the page altogether, or about so


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """The runs of one split: what the twin predicts, and the `low` and `high` end over the seeds, [R, T, k]."""

    split: str
    data: Dataset
    predictions: Predictions
    low: np.ndarray | None
    high: np.ndarray | None

    @property
    def left(self) -> np.ndarray:
        """Measured minus predicted, [R, T, k]; NaN where one of them is missing."""
        error = self.predictions.y - self.predictions.predicted[0]
        return np.where(self.predictions.mask & np.isfinite(error), error, np.nan)


def usable_seeds(fit: Fit | None) -> list[int]:
    """The indices of the seeds that did not fail; empty without a fit."""
    if fit is None:
        return []
    return [i for i, seed in enumerate(fit.seeds) if seed not in fit.failures and np.isfinite(fit.scores[i])]


def show(
    twin: Twin, fit: Fit | None, splits: Mapping[str, Dataset], problems: list[str]
) -> tuple[dict[str, Shown], dict[str, Dataset]]:
    """Predict the runs of every split; what cannot be predicted is told in `problems` and left out.

    **Returns:** the predictions, and the data of the runs that were left out of the page.
    """
    found, cut = {}, {}
    for split, data in splits.items():
        some = data.select(data.names[:RUNS])
        if len(some) < len(data):
            cut[split] = data.select(data.names[RUNS:])
        try:
            found[split] = _predicted(twin, fit, split, some)
        except ValueError as error:
            # A run without parameters of its own, say: the other splits are still worth a report.
            problems.append(f"The {split} runs could not be predicted: {error}")
    return found, cut


def _predicted(twin: Twin, fit: Fit | None, split: str, data: Dataset) -> Shown:
    usable = usable_seeds(fit)
    if fit is None or len(usable) < 2:
        return Shown(split, data, predict(twin, data), None, None)
    everything = predict(fit, data)
    # The twin is that of one of the seeds, as a rule, and has been predicted with them.
    same = bool(eqx.tree_equal(twin, fit.twin))
    predictions = _of_seed(everything, fit.best) if same else predict(twin, data)
    values = everything.predicted[usable]
    finite = np.isfinite(values)
    low = np.where(finite, values, np.inf).min(axis=0)
    high = np.where(finite, values, -np.inf).max(axis=0)
    return Shown(split, data, predictions, np.where(np.isfinite(low), low, np.nan), np.where(low > high, np.nan, high))


def _of_seed(predictions: Predictions, seed: int) -> Predictions:
    one = slice(seed, seed + 1)
    values = {name: getattr(predictions, name)[one] for name in ("seeds", "predicted", "violation", "relative")}
    return dataclasses.replace(predictions, **values, result=jax.tree.map(lambda codes: codes[one], predictions.result))


def drawn_runs(shown: Mapping[str, Shown]) -> list[dict[str, Any]]:
    """One entry for each run, ready for the page: its times and, for each output, what was measured and predicted."""
    count = sum(len(each.data) for each in shown.values())
    columns = 5 * max((len(each.data.output_names) for each in shown.values()), default=1)
    most = int(np.clip(VALUES // max(count * columns, 1), 200, SAMPLES))
    return [_drawn(each, run, most) for each in shown.values() for run in range(len(each.data))]


def _drawn(shown: Shown, run: int, most: int) -> dict[str, Any]:
    predictions, source = shown.predictions, shown.data.runs[run]
    length = int(predictions.length[run])
    left = shown.left[run, :length]
    keep = thinned(left, most)
    measured = np.where(predictions.mask[run], predictions.y[run], np.nan)
    bands = {} if shown.low is None or shown.high is None else {"low": shown.low[run], "high": shown.high[run]}
    columns = {"measured": measured, "predicted": predictions.predicted[0, run], **bands}
    return {
        "name": source.name,
        "split": shown.split,
        "t": plain(predictions.ts[run, :length][keep], 9),
        "left": [plain(column, 4) for column in left[keep].T],
        "inputs": [] if source.w is None else [plain(column, 6) for column in source.w[keep].T],
        **{name: [plain(column, 6) for column in values[:length][keep].T] for name, values in columns.items()},
    }


def thinned(left: np.ndarray, most: int) -> np.ndarray:
    """At most about `most` indices of T samples: the first of each stretch, and the one whose error is largest."""
    if len(left) <= most:
        return np.arange(len(left))
    size = np.abs(np.nan_to_num(left)).max(axis=1)
    edges = np.linspace(0, len(left), max(most // 2, 1) + 1).astype(int)
    largest = [a + int(size[a:b].argmax()) for a, b in itertools.pairwise(edges.tolist())]
    return np.unique([*edges[:-1], *largest, len(left) - 1])


def plain(values: np.ndarray, digits: int) -> list[float | None]:
    """Numbers for JSON, which has no NaN and no infinity."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in np.asarray(values, float)]
