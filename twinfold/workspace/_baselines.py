"""Metrics of a twin beside those of its baselines: the mean of the data, the physics alone, the fitted physics."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold.check import Finding
from twinfold.data import Dataset
from twinfold.data._dataset import split_rows
from twinfold.metrics import Predictions, measure, predict, rmse
from twinfold.model import Twin
from twinfold.model._learned.base import learned_parts, without_learned_parts
from twinfold.workspace._data import DataSplit

METRICS = ("rmse", "mae", "valid_time", "relative_violation_max", "failed")
BASELINE = "baseline"  # the kind of a finding
TIE = 0.01  # relative: errors that differ by less are equal
TWIN, FITTED_PHYSICS, PURE_PHYSICS, CONSTANT = "twin", "fitted physics", "pure physics", "constant"


def _zeros_like(tree: Any) -> Any:
    """Zeros from the host, where they are not a program to compile."""
    return jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), tree)


def with_first_guess(twin: Twin) -> Twin:
    """The twin with every `Unknown` at its first guess."""
    zeros = [_zeros_like(unknown.raw) for unknown in twin.unknowns()]
    return eqx.tree_at(lambda twin: [unknown.raw for unknown in twin.unknowns()], twin, zeros) if zeros else twin


def evaluate_with_baselines(
    twin: Twin, split: DataSplit, physics: Twin | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """Evaluate a fitted twin and its baselines on every part of the data.

    **Arguments:** `twin`; `split`, the data; `physics`, the same twin with nothing learned and its parameters fitted.

    **Returns:** model -> part -> metric -> number. The models are "twin", "fitted physics" (if given), "pure physics"
    (nothing learned, parameters at their first guess) and "constant" (the mean of the training data).
    """
    # All runs in one call: every further shape would be compiled again.
    parts, data = split.by_name(), split.joined()
    models = {TWIN: twin}
    if physics is not None:
        models[FITTED_PHYSICS] = physics
    if learned_parts(twin) or twin.unknowns():
        models[PURE_PHYSICS] = with_first_guess(without_learned_parts(twin))
    predictions = {name: predict(model, data) for name, model in models.items()}
    predictions[CONSTANT] = _constant(predictions[TWIN], split.train)
    rows = split_rows(parts)
    return {
        model: {part: _metrics(each.select(rows[part]), data.output_names) for part in parts}
        for model, each in predictions.items()
    }


def compare_with_baselines(metrics: dict[str, Any]) -> list[Finding]:
    """A problem for each baseline that predicts held-out runs (if there are none, the training runs) better."""
    part = next(name for name in ("test", "valid", "train") if name in metrics[TWIN])
    error = metrics[TWIN][part]["rmse"]
    found = []
    for model, parts in metrics.items():
        rival = parts[part]["rmse"]
        if model == TWIN or rival is None or (error is not None and error <= (1 + TIE) * rival):
            continue
        errors = " and ".join("none" if value is None else f"{value:.3g}" for value in (rival, error))
        message = (
            f"The baseline '{model}' predicts the {part} runs better than the twin (RMSE {errors}): what was learned "
            "does harm there. Use the baseline, or fit with more data, a smaller network or another loss."
        )
        found.append(Finding(BASELINE, "problem", message, {"model": model, "rmse": rival, "twin": error}))
    return found


def _constant(like: Predictions, train: Dataset) -> Predictions:
    """Every output at its mean over the training data."""
    mean = np.nanmean(np.concatenate([run.y for run in train.runs]), axis=0)
    no_constraint = np.zeros((*like.violation.shape[:-1], 0))
    return dataclasses.replace(
        like,
        predicted=np.broadcast_to(mean, like.predicted.shape),
        violation=no_constraint,
        relative_violation=no_constraint,
        result=_zeros_like(like.result),
    )


def _metrics(predictions: Predictions, outputs: tuple[str, ...]) -> dict[str, float]:
    over_runs = measure(predictions, dtw=False).by_seed()
    numbers = {name: float(over_runs[name][0]) for name in METRICS}
    if len(outputs) > 1:
        # Outputs may differ in their units, so each also has an error over all runs.
        y, mask = predictions.y[None], predictions.mask[None]
        for index, name in enumerate(outputs):
            one = [values[..., index].reshape(1, 1, -1, 1) for values in (predictions.predicted[:1], y, mask)]
            numbers[f"rmse {name}"] = float(rmse(*one)[0, 0]) if one[2].any() else float("nan")
    return numbers
