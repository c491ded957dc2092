"""Fit the twin of a workspace into its run folder; an interrupted fit is resumed by the same call."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.check import Finding
from twinfold.data import Dataset
from twinfold.io import ModelInfo, json_safe, read_info, versions
from twinfold.model import Twin, load_model, save_model
from twinfold.model._learned.base import learned_parts, without_learned_parts
from twinfold.report._estimates import estimate_parameters
from twinfold.report._learned_parts import sample_states
from twinfold.report._metrics import metric_units
from twinfold.train import Fit, LevenbergMarquardt, fit
from twinfold.train._stored_fit import save_fit
from twinfold.workspace import _files as files
from twinfold.workspace._baselines import (
    BASELINE,
    evaluate_parts,
    evaluate_with_baselines,
    judge_fit,
    with_held_out,
)
from twinfold.workspace._check import examine_workspace
from twinfold.workspace._config import stored_arguments
from twinfold.workspace._data import DataSplit
from twinfold.workspace._refit import announcement, wants_refit
from twinfold.workspace._run_fit import shared_options
from twinfold.workspace._system import System
from twinfold.workspace._trackers import tracker
from twinfold.workspace._train import Diverged, Trained, train_workspace
from twinfold.workspace._workspace import Workspace

PHYSICS_LM_STEPS = 40  # for the few parameters of the physics alone
MAX_SAMPLES = 200_000  # from which the ranges of states and inputs are computed
DIVERGED = "diverged"  # the kind of a finding


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted twin, the system that built it, its metadata, and the fitted physics if there is one."""

    system: System
    twin: Twin
    info: ModelInfo
    physics: Twin | None


@dataclass(frozen=True)
class FitOutcome:
    """The result of a fit: `metrics` model -> part -> metric -> number, empty if it was interrupted.

    `findings`: the warnings and problems of the checks before the fit and of the comparison with the baselines.
    `parameters`: the estimates, see `ModelInfo`; `units` of metrics and parameters, by name. `finished_before`: an
    earlier call had completed the fit. `failures`: why a seed became non-finite, by seed.
    """

    folder: Path
    metrics: dict[str, Any]
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
    finished_before: bool = False
    failures: dict[int, str] | None = None
    parameters: tuple[dict[str, Any], ...] = ()
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)


