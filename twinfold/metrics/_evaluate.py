"""Evaluation: every metric for each seed and run, and its statistics over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from twinfold.data import Dataset
from twinfold.metrics import _errors as errors
from twinfold.metrics._predict import Predictions, predict
from twinfold.model import Twin
from twinfold.numerics import AbstractConstraint
from twinfold.train import Fit

MAX_VALUES = 20_000_000  # numbers predicted at a time, to limit the memory


def _mean_where_defined(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean without NaN; NaN where there is nothing else."""
    defined = ~np.isnan(values)
    total = np.where(defined, values, 0.0).sum(axis)
    return np.where(defined.any(axis), total / np.maximum(defined.sum(axis), 1), np.nan)


REDUCE_OVER_RUNS: dict[str, Callable] = {
    "mae": np.mean,
    "mse": np.mean,
    "rmse": np.mean,
    "nrmse": _mean_where_defined,
    "fit_percent": _mean_where_defined,
    "dtw": np.mean,
    "violation_mean": np.mean,
    "violation_max": np.max,
    "relative_violation_mean": np.mean,
    "relative_violation_max": np.max,
    "valid_time": np.mean,
    "failed": np.sum,
}
"""The names of all metrics, each with the function that reduces its values over runs to one number per seed."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics of S seeds on R runs; returned by `evaluate` and `measure`.

    `metrics` has an [S, R] array for each name in `REDUCE_OVER_RUNS`. A failed run (a value that is not finite, or a
    step that did not succeed) keeps its error, which is infinite if there is no prediction; `reasons` has the cause by
    seed and run. NaN means that a metric does not apply: no constraint, no complete sample for DTW, no output that
    varies for the NRMSE.

    **Example:**

    ```python
    evaluation = tw.metrics.Evaluation((0, 1), ("a",), {"mae": np.array([[1.0], [3.0]])}, {})
    evaluation.by_seed()["mae"]  # [1., 3.]
    evaluation.aggregate()["mae"]  # {"mean": 2.0, "std": 1.0, "median": 2.0}
    ```
    """

    seeds: tuple[int, ...]
    runs: tuple[str, ...]
    metrics: dict[str, np.ndarray]
    reasons: dict[tuple[int, str], str]

    @property
    def failures(self) -> int:
        """Number of failed runs, over all seeds."""
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
        """Each metric reduced over the runs, [S]: the mean, the maximum of maxima, the number of failures."""
        return {name: REDUCE_OVER_RUNS[name](values, axis=1) for name, values in self.metrics.items()}

    def aggregate(self) -> dict[str, dict[str, float]]:
        """Mean, standard deviation (0 for one seed) and median over seeds of each metric in `by_seed`."""
        functions = {"mean": np.mean, "std": np.std, "median": np.median}
        with np.errstate(invalid="ignore"):  # with one infinite seed the standard deviation is NaN
            return {
                metric: {name: float(function(values)) for name, function in functions.items()}
                for metric, values in self.by_seed().items()
            }


