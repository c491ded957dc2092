"""Evaluate the fitted twin of a workspace: on the parts of its data, or on other files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinfold.check import Finding
from twinfold.data import Dataset
from twinfold.io import json_safe
from twinfold.report._metrics import metric_units
from twinfold.workspace import _files as files
from twinfold.workspace._baselines import (
    compare_with_baselines,
    evaluate_parts,
    evaluate_with_baselines,
    with_held_out,
)
from twinfold.workspace._data import read_new_files
from twinfold.workspace._fit import Fitted, seen_split
from twinfold.workspace._workspace import Workspace

OTHER_DATA = "These are not the data of the fit: train, valid and test are parts of the new data."
NO_CONSTANT = "The training data cannot be read, so the baseline 'constant', their mean, is left out"


@dataclass(frozen=True)
class EvaluationOutcome:
    """The result of an evaluation: `metrics` model -> part -> metric -> number; `findings`, baselines that are better.

    `units` of the metrics; `notes` say what the metrics are not.
    """

    metrics: dict[str, Any]
    findings: list[Finding]
    units: dict[str, str]
    notes: tuple[str, ...] = ()


def evaluate_workspace(workspace: Workspace, fitted: Fitted, new: Sequence[str] = ()) -> EvaluationOutcome:
    """Evaluate a fitted twin and its baselines.

    **Arguments:** `workspace`; `fitted`; `new`, files relative to the current folder, each of which is one part, named
    after it; if there are none, the parts are those of the workspace's data, and metrics.json is written.
    """
    units = metric_units(fitted.info.outputs, fitted.info.units)
    if new:
        metrics, about = _evaluate_files(workspace, fitted, new)
        return EvaluationOutcome(metrics, compare_with_baselines(metrics), units, about)
    folder, info = workspace.run_folder, fitted.info
    split, held_out, notes = seen_split(workspace, fitted), {}, list[str]()
    files.record_opening(folder, "evaluate", split.test)
    if split.valid is None and info.trained_on:
        held_out, notes = info.metrics, [info.trained_on]
    metrics = json_safe(with_held_out(evaluate_with_baselines(fitted.twin, split, fitted.physics, notes), held_out))
    found = compare_with_baselines(metrics)
    if split.train.fingerprint() != info.data_fingerprint:
        return EvaluationOutcome(metrics, found, units, (OTHER_DATA, *notes))
    files.write_metrics(folder, metrics, files.read_findings(folder) or (), units, info.trained_on)
    return EvaluationOutcome(metrics, found, units, tuple(notes))


def _evaluate_files(workspace: Workspace, fitted: Fitted, new: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    parts, notes = read_new_files(workspace.config.data, new), list[str]()
    train: Dataset | None = None
    try:
        train = workspace.load_split().train
    except (OSError, ValueError) as error:
        notes.append(f"{NO_CONSTANT}: {error}")
    metrics = evaluate_parts(fitted.twin, parts, fitted.physics, train=train, notes=notes)
    return json_safe(metrics), tuple(notes)
