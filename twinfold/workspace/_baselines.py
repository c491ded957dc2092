"""How good a twin is, beside what it has to beat: the mean of the data, the physics alone, the physics fitted."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset
from twinfold.metrics import Predictions, measure, predict, rmse
from twinfold.model import AbstractLearned, Twin
from twinfold.model._learned.base import learned_parts, trainable
from twinfold.workspace._workspace import Parts

METRICS = ("rmse", "mae", "valid_time", "relative_violation_max", "failed")
TWIN, FITTED, PURE, CONSTANT = "twin", "fitted physics", "pure physics", "constant"


def without_learned(twin: Twin) -> Twin:
    """The twin with the weights of every learned part at zero: it then adds nothing."""

    def emptied(node: Any) -> Any:
        if not isinstance(node, AbstractLearned):
            return node
        weights, rest = eqx.partition(node, trainable(node))
        return eqx.combine(jax.tree.map(jnp.zeros_like, weights), rest)

    return jax.tree.map(emptied, twin, is_leaf=lambda node: isinstance(node, AbstractLearned))


def at_first_guess(twin: Twin) -> Twin:
    """The twin with every `Unknown` where it started."""
    zeroed = [jnp.zeros_like(unknown.raw) for unknown in twin.unknowns()]
    return eqx.tree_at(lambda twin: [unknown.raw for unknown in twin.unknowns()], twin, zeroed) if zeroed else twin


def judge(twin: Twin, parts: Parts, physics: Twin | None = None) -> dict[str, dict[str, dict[str, float]]]:
    """The metrics of a fitted twin and of its baselines on every part of the data: model -> part -> metric -> number.

    **Arguments:** `twin`; `parts`; `physics`, the same twin with nothing learned and its parameters fitted.
    """
    # All runs at once: each further shape would be compiled anew.
    named = parts.named()
    whole = Dataset(
        tuple(run for data in named.values() for run in data.runs), parts.train.output_names, parts.train.input_names
    )
    models = {TWIN: twin}
    if physics is not None:
        models[FITTED] = physics
    if learned_parts(twin) or twin.unknowns():
        models[PURE] = at_first_guess(without_learned(twin))
    found = {name: predict(model, whole) for name, model in models.items()}
    found[CONSTANT] = _constant(found[TWIN], parts.train)
    ends = np.cumsum([len(data) for data in named.values()])
    return {
        model: {
            part: _numbers(_rows(each, end - len(data), end), whole.output_names)
            for (part, data), end in zip(named.items(), ends.tolist(), strict=True)
        }
        for model, each in found.items()
    }


def _constant(like: Predictions, train: Dataset) -> Predictions:
    """Every output at its mean over the training data."""
    mean = np.nanmean(np.concatenate([run.y for run in train.runs]), axis=0)
    nothing = np.zeros((*like.violation.shape[:-1], 0))
    return dataclasses.replace(
        like,
        predicted=np.broadcast_to(mean, like.predicted.shape),
        violation=nothing,
        relative=nothing,
        result=jax.tree.map(jnp.zeros_like, like.result),
    )


def _rows(predictions: Predictions, start: int, end: int) -> Predictions:
    """The predictions of some of the runs."""
    rows = slice(start, end)
    return dataclasses.replace(
        predictions,
        runs=predictions.runs[rows],
        **{name: getattr(predictions, name)[rows] for name in ("ts", "y", "mask", "length")},
        **{name: getattr(predictions, name)[:, rows] for name in ("predicted", "violation", "relative")},
        result=jax.tree.map(lambda codes: codes[:, rows], predictions.result),
    )


def _numbers(predictions: Predictions, outputs: tuple[str, ...]) -> dict[str, float]:
    evaluation = measure(predictions, dtw=False)
    over_runs = evaluation.by_seed()
    numbers = {name: float(over_runs[name][0]) for name in METRICS}
    if len(outputs) > 1:
        # Outputs have units of their own: each by itself, over all runs.
        y, mask = predictions.y[None], predictions.mask[None]
        for index, name in enumerate(outputs):
            one = [values[..., index].reshape(1, 1, -1, 1) for values in (predictions.predicted[:1], y, mask)]
            numbers[f"rmse {name}"] = float(rmse(*one)[0, 0]) if one[2].any() else float("nan")
    return numbers