def evaluate(
    model: Twin | Fit,
    data: Dataset,
    *,
    threshold: float = 0.3,
    dtw: bool = True,
    constraint: AbstractConstraint | None = None,
    max_values: int = MAX_VALUES,
) -> Evaluation:
    """Predict every run from its initial state and compute the metrics of the prediction.

    **Arguments:**

    - `model`: a twin, or a fit, all seeds of which are evaluated.
    - `data`: the runs.
    - `threshold`: the relative error up to which a prediction is valid.
    - `dtw`: whether to compute DTW (needs `pip install 'twinfold[dtw]'`).
    - `constraint`: compute its violation by the outputs, taken as states, instead of that of the twin's constraint.
    - `max_values`: how many numbers are predicted at a time; limits the memory.

    **Returns:** an `Evaluation`.

    **Example:**

    ```python
    ts = np.linspace(0.0, 2.0, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts), 2 * np.exp(-ts)])
    evaluation = tw.evaluate(tw.Twin(lambda x: -x), data, dtw=False)
    evaluation.aggregate()["mae"]["mean"] < 1e-6  # True
    ```
    """
    seeds = len(model.seeds) if isinstance(model, Fit) else 1
    longest = max(len(run.ts) for run in data.runs)
    columns = len(data.output_names) + data.runs[0].states + data.runs[0].inputs
    size = max(1, max_values // (seeds * longest * columns))
    parts = []
    for start in range(0, len(data), size):
        predictions = predict(model, data.select(data.names[start : start + size]))
        predictions = predictions if constraint is None else predictions.against(constraint)
        parts.append(measure(predictions, threshold=threshold, dtw=dtw))
    return _concatenated(parts)


def measure(predictions: Predictions, *, threshold: float = 0.3, dtw: bool = True) -> Evaluation:
    """The metrics of given predictions; the arguments are those of `evaluate`.

    **Example:**

    ```python
    ts = np.linspace(0.0, 2.0, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)])
    predictions = tw.predict(tw.Twin(lambda x: -x), data)
    tw.metrics.measure(predictions.until(1.0), dtw=False).failures  # 0
    ```
    """
    arrays = predictions.predicted, predictions.y, predictions.mask
    failed = predictions.failed_steps
    plain = (errors.mae, errors.mse, errors.rmse, errors.nrmse, errors.fit_percent)
    metrics = {metric.__name__: metric(*arrays) for metric in plain}
    metrics["dtw"] = errors.dtw(*arrays) if dtw else np.full(metrics["mae"].shape, np.nan)
    for name in ("violation", "relative_violation"):
        values = getattr(predictions, name)
        metrics[f"{name}_mean"], metrics[f"{name}_max"] = _mean_and_max(values, predictions.is_sample)
    relative = errors.relative_error(*arrays)
    metrics["valid_time"] = errors.valid_time(relative, predictions.ts, predictions.length, failed, threshold)
    metrics["failed"] = np.any(failed, axis=-1)
    reasons = {
        (predictions.seeds[i], predictions.runs[j]): predictions.reason(i, j)
        for i, j in np.argwhere(metrics["failed"]).tolist()
    }
    return Evaluation(predictions.seeds, predictions.runs, metrics, reasons)


def with_true_field(twin: Twin, truth: Callable) -> Twin:
    """The twin with the exact field in place of its own.

    Its error is that of the integrator, step and projection alone: the lowest that a model with these can reach. A
    model with a smaller error has fitted the discretisation error.

    **Arguments:** `twin`, trained or not; `truth`, the exact dx/dt, a function of any of t, x, z, w, p
    (for a `System`: `system.truth`).

    **Example:**

    ```python
    twin = tw.Twin(tw.BlackBox(tw.MLP(width=8, depth=1)), integrator=tw.Euler())
    exact = tw.metrics.with_true_field(twin, lambda x: -x)
    ts = np.linspace(0.0, 1.0, 11)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)])
    tw.evaluate(exact, data, dtw=False).aggregate()["mae"]["mean"]  # the error of Euler's method
    ```
    """
    return eqx.tree_at(lambda twin: twin.cell.field, twin, truth, is_leaf=lambda node: node is twin.field)


def _mean_and_max(violation: np.ndarray, is_sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and maximum over samples and constraints, failed steps included: [..., R, T, m] -> [..., R].

    NaN without a constraint.
    """
    if violation.shape[-1] == 0:
        undefined = np.full(violation.shape[:-2], np.nan)
        return undefined, undefined
    values = np.where(is_sample[..., None], violation, 0.0).astype(np.float64)
    return values.sum((-2, -1)) / (is_sample.sum(-1) * values.shape[-1]), values.max((-2, -1))


def _concatenated(parts: Sequence[Evaluation]) -> Evaluation:
    first = parts[0]
    return Evaluation(
        first.seeds,
        tuple(run for part in parts for run in part.runs),
        {name: np.concatenate([part.metrics[name] for part in parts], axis=1) for name in first.metrics},
        {key: reason for part in parts for key, reason in part.reasons.items()},
    )
