"""Free runs of a second, started every second: what a model sees first, and the error of the angles after it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

import twinfold as tw
from twinfold_studies.real.table import Record
from twinfold_studies.real.task import Outcome

STEP = 0.01  # s
SEEN, PREDICTED = 10, 100  # samples: those from which the start is estimated, and the second that is predicted
FAR = 4 * np.pi  # rad, that a larger error counts as, so that a divergence has a number


def on_grid(record: Record, names: Sequence[str]) -> Float[np.ndarray, "T k"]:
    """The columns at multiples of `STEP`; NaN where a sample is missing."""
    places = np.rint((record["t"] - record["t"][0]) / STEP).astype(int)
    found = np.full((places[-1] + 1, len(names)), np.nan)
    found[places] = np.stack([record[name] for name in names], 1)
    return found


def cut(
    name: str,
    angles: Float[np.ndarray, "T 2"],
    states: Float[np.ndarray, "T 4"],
    *,
    every: int,
    length: int = SEEN + PREDICTED,
    inputs: Float[np.ndarray, "T d"] | None = None,
) -> list[tw.Run]:
    """Pieces of a record, the next one `every` samples later; one begins with a sample that was measured."""
    found = []
    for first in range(0, len(angles) - length + 1, every):
        while np.isnan(states[first]).any():
            first += 1
        if first + length > len(angles):
            break
        part = slice(first, first + length)
        w = None if inputs is None else inputs[part]
        x0, ts = states[first], STEP * np.arange(length)
        found.append(tw.Run(f"{name}@{first}", ts, angles[part], w, x0=x0, group=name))
    return found


def dataset(runs: Sequence[tw.Run]) -> tw.Dataset:
    inputs = () if runs[0].w is None else ("tau1", "tau2")
    return tw.Dataset(tuple(runs), ("angle1", "angle2"), inputs)


def score(runs: Sequence[tw.Run], predicted: Float[np.ndarray, "N T 2"]) -> float:
    """The root mean square of the errors [rad] of both angles over the predicted second."""
    error = (np.asarray(predicted) - np.stack([run.y for run in runs]))[:, SEEN:]
    measured = ~np.isnan(np.stack([run.y for run in runs])[:, SEEN:])
    error = np.where(np.isfinite(error), np.clip(error, -FAR, FAR), FAR)
    return float(np.sqrt(np.mean(error[measured] ** 2)))


def by_twin(twin: tw.Twin, runs: Sequence[tw.Run]) -> Float[np.ndarray, "N T 2"]:
    """The predictions of a twin, whose start is estimated from the samples that are seen."""
    return tw.predict(twin, dataset(runs)).predicted[0]


def by_steps(simulate: Callable[[Any, Any], Any], runs: Sequence[tw.Run]) -> Float[np.ndarray, "N T 2"]:
    """The predictions of a model of equal steps; missing samples among the first are interpolated."""
    found = []
    for run in runs:
        u = np.zeros((len(run.ts), 0)) if run.w is None else run.w
        found.append(simulate(u, filled(run.y[:SEEN])))
    return np.stack(found)


def filled(y: Float[np.ndarray, "T k"]) -> Float[np.ndarray, "T k"]:
    """Columns with missing values interpolated."""
    at = np.arange(len(y))
    return np.stack([np.interp(at, at[~np.isnan(c)], c[~np.isnan(c)]) for c in y.T], 1)


def persistence(runs: Sequence[tw.Run]) -> Float[np.ndarray, "N T 2"]:
    """The last angles that were seen."""
    return np.stack([np.tile(filled(run.y[:SEEN])[-1], (len(run.ts), 1)) for run in runs])


def constant_velocity(runs: Sequence[tw.Run]) -> Float[np.ndarray, "N T 2"]:
    """The line through the angles that were seen."""
    found = []
    for run in runs:
        rate, angle = np.polyfit(run.ts[:SEEN], filled(run.y[:SEEN]), 1)
        found.append(angle + run.ts[:, None] * rate)
    return np.stack(found)


def outcome(runs: Sequence[tw.Run], predicted: Float[np.ndarray, "N T 2"], **more: Any) -> Outcome:
    """The error, and the predictions for the figures."""
    shown = np.where(np.isfinite(predicted), np.clip(predicted, -1e3, 1e3), 1e3)
    return {"metrics": {"rmse": score(runs, predicted)}, "predicted": shown.round(4).tolist()} | more
