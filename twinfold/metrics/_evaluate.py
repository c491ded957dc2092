"""One table of numbers for a twin or a fit: every metric for each seed and run, and what they come to over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.metrics._dtw import dtw as warped
from twinfold.metrics._errors import mae, mse, relative_error, rmse, valid_time
from twinfold.metrics._predict import Predictions, predict
from twinfold.model import Twin
from twinfold.numerics import AbstractConstraint
from twinfold.train import Fit

VALUES = 20_000_000  # numbers that are predicted at a time

# How the runs of a seed make one number: a largest violation is the largest of all runs, failures are counted.
OVER_RUNS: dict[str, Callable] = {
    "mae": np.mean,
    "mse": np.mean,
    "rmse": np.mean,
    "dtw": np.mean,
    "violation_mean": np.mean,
    "violation_max": np.max,
    "relative_violation_mean": np.mean,
    "relative_violation_max": np.max,
    "valid_time": np.mean,
    "failed": np.sum,
}


@dataclass(frozen=True)
class Evaluation:
    """Metrics of S seeds on R runs.

    `metrics` has an [S, R] array for each of mae, mse, rmse, dtw, violation_mean, violation_max, their relative_...
    kind, valid_time and failed. A failed run (a value that is not finite, or a step that did not succeed) keeps its
    place with the error that it has, infinite where there is no prediction; `reasons` says why it failed. NaN means
    that there is nothing to measure: no constraint, no complete sample for DTW.
    """

    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    metrics: dict[str, np.ndarray]
    reasons: dict[tuple[int, str], str]

    @property
    def failures(self) -> int:
        """How many runs failed, over all seeds."""
        return int(self.metrics["failed"].sum())

    def rows(self) -> list[dict[str, Any]]:
        """One row for each seed and run: seed, run, each metric, and the reason of a failure."""
        return [
            {"seed": seed, "run": run}
            | {name: values[i, j].item() for name, values in self.metrics.items()}
            | {"reason": self.reasons.get((seed, run), "")}
            for i, seed in enumerate(self.seeds)
            for j, run in enumerate(self.runs)
        ]

    def by_seed(self) -> dict[str, np.ndarray]:
        """One number for each seed, [S]: the mean over runs, the largest of a maximum, the number of failures."""
        return {name: OVER_RUNS[name](values, axis=1) for name, values in self.metrics.items()}

    def aggregate(self) -> dict[str, dict[str, float]]:
        """Mean, standard deviation (0 for one seed) and median over seeds of each metric; see `by_seed`."""
        return {name: _spread(values) for name, values in self.by_seed().items()}


def evaluate(
    model: Twin | Fit,
    data: Dataset,
    *,
    threshold: float = 0.3,
    dtw: bool = True,
    constraint: AbstractConstraint | None = None,
    values: int = VALUES,
) -> Evaluation:
    """Predict every run from its initial state and measure how good that is.

    **Arguments:** `model`, a twin, or a fit, all of whose seeds are evaluated side by side; `data`, the runs; the
    relative error `threshold` up to which a prediction counts as valid; `dtw=False` leaves that metric out (it needs
    `pip install 'twinfold[dtw]'`); `constraint`: measure its violation by the outputs, taken as states, and not
    that of the twin's own constraint; `values`, how many numbers are predicted at a time.

    **Returns:** an `Evaluation`.
    """
    seeds = len(model.seeds) if isinstance(model, Fit) else 1
    longest = max(len(run.ts) for run in data.runs)
    columns = len(data.output_names) + (data.runs[0].states or 0) + data.runs[0].inputs
    size = max(1, values // (seeds * longest * columns))
    names = [data.names[start : start + size] for start in range(0, len(data), size)]
    # Not all runs at once, where that would be too much for the memory.
    parts = []
    for part in names:
        predictions = predict(model, data.select(part))
        predictions = predictions if constraint is None else predictions.against(constraint)
        parts.append(measure(predictions, threshold=threshold, dtw=dtw))
    return _joined(parts)


def measure(predictions: Predictions, *, threshold: float = 0.3, dtw: bool = True) -> Evaluation:
    """The metrics of predictions that were already made; arguments as for `evaluate`."""
    predicted, y, mask = predictions.predicted, predictions.y, predictions.mask
    lost = predictions.failed_steps
    relative = relative_error(predicted, y, mask)
    metrics = {metric.__name__: metric(predicted, y, mask) for metric in (mae, mse, rmse)}
    metrics["dtw"] = warped(predicted, y, mask) if dtw else np.full(metrics["mae"].shape, np.nan)
    for name, values in (("violation", predictions.violation), ("relative_violation", predictions.relative)):
        metrics[f"{name}_mean"], metrics[f"{name}_max"] = violations(values, predictions.real)
    metrics["valid_time"] = valid_time(relative, predictions.ts, predictions.length, lost, threshold)
    metrics["failed"] = np.any(lost, axis=-1)
    reasons = {
        (predictions.seeds[i], predictions.runs[j]): predictions.reason(i, j)
        for i, j in np.argwhere(metrics["failed"]).tolist()
    }
    return Evaluation(predictions.seeds, predictions.runs, metrics, reasons)


def violations(values: np.ndarray, real: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and maximum over samples and constraints: [..., R, T, m] -> [..., R]; `real` [R, T] is not padding.

    Every sample counts, failed steps too. NaN where there is no constraint.
    """
    if values.shape[-1] == 0:
        nothing = np.full(values.shape[:-2], np.nan)
        return nothing, nothing
    values = np.where(real[..., None], values, 0.0).astype(np.float64)
    return values.sum((-2, -1)) / (real.sum(-1) * values.shape[-1]), values.max((-2, -1))


def _spread(values: np.ndarray) -> dict[str, float]:
    with np.errstate(invalid="ignore"):  # one infinite seed: the mean is infinite, the spread not defined
        return {
            "mean": float(np.mean(values)),
            "std": float(np.std(values)),
            "median": float(np.median(values)),
        }


def _joined(parts: Sequence[Evaluation]) -> Evaluation:
    first = parts[0]
    return Evaluation(
        first.seeds,
        tuple(run for part in parts for run in part.runs),
        {name: np.concatenate([part.metrics[name] for part in parts], axis=1) for name in first.metrics},
        {key: reason for part in parts for key, reason in part.reasons.items()},
    )
