"""Metrics of a twin beside those of its baselines: the mean of the data, the physics alone, the fitted physics."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold.check import Finding
from twinfold.data import Dataset
from twinfold.data._dataset import join, split_rows
from twinfold.metrics import Predictions, extrapolation_share, fit_percent, measure, predict, rmse
from twinfold.model import Twin
from twinfold.model._learned.base import learned_parts, without_learned_parts
from twinfold.workspace._data import DataSplit

METRICS = ("fit_percent", "nrmse", "rmse", "mae", "valid_time", "relative_violation_max", "failed")
BASELINE = "baseline"  # the kind of a finding
TIE = 0.01  # relative: errors that differ by less are equal
TWIN, FITTED_PHYSICS, PURE_PHYSICS, CONSTANT = "twin", "fitted physics", "pure physics", "constant"
# What to do where a baseline is better than the twin.
ADVICE = {
    FITTED_PHYSICS: "what the network has learned does harm there. Leave the learned part out of system.py, or "
    "restrain it: a larger loss.l2, a smaller width, or training runs that cover what the others do.",
    PURE_PHYSICS: "the first guesses of the parameters, with nothing learned, are better than what was fitted. Give "
    "the parameters a prior (a spread in Unknown, and loss.prior), restrain the network (a larger loss.l2, a smaller "
    "width), or fit to more runs.",
    CONSTANT: "it explains less than the mean of the training data does. `twinfold check` shows whether units, inputs "
    "and initial states are right; a run that is too long to be predicted from its start needs its initial state "
    "estimated.",
}


def _zeros_like(tree: Any) -> Any:
    """Zeros from the host, where they are not a program to compile."""
    return jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), tree)


def with_first_guess(twin: Twin) -> Twin:
    """The twin with every `Unknown` at its first guess, but for estimated initial states."""

    def chosen(twin: Twin) -> list[Any]:
        kept = twin.initial if twin.warmup is not None else None
        return [unknown.raw for unknown in twin.unknowns() if unknown is not kept]

    zeros = [_zeros_like(raw) for raw in chosen(twin)]
    return eqx.tree_at(chosen, twin, zeros) if zeros else twin


def evaluate_with_baselines(
    twin: Twin, split: DataSplit, physics: Twin | None = None, notes: list[str] | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """Evaluate a fitted twin and its baselines on every part of the data.

    **Arguments:** `twin`; `split`, the data; `physics`, the same twin with nothing learned and its parameters fitted;
    `notes`, to which a sentence is added for each held-out part whose error is mostly extrapolation.

    **Returns:** model -> part -> metric -> number. The models are "twin", "fitted physics" (if given), "pure physics"
    (nothing learned, parameters at their first guess) and "constant" (the mean of the training data).
    """
    return evaluate_parts(twin, split.by_name(), physics, train=split.train, notes=notes)


def evaluate_parts(
    twin: Twin,
    parts: Mapping[str, Dataset],
    physics: Twin | None = None,
    *,
    train: Dataset | None,
    notes: list[str] | None = None,
) -> dict[str, dict[str, dict[str, float]]]:
    """Evaluate a fitted twin and its baselines on data by name; without `train`, there is no "constant"."""
    # All runs in one call: every further shape would be compiled again.
    data = join(parts.values())
    models = {TWIN: twin}
    if physics is not None:
        models[FITTED_PHYSICS] = physics
    if learned_parts(twin) or twin.unknowns():
        models[PURE_PHYSICS] = with_first_guess(without_learned_parts(twin))
    predictions = {name: predict(model, data) for name, model in models.items()}
    if train is not None:
        predictions[CONSTANT] = _constant(predictions[TWIN], train)
    rows = split_rows(parts)
    if notes is not None:
        shares = {part: extrapolation_share(predictions[TWIN].select(rows[part])) for part in parts if part != "train"}
        notes += [share.sentence(f"the {part} runs") for part, share in shares.items() if share.dominates]
    return {
        model: {part: _metrics(each.select(rows[part]), data.output_names) for part in parts}
        for model, each in predictions.items()
    }


def with_held_out(metrics: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of refitted models with those on the validation runs of the same models before the refit."""
    if not before:
        return dict(metrics)
    held_out = {model: {"valid": parts["valid"]} for model, parts in before.items() if "valid" in parts}
    return {model: parts | held_out.get(model, {}) for model, parts in metrics.items()}


def compare_with_baselines(metrics: dict[str, Any]) -> list[Finding]:
    """A problem for each baseline that predicts held-out runs better.

    Compared are the test runs; if there are none, the validation runs, or else the training runs; and all other parts,
    which are files that the fit has not seen.
    """
    given = list(metrics[TWIN])
    held_out = [name for name in ("test", "valid", "train") if name in given][:1]
    others = [name for name in given if name not in ("test", "valid", "train")]
    return [finding for part in held_out + others for finding in _compare(metrics, part)]


def judge_fit(metrics: dict[str, Any]) -> list[Finding]:
    """A problem if the twin is worse than the mean on the runs that it was fitted to, and for each better baseline.

    **Arguments:** `metrics` of the training, validation and test runs.
    """
    return [*_find_stuck(metrics), *compare_with_baselines(metrics)]


def _find_stuck(metrics: dict[str, Any]) -> Iterator[Finding]:
    error, rival = (metrics.get(model, {}).get("train", {}).get("rmse") for model in (TWIN, CONSTANT))
    if rival and (error is None or error > rival):
        reached = "none" if error is None else f"{error:.3g}"
        message = (
            f"The twin does not follow the runs that it was fitted to (RMSE {reached}, of their mean {rival:.3g}): the "
            "fit is stuck. Whole runs may be too long to be followed from their start: fit short windows, whose "
            "starts are estimated (`twinfold fit --set fit.window=50 --out runs/windows`). If that does not help, see "
            "what `twinfold check` says about the physics."
        )
        yield Finding(BASELINE, "problem", message, {"part": "train", "rmse": rival, "twin": error})


def _compare(metrics: dict[str, Any], part: str) -> Iterator[Finding]:
    error = metrics[TWIN][part]["rmse"]
    for model, parts in metrics.items():
        rival = parts[part]["rmse"]
        if model == TWIN or rival is None or (error is not None and error <= (1 + TIE) * rival):
            continue
        errors = " and ".join("none" if value is None else f"{value:.3g}" for value in (rival, error))
        message = (
            f"The baseline '{model}' predicts the {part} runs better than the twin (RMSE {errors}): {ADVICE[model]}"
        )
        yield Finding(BASELINE, "problem", message, {"model": model, "part": part, "rmse": rival, "twin": error})


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
        # Outputs may differ in their units, so each also has its errors, over all runs together.
        y, mask = predictions.y[None], predictions.mask[None]
        for index, name in enumerate(outputs):
            one = [values[..., index].reshape(1, 1, -1, 1) for values in (predictions.predicted[:1], y, mask)]
            for metric in (fit_percent, rmse):
                numbers[f"{metric.__name__} {name}"] = float(metric(*one)[0, 0]) if one[2].any() else float("nan")
    return numbers