def fit_workspace(
    workspace: Workspace,
    *,
    force: bool = False,
    progress: bool | Callable[[float, str], None] = True,
    log: Callable[[str], None] = lambda line: None,
) -> FitOutcome:
    """Check and fit the twin of a workspace; write findings, model, history and metrics into its run folder.

    **Arguments:** `workspace`; `force`: start over, whatever fit the folder holds; `progress`, see `twinfold.fit`;
    `log`, called with a line of text for each event and finding.

    **Raises:** `ConfigurationMismatch` if the folder belongs to another configuration, `FolderInUse` if another process
    holds it; nothing in it was changed.

    **Example:**

    ```python
    from pathlib import Path

    Path("system.py").write_text(
        "import twinfold as tw\\n\\n\\ndef twin():\\n"
        "    return tw.Twin(lambda x, p: -p['k'] * x, params={'k': tw.Unknown(1.0, positive=True)})\\n"
    )
    Path("twinfold.toml").write_text('[data]\\nfiles = ["decay.csv"]\\noutputs = ["x"]\\n')
    tw.io.write_csv(Path("decay.csv"), [{"t": t, "x": np.exp(-0.7 * t)} for t in (0.0, 0.5, 1.0, 1.5)])
    workspace = tw.workspace.open_workspace(".", ["fit.seeds=1", "fit.adam_epochs=5", "fit.learning_rate=0.1"])
    outcome = tw.workspace.fit_workspace(workspace, progress=False)
    outcome.metrics["twin"]["train"]["rmse"], outcome.metrics["constant"]["train"]["rmse"]
    ```
    """
    config, folder = workspace.config, workspace.run_folder
    system, folds = workspace.load_system(), workspace.load_folds()
    split = folds.given
    for note in split.notes:
        log(note)
    track = tracker(config.run.track, folder)  # raises before the fit if an extra is missing
    fingerprints = (system.sha256, split.train.fingerprint())
    with files.claim_run_folder(folder, config, fingerprints, force=force) as resumed:
        finished = resumed and (folder / files.METRICS).exists() and (folder / files.MODEL).exists()
        if resumed and not finished:
            log(f"Resuming the fit in {folder}.")
        findings = files.read_findings(folder) if resumed else None
        if findings is None:
            findings = examine_workspace(system, split).serious
            files.write_findings(folder, findings)
        elif not finished:  # what was found after the fit is found again
            findings = tuple(each for each in findings if each.kind not in (BASELINE, DIVERGED))
        for finding in findings:
            log(f"{finding.severity.capitalize()}: {finding.message}")
        units = metric_units(split.train.output_names, system.units) | system.units
        if finished:
            about = read_info(folder / files.MODEL)
            return FitOutcome(
                folder, about.metrics, findings, finished_before=True, parameters=about.parameters, units=units
            )
        if wants_refit(workspace, split):
            log(announcement(workspace, folds))
        try:
            trained = train_workspace(workspace, system, folds, progress=progress)
            physics, held_out = _fit_baseline(workspace, trained, split)
        except KeyboardInterrupt:
            return FitOutcome(folder, {}, findings, interrupted=True)
        except Diverged as error:
            files.write_findings(folder, (*findings, Finding(DIVERGED, "problem", str(error))))
            raise
        if trained.note:
            log(trained.note)
        files.record_opening(folder, "fit", split.test)
        metrics = evaluate_with_baselines(trained.fit.twin, trained.split, physics)
        metrics = json_safe(with_held_out(metrics, held_out))
        for finding in judge_fit(metrics):
            findings = (*findings, finding)
            log(f"{finding.severity.capitalize()}: {finding.message}")
        files.write_findings(folder, findings)
        about = _model_info(workspace, system, trained, metrics)
        if physics is not None:
            save_model(folder / files.PHYSICS, physics, about=about)
        save_fit(folder / files.SEEDS, trained.fit)
        save_model(folder / files.MODEL, trained.fit.twin, about=about)
        track(trained.judged, metrics, config)
        files.write_metrics(
            folder, metrics, findings, metric_units(split.train.output_names, system.units), trained.note
        )
    failures = trained.fit.failures | trained.judged.failures
    return FitOutcome(folder, metrics, findings, failures=failures, parameters=about.parameters, units=units)


def seen_split(workspace: Workspace, fitted: Fitted) -> DataSplit:
    """The data of a workspace as a fitted twin has seen them: after a refit, validation runs are training runs.

    Data that are not those of the fit are split as the configuration says.
    """
    folds = workspace.load_folds()
    if fitted.info.trained_on and folds.everything.train.fingerprint() == fitted.info.data_fingerprint:
        return folds.everything
    return folds.given


def load_fitted(workspace: Workspace, *, trust_changed: bool = False, model: Path | None = None) -> Fitted:
    """Load the fitted twin of a workspace.

    **Arguments:** `workspace`; `trust_changed`: run system.py even if it is not the file that the twin was fitted with;
    `model`: a model file other than that in the run folder.

    **Raises:** `FileNotFoundError` before the first fit; `ValueError` if system.py was changed.

    **Example:**

    ```python
    from pathlib import Path

    Path("system.py").write_text(
        "import twinfold as tw\\n\\n\\ndef twin():\\n"
        "    return tw.Twin(lambda x, p: -p['k'] * x, params={'k': tw.Unknown(1.0, positive=True)})\\n"
    )
    Path("twinfold.toml").write_text('[data]\\nfiles = ["decay.csv"]\\noutputs = ["x"]\\n')
    tw.io.write_csv(Path("decay.csv"), [{"t": t, "x": np.exp(-0.7 * t)} for t in (0.0, 0.5, 1.0, 1.5)])
    workspace = tw.workspace.open_workspace(".", ["fit.seeds=1", "fit.adam_epochs=5", "fit.learning_rate=0.1"])
    tw.workspace.fit_workspace(workspace, progress=False)
    fitted = tw.workspace.load_fitted(workspace)
    fitted.info.states, fitted.twin.parameters()["k"]
    ```
    """
    path = workspace.run_folder / files.MODEL if model is None else model
    info = read_info(path)
    system = workspace.load_system(
        arguments=stored_arguments(info.config), sha256=info.system_source_sha256, trust_changed=trust_changed
    )
    physics = path.with_name(files.PHYSICS)
    return Fitted(
        system, load_model(path, system.twin), info, load_model(physics, system.twin) if physics.exists() else None
    )


