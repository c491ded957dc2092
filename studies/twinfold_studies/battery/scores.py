"""Scores of a model on the discharges of many cells, and the rows of the table."""

import dataclasses
import importlib.util
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset, Run
from twinfold.metrics import Predictions, dtw, measure, predict
from twinfold.model import Twin
from twinfold.train import Fit
from twinfold_studies.battery.cells import GROUPS

PAPER = {"hrpinn_large": 0.0377, "hrpinn_small": 0.1001, "pinn": 0.1127, "node": 0.1458}

HAS_DTW = importlib.util.find_spec("dtaidistance") is not None
WITHOUT_TEMPERATURE = ("constant", "persistence")


@dataclasses.dataclass
class Scores:
    """MAE, DTW and failures [S][C] of S seeds on the discharges of C cells; number of parameters.

    `train_s` is the time of training, `infer_s` the time per discharge of a batch. Scores are stored by these names.
    """

    cells: list[str]
    mae: list[list[float]]
    dtw: list[list[float]]
    failed: list[list[bool]]
    train_s: float
    infer_s: float
    parameters: int

    @staticmethod
    def joined(parts: Sequence["Scores"]) -> "Scores":
        """The scores of several folds together."""

        def concatenated(name: str) -> list[list]:
            return [[*itertools.chain(*rows)] for rows in zip(*(getattr(part, name) for part in parts), strict=True)]

        return Scores(
            [cell for part in parts for cell in part.cells],
            concatenated("mae"),
            concatenated("dtw"),
            concatenated("failed"),
            float(np.mean([part.train_s for part in parts])),
            float(np.mean([part.infer_s for part in parts])),
            parts[0].parameters,
        )


def score(model: Fit | Twin, data: Dataset, *, train_s: float = 0.0, parameters: int = 0) -> Scores:
    """Predict every run with all seeds, and compute the scores of the voltage, the first output.

    DTW is not a number on a machine without its package.
    """
    evaluation = measure(voltage_alone(predict(model, data)), dtw=HAS_DTW)
    start = time.perf_counter()
    predict(model, data)  # already compiled
    seconds = (time.perf_counter() - start) / evaluation.metrics["mae"].size
    metrics = {name: evaluation.metrics[name].tolist() for name in ("mae", "dtw", "failed")}
    return Scores(list(data.groups), metrics["mae"], metrics["dtw"], metrics["failed"], train_s, seconds, parameters)


def voltage_alone(predictions: Predictions) -> Predictions:
    """Predictions without those of the temperature."""
    return dataclasses.replace(
        predictions, **{name: getattr(predictions, name)[..., :1] for name in ("y", "mask", "predicted")}
    )


def score_rule(rule: Callable[[Run], np.ndarray], data: Dataset) -> Scores:
    """The scores of a baseline that maps a run to its voltage."""
    mae, distances = [], []
    start = time.perf_counter()
    predicted = [rule(run) for run in data.runs]
    seconds = (time.perf_counter() - start) / len(data)
    for run, values in zip(data.runs, predicted, strict=True):
        mask = ~np.isnan(run.y)
        mae.append(float(np.nanmean(np.abs(values[:, None] - run.y))))
        alike = dtw(values[None, None, :, None], np.nan_to_num(run.y)[None], mask[None]) if HAS_DTW else [[np.nan]]
        distances.append(float(alike[0][0]))
    return Scores(list(data.groups), [mae], [distances], [[False] * len(mae)], 0.0, seconds, 0)


def score_rows(
    protocol: str,
    seen: str,
    model: str,
    scores: Scores,
    groups: Mapping[str, str],
    *,
    total: bool = True,
    temperature: str = "measured",
) -> list[dict[str, Any]]:
    """A row for each group that has cells and, if `total`, one for all; `groups` maps cells to groups.

    `temperature` of the cell: measured, or predicted from the load and the surroundings.
    """
    mae, distances, failed = (np.array(values) for values in (scores.mae, scores.dtw, scores.failed))
    names = dict.fromkeys([*GROUPS, *groups.values()])
    members = {name: [i for i, cell in enumerate(scores.cells) if groups[cell] == name] for name in names if name}
    if total:
        members["all"] = list(range(len(scores.cells)))
    return [
        {
            "protocol": protocol,
            "group": name,
            "cells_seen": seen,
            "model": model,
            "temperature": "none" if model in WITHOUT_TEMPERATURE else temperature,
            "cells": len({scores.cells[i] for i in chosen}),
            "seeds": len(mae),
            "failures": int(failed[:, chosen].sum()),
            "parameters": scores.parameters,
            "mae_mean": float(mae[:, chosen].mean()),
            "mae_std": float(mae[:, chosen].mean(1).std()),
            # Median over cells, because the capacity of a few cells changes spontaneously.
            "mae_median": float(np.median(mae[:, chosen].mean(0))),
            "dtw_mean": float(distances[:, chosen].mean()),
            "train_s": scores.train_s,
            "infer_s": scores.infer_s,
            "paper_mae": PAPER.get(model, float("nan")) if protocol == "paper" and name == "all" else float("nan"),
        }
        for name, chosen in members.items()
        if chosen
    ]
