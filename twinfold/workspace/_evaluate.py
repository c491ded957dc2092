"""Evaluate the fitted twin of a workspace: on the parts of its data, or on other files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twinfold.check import Finding
from twinfold.data import Dataset
from twinfold.io import json_safe
from twinfold.report._metrics import metric_units
from twinfold.workspace import _files as files
from twinfold.workspace._bands import MAX_RUNS, band_coverage, prepare_bands
from twinfold.workspace._baselines import (
    TWIN,
    compare_with_baselines,
    evaluate_parts,
    evaluate_with_baselines,
    judge_fit,
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


def evaluate_workspace(
    workspace: Workspace,
    fitted: Fitted,
    new: Sequence[str] = (),
    *,
    band: float | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> EvaluationOutcome:
    """Evaluate a fitted twin and its baselines.

    **Arguments:** `workspace`; `fitted`; `new`, files relative to the current folder, each of which is one part, named
    after it; if there are none, the parts are those of the workspace's data, and metrics.json is written;
    `band`: a probability, to report how many measurements lie inside bands of it ("coverage"); `log` for messages.
    """
    units = metric_units(fitted.info.outputs, fitted.info.units)
    if new:
        metrics, about = _evaluate_files(workspace, fitted, new)
        if band is not None:
            about += _add_coverage(metrics, workspace, fitted, read_new_files(workspace.config.data, new), band, log)
        return EvaluationOutcome(metrics, compare_with_baselines(metrics), units, about)
    folder, info = workspace.run_folder, fitted.info
    split, held_out, notes = seen_split(workspace, fitted), {}, list[str]()
    files.record_opening(folder, "evaluate", split.test)
    if split.valid is None and info.trained_on:
        held_out, notes = info.metrics, [info.trained_on]
    metrics = json_safe(with_held_out(evaluate_with_baselines(fitted.twin, split, fitted.physics, notes), held_out))
    if band is not None:
        notes += _add_coverage(metrics, workspace, fitted, split.by_name(), band, log)
    found = judge_fit(metrics)
    if split.train.fingerprint() != info.data_fingerprint:
        return EvaluationOutcome(metrics, found, units, (OTHER_DATA, *notes))
    files.write_metrics(folder, metrics, files.read_findings(folder) or (), units, info.trained_on)
    return EvaluationOutcome(metrics, found, units, tuple(notes))


def _add_coverage(
    metrics: dict[str, Any],
    workspace: Workspace,
    fitted: Fitted,
    parts: Mapping[str, Dataset],
    band: float,
    log: Callable[[str], None],
) -> tuple[str, ...]:
    """Add the coverage of the twin's bands on each part; what cannot be computed is returned as a sentence."""
    try:
        bands = prepare_bands(workspace, fitted, band, log=log)
        found = {part: band_coverage(fitted, bands, data) for part, data in parts.items()}
    except ValueError as error:
        return (f"The bands could not be computed: {error}",)
    for part, share in json_safe(found).items():
        metrics[TWIN][part]["coverage"] = share
    omitted = sum(max(len(data) - MAX_RUNS, 0) for data in parts.values())
    more = f" Of each part, the first {MAX_RUNS} runs were used." if omitted else ""
    return (f"Coverage is the share of measured values inside the bands of {band:.0%}.{more}",)


def _evaluate_files(workspace: Workspace, fitted: Fitted, new: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    parts, notes = read_new_files(workspace.config.data, new), list[str]()
    train: Dataset | None = None
    try:
        train = workspace.load_split().train
    except (OSError, ValueError) as error:
        notes.append(f"{NO_CONSTANT}: {error}")
    metrics = evaluate_parts(fitted.twin, parts, fitted.physics, train=train, notes=notes)
    return json_safe(metrics), tuple(notes)