def _fit_baseline(workspace: Workspace, trained: Trained, given: DataSplit) -> tuple[Twin | None, dict[str, Any]]:
    """The physics fitted to what the twin was trained on; after a refit, the metrics on validation runs before it."""
    physics = _fit_physics(workspace, trained.judged.twin, given, files.PHYSICS_CHECKPOINT)
    if not trained.note:
        return physics, {}
    assert given.valid is not None
    held_out = evaluate_parts(trained.judged.twin, {"valid": given.valid}, physics, train=given.train)
    return _fit_physics(workspace, trained.fit.twin, trained.split, files.PHYSICS_REFIT_CHECKPOINT), held_out


def _fit_physics(workspace: Workspace, twin: Twin, split: DataSplit, checkpoint: str) -> Twin | None:
    """The twin with nothing learned and the parameters of its physics fitted; None if it has none, or is just that.

    None as well if the fit became non-finite. **Raises:** `KeyboardInterrupt`.
    """
    if not twin.unknowns() or not learned_parts(twin):
        return None
    done = fit(
        without_learned_parts(twin),
        split.train,
        method=LevenbergMarquardt(PHYSICS_LM_STEPS),
        trainable="parameters",
        checkpoint=workspace.run_folder / checkpoint,
        progress=False,
        **shared_options(workspace, split),
    )
    if done.interrupted:
        raise KeyboardInterrupt
    return done.twin if np.isfinite(done.scores).all() else None


def _parameters(workspace: Workspace, done: Fit, train: Dataset) -> tuple[dict[str, Any], ...]:
    """The estimates of a fit as `ModelInfo` has them; why there is no standard error is warned of."""
    problems: list[str] = []
    found = estimate_parameters(done.twin, done, train, workspace.config.tables(), problems)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return tuple(
        json_safe(
            {
                "name": each.name,
                "value": each.value,
                "standard error": each.error,
                "first guess": each.guess,
                "flag": each.flag,
            }
        )
        for each in found
    )


def _model_info(workspace: Workspace, system: System, trained: Trained, metrics: dict[str, Any]) -> ModelInfo:
    done, train, twin = trained.fit, trained.split.train, trained.fit.twin
    samples = sample_states(twin, train, max_samples=MAX_SAMPLES)
    count = samples.x.shape[1]
    states = system.states or tuple(f"x{index}" for index in range(count))
    if len(states) != count:
        raise ValueError(f"{system.path}: STATES has {len(states)} names, but the twin has {count} states.")
    steps = np.concatenate([np.diff(run.ts) for run in train.runs])
    return ModelInfo(
        states=states,
        inputs=train.input_names,
        outputs=train.output_names,
        units=system.units,
        dt=float(f"{np.median(steps):.9g}"),  # 0.003, not 0.0030000000000000027
        x0_example=tuple(samples.x[0].tolist()),
        x_low=tuple(samples.x.min(0).tolist()),
        x_high=tuple(samples.x.max(0).tolist()),
        w_low=() if samples.w is None else tuple(samples.w.min(0).tolist()),
        w_high=() if samples.w is None else tuple(samples.w.max(0).tolist()),
        config=workspace.config.tables(),
        system_source_sha256=system.sha256,
        data_fingerprint=train.fingerprint(),
        versions=versions(),
        metrics=metrics,
        parameters=_parameters(workspace, done, train),
        trained_on=trained.note,
    )
