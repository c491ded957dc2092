"""Fit the twin of a workspace: a run folder with all that came of it; stopped at any time, it goes on from there."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.io import versions
from twinfold.model import ModelInfo, Twin, load_model, read_info, save_model
from twinfold.model._learned.base import learned_parts
from twinfold.report._seen import samples_of
from twinfold.train import Fit, LevenbergMarquardt, fit
from twinfold.workspace import _files as files
from twinfold.workspace._baselines import judge, without_learned
from twinfold.workspace._files import claim, plain, write_history, write_metrics
from twinfold.workspace._trackers import tracker
from twinfold.workspace._workspace import Parts, System, Workspace

BASELINE_STEPS = 40  # of Levenberg-Marquardt, for the few parameters of the physics alone


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted twin with its system, what its file says of it, and the physics alone where it was fitted as well."""

    system: System
    twin: Twin
    info: ModelInfo
    physics: Twin | None


@dataclass(frozen=True)
class Outcome:
    """What a fit left in its folder: `metrics` model -> part -> metric -> number, none where it was interrupted."""

    folder: Path
    metrics: dict[str, Any]
    interrupted: bool
    fitted: bool  # False where an earlier call had done it all
    lost: dict[int, str]  # seeds that went non-finite


def fit_workspace(
    workspace: Workspace,
    *,
    force: bool = False,
    progress: bool | Callable[[float, str], None] = True,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Fit the twin and write model, history and metrics into the run folder.

    **Arguments:** `workspace`; `force`: start over in a folder of another configuration, or of this one; `progress`, as
    for `twinfold.fit`; `tell`, a function that is told what happens.

    **Raises:** `OtherConfiguration` where the folder belongs to another run: nothing in it was touched.
    """
    config, folder = workspace.config, workspace.run_folder
    system, parts = workspace.load_system(), workspace.load_parts()
    for note in parts.notes:
        tell(note)
    track = tracker(config.run.track, folder)  # a missing extra is named before anything is fitted
    facts = {"system sha256": system.sha256, "data fingerprint": parts.train.fingerprint()}
    if claim(folder, config, facts, force=force):
        if (folder / files.METRICS).exists() and (folder / files.MODEL).exists():
            return Outcome(folder, read_info(folder / files.MODEL).metrics, False, False, {})
        tell(f"Going on with the fit in {folder}.")
    done = refit(workspace, system, parts, progress=progress)
    write_history(folder, done)
    if done.interrupted:
        return Outcome(folder, {}, True, True, done.failures)
    if not np.isfinite(done.scores).any():
        raise ValueError(
            "Every seed went non-finite. `twinfold check` says whether the physics runs and the step is stable; a "
            "smaller fit.rate, short windows (fit.window) or zero_last=True in the networks make a fit gentler."
        )
    physics = _fitted_physics(workspace, system, done.twin, parts)
    metrics = plain(judge(done.twin, parts, physics))
    about = _about(workspace, system, done.twin, parts.train, metrics)
    if physics is not None:
        save_model(folder / files.PHYSICS, physics, about=about)
    save_model(folder / files.MODEL, done.twin, about=about)
    track(done, metrics, config)
    write_metrics(folder / files.METRICS, metrics)
    return Outcome(folder, metrics, False, True, done.failures)


def refit(
    workspace: Workspace, system: System, parts: Parts, *, progress: bool | Callable[[float, str], None] = False
) -> Fit:
    """The fit of a workspace, from its checkpoint where there is one: of a finished fit, all seeds at once."""
    settings = workspace.config.fit
    return fit(
        system.twin,
        parts.train,
        valid=parts.valid,
        seeds=settings.seeds,
        method=settings.methods(),
        loss=workspace.config.loss,
        window=settings.window,
        shooting=settings.shooting,
        trainable=settings.train,
        remat=settings.remat,
        checkpoint=workspace.run_folder / files.CHECKPOINT,
        progress=progress,
    )


def load_fitted(workspace: Workspace, *, trust_changed: bool = False, model: Path | None = None) -> Fitted:
    """The fitted twin of a workspace; its system.py must be the one that it was fitted with, or be trusted."""
    path = workspace.run_folder / files.MODEL if model is None else model
    info = read_info(path)
    system = workspace.load_system(sha256=info.system_source_sha256, trust_changed=trust_changed)
    beside = path.with_name(files.PHYSICS)
    physics = load_model(beside, system.twin) if model is None and beside.exists() else None
    return Fitted(system, load_model(path, system.twin), info, physics)


def _fitted_physics(workspace: Workspace, system: System, twin: Twin, parts: Parts) -> Twin | None:
    """The physics with its unknown parameters fitted and nothing learned; None where that is nothing of its own."""
    if not twin.unknowns() or not learned_parts(twin):
        return None
    alone = fit(
        without_learned(twin),
        parts.train,
        valid=parts.valid,
        method=LevenbergMarquardt(BASELINE_STEPS),
        loss=workspace.config.loss,
        window=workspace.config.fit.window,
        shooting=workspace.config.fit.shooting,
        trainable="parameters",
        checkpoint=workspace.run_folder / files.PHYSICS_CHECKPOINT,
        progress=False,
    )
    return alone.twin if np.isfinite(alone.scores).all() and not alone.interrupted else None


def _about(workspace: Workspace, system: System, twin: Twin, train: Dataset, metrics: dict[str, Any]) -> ModelInfo:
    samples = samples_of(twin, train, most=200_000)
    count = samples.x.shape[1]
    states = system.states or tuple(f"x{index}" for index in range(count))
    if len(states) != count:
        raise ValueError(f"{system.path}: STATES has {len(states)} names, and the twin has {count} states.")
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
    )
