"""The files in the run folder of a workspace: which configuration they belong to, their names, the history of a fit."""

import contextlib
import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.check import Finding
from twinfold.io import RunFolder, write_json, write_json_lines, write_text
from twinfold.workspace._config import Config, parse_config

if TYPE_CHECKING:
    from twinfold.data import Dataset
    from twinfold.train import Fit

CONFIG = "config.toml"
CHECKPOINT, PHYSICS_CHECKPOINT = "fit.npz", "physics.npz"
# Of the refit: from initial weights, or from the fit of a fold; and of the physics.
REFIT_CHECKPOINT, CONTINUED_CHECKPOINT, PHYSICS_REFIT_CHECKPOINT = "refit.npz", "continued.npz", "physics-refit.npz"
MODEL, PHYSICS, SEEDS = "model.twin", "physics.twin", "seeds.npz"
HISTORY, METRICS, FINDINGS, REFIT = "history.jsonl", "metrics.json", "findings.json", "refit.json"
# Not among the outputs: whoever starts over has seen the test data all the same.
OPENINGS = "test_openings.json"
UNITS = "units"  # in metrics.json
CHECKPOINTS = (CHECKPOINT, PHYSICS_CHECKPOINT, REFIT_CHECKPOINT, CONTINUED_CHECKPOINT, PHYSICS_REFIT_CHECKPOINT)
OUTPUTS = (*CHECKPOINTS, "fold-*.npz", MODEL, PHYSICS, SEEDS, HISTORY, METRICS, FINDINGS, REFIT)
DECISIVE_SECTIONS = ("system", "model", "data", "fit", "loss")  # the numbers of a fit depend on these
FINGERPRINTS = ("system sha256", "data fingerprint")
CURVES = ("stage", "loss", "score", "rate", "failed_runs")


@contextlib.contextmanager
def claim_run_folder(folder: Path, config: Config, fingerprints: tuple[str, str], *, force: bool) -> Iterator[bool]:
    """Create the run folder of a fit, or resume the fit in it, and hold it; see `twinfold.io.RunFolder.claim`.

    **Arguments:** `folder`; `config`; `fingerprints` of system.py and data; `force`: start over.
    """
    run = RunFolder(folder, outputs=OUTPUTS, read_settings=_settings_of_version_0_1)
    settings = decisive_settings(config) | dict(zip(FINGERPRINTS, fingerprints, strict=True))
    with run.claim(settings, force=force) as resumed:
        write_text(folder / CONFIG, config.toml())
        yield resumed


def read_fit_config(folder: Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration that the fit in a run folder was made with; `overrides` as in `open_workspace`."""
    try:
        return parse_config((folder / CONFIG).read_text(encoding="utf-8"), overrides, stored=True)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from None


def decisive_settings(config: Config) -> dict[str, Any]:
    """The settings that the numbers of a fit depend on."""
    return {name: value for name, value in config.flat().items() if name.partition(".")[0] in DECISIVE_SECTIONS}


def _settings_of_version_0_1(folder: Path) -> dict[str, Any]:
    """Version 0.1 kept the settings in config.toml and the fingerprints in versions.json."""
    versions = json.loads((folder / "versions.json").read_text(encoding="utf-8"))
    return decisive_settings(read_fit_config(folder)) | {name: versions.get(name) for name in FINGERPRINTS}


def fold_checkpoint(index: int) -> str:
    """The checkpoint of the fit that holds out the runs of a fold, of which the first is that of the configuration."""
    return CHECKPOINT if index == 0 else f"fold-{index}.npz"


def write_metrics(
    folder: Path, metrics: dict[str, Any], findings: Sequence[Finding], units: Mapping[str, str], note: str = ""
) -> None:
    """Write metrics.json: model -> part -> metric -> number, the findings, the units, and a note on the training."""
    about = {"findings": [vars(each) for each in findings], UNITS: dict(units)}
    write_json(folder / METRICS, metrics | about | ({"note": note} if note else {}))


def read_metrics(folder: Path) -> dict[str, Any] | None:
    """The metrics of the last evaluation: model -> part -> metric -> number; None if there is no readable file."""
    try:
        metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        return {name: parts for name, parts in metrics.items() if isinstance(parts, dict) and name != UNITS}
    except (OSError, ValueError, AttributeError):
        return None


def record_opening(folder: Path, command: str, test: "Dataset | None") -> None:
    """Note that a command has predicted the test data, if there are any."""
    if test is None:
        return
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    entry = {"command": command, "at": stamp, "test data": test.fingerprint()}
    write_json(folder / OPENINGS, [*_read_openings(folder), entry])


def count_openings(folder: Path, test: "Dataset | None") -> dict[str, int]:
    """How often each command has predicted these test data."""
    if test is None:
        return {}
    fingerprint = test.fingerprint()
    return dict(Counter(each["command"] for each in _read_openings(folder) if each["test data"] == fingerprint))


def _read_openings(folder: Path) -> list[dict[str, str]]:
    try:
        stored = json.loads((folder / OPENINGS).read_text(encoding="utf-8"))
        return [{name: str(each[name]) for name in ("command", "at", "test data")} for each in stored]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_findings(folder: Path, findings: Sequence[Finding]) -> None:
    """Write the warnings and problems of a fit, so that the same command repeats them."""
    write_json(folder / FINDINGS, [vars(each) for each in findings])


def read_findings(folder: Path) -> tuple[Finding, ...] | None:
    """The warnings and problems of a fit; None if there is no readable list."""
    try:
        stored = json.loads((folder / FINDINGS).read_text(encoding="utf-8"))
        return tuple(Finding(each["kind"], each["severity"], each["message"], each["detail"]) for each in stored)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_history(folder: Path, fit: "Fit") -> None:
    """Write the history of a fit, one line per epoch and seed."""
    rows = (
        {"epoch": epoch + 1, "seed": seed} | {name: fit.history[name][epoch, index].item() for name in CURVES}
        for epoch in range(len(fit.history["loss"]))
        for index, seed in enumerate(fit.seeds)
    )
    write_json_lines(folder / HISTORY, rows)


def read_history(folder: Path) -> dict[str, np.ndarray] | None:
    """The history of a fit, as in `Fit.history`; None if there is no readable one."""
    try:
        rows = [json.loads(line) for line in (folder / HISTORY).read_text(encoding="utf-8").splitlines()]
        seeds = len({row["seed"] for row in rows})
        # null, for a number that was not finite, becomes NaN.
        return {name: np.array([row[name] for row in rows], float).reshape(-1, seeds) for name in CURVES}
    except (OSError, ValueError, KeyError, TypeError):
        return None
