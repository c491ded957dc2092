"""The refit: held-out runs tell how long to train, then the twin is fitted to training and validation runs together.

A single held-out block is a poor judge of a single record, since some blocks are easier than others: with `fit.folds`
each is held out once, and the mean of their scores decides.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import jax
import numpy as np

from twinfold.io import write_json
from twinfold.numerics import NoProjection
from twinfold.train import AbstractMethod, Fit, prepare
from twinfold.workspace import _files as files
from twinfold.workspace._data import DataSplit
from twinfold.workspace._folds import Folds
from twinfold.workspace._run_fit import run_fit, scaled_errors, shared_options
from twinfold.workspace._system import System
from twinfold.workspace._workspace import Workspace

Progress = bool | Callable[[float, str], None]
CLEARED_AFTER = 8  # folds: runs of other lengths are other programs, and a process may map so many


@dataclass(frozen=True)
class Choice:
    """What held-out runs have decided: the `steps` of each stage, the `scores` of the seeds (the least is chosen).

    `folds`: how often runs were held out; `start`: the fold whose fit the refit starts from, None for initial weights.
    """

    steps: tuple[int, ...]
    scores: tuple[float, ...]
    folds: int
    start: int | None = None

    @property
    def seed(self) -> int:
        """The index of the chosen seed."""
        return int(np.argmin(self.scores))

    def methods(self, methods: Sequence[AbstractMethod]) -> tuple[AbstractMethod, ...]:
        """The stages that helped on held-out runs, as long as they did; the last of them alone if it only continues."""
        stages = zip(methods, self.steps, strict=True)
        chosen = [replace(method, epochs=min(steps, method.epochs), patience=None) for method, steps in stages if steps]
        return tuple(chosen if self.start is None else chosen[-1:])

    def sentence(self) -> str:
        """What the weights were trained on, and what the validation errors belong to."""
        steps = " and ".join(str(each) for each in self.steps if each)
        judged = "the validation runs" if self.folds == 1 else f"held-out runs, the mean over {self.folds} folds"
        start = "" if self.start is None else " It continues the fit of a fold: from new weights it was worse."
        return (
            f"Refit: the weights were trained on training and validation runs together, for as many steps ({steps}) as "
            f"were best on {judged}.{start} Errors on validation runs are those of the fit before, which had not seen "
            "them."
        )


def wants_refit(workspace: Workspace, split: DataSplit) -> bool:
    """Whether a refit follows the fit."""
    return split.valid is not None and workspace.config.fit.refit


def announcement(workspace: Workspace, folds: Folds) -> str:
    """What a refit will take."""
    count = 1 + len(folds.others(_count_folds(workspace)))
    times = "" if count == 1 else f" {count} fits, each with other runs held out, tell how long to train;"
    return f"Refit:{times} a last one has training and validation runs together. fit.refit = false does without."


def refit(
    workspace: Workspace, system: System, folds: Folds, done: Fit, *, progress: Progress = False
) -> tuple[Choice, Fit]:
    """Choose steps and seed on held-out runs, and fit to training and validation runs together.

    **Arguments:** `workspace`; `system`; `folds` of its data; `done`, the fit to the training runs.

    **Returns:** the choice, and the fit, whose scores are those on held-out runs. Each fit has a checkpoint.

    **Raises:** `KeyboardInterrupt`, after which the same call resumes.
    """
    splits = (folds.given, *folds.others(_count_folds(workspace)))
    others = []
    for index, split in enumerate(splits[1:], start=1):
        options = {"progress": progress, "label": f"fold {index + 1} of {len(splits)}"}
        done_fold = run_fit(workspace, system.twin, split, checkpoint=files.fold_checkpoint(index), **options)
        others.append(_finished(done_fold))
        if index % CLEARED_AFTER == 0:
            jax.clear_caches()
    fits, everything = [done, *others], folds.everything
    choice = choose_steps([each.history for each in fits], late=_projects_late(workspace, system))
    final = _run_refit(workspace, system, folds, choice, progress=progress)
    own = [float(scaled_errors(each.twin_of(choice.seed), everything.train, everything.train)[0]) for each in fits]
    best = int(np.argmin(own))
    lost = scaled_errors(final, everything.train, everything.train)[choice.seed] > own[best]
    if lost and not any(unknown.per_group for unknown in system.twin.unknowns()):
        # A model that has not seen all of these runs predicts them better: the fit has ended in a worse minimum.
        choice = replace(choice, start=best)
        final = _run_refit(workspace, system, folds, choice, fits[best], progress=progress)
    write_json(workspace.run_folder / files.REFIT, asdict(choice))
    return choice, final


def _run_refit(
    workspace: Workspace,
    system: System,
    folds: Folds,
    choice: Choice,
    start: Fit | None = None,
    *,
    progress: Progress = False,
) -> Fit:
    """The fit to training and validation runs together, from its checkpoint, with the scores on held-out runs.

    **Arguments:** `start`: the fit of the fold `choice.start`, if there is one.
    """
    split, methods = folds.everything, choice.methods(_stages(workspace, system, folds.given))
    options = {"methods": methods, "progress": progress, "label": "refit"}
    if start is None:
        done = _finished(run_fit(workspace, system.twin, split, checkpoint=files.REFIT_CHECKPOINT, **options))
        return replace(done, scores=np.where(np.isfinite(done.scores), choice.scores, np.inf))
    continues = {"checkpoint": files.CONTINUED_CHECKPOINT, "seeds": 1, "draw": False}
    done = _finished(run_fit(workspace, start.twin_of(choice.seed), split, **continues, **options))
    return replace(done, seeds=(start.seeds[choice.seed],), scores=np.array([choice.scores[choice.seed]]))


def choose_steps(histories: Sequence[Mapping[str, np.ndarray]], *, late: bool = False) -> Choice:
    """The steps of each stage after which the mean score over all folds is least, and the best seed.

    **Arguments:** `histories` of the fits, one for each fold, with the same seeds and stages; `late`: the last stage is
    the first one with a projection, so that its scores are not compared with those before.
    """
    stages, seeds = 1 + max(int(each["stage"].max()) for each in histories), histories[0]["score"].shape[1]
    best, steps = np.full(seeds, np.inf), np.zeros((stages, seeds), int)
    for stage in range(stages):
        mean = np.mean(_curves(histories, stage), axis=0)
        if late and stage == stages - 1:
            best = np.full(seeds, np.inf)
        least, at = mean.min(0), mean.argmin(0)
        steps[stage] = np.where(least < best, at + 1, 0)  # a stage that gained nothing is left out
        best = np.minimum(best, least)
    if len(histories) > 1 and not np.isfinite(best).any():  # no seed survived every fold
        return choose_steps(histories[:1], late=late)
    return Choice(tuple(steps[:, best.argmin()].tolist()), tuple(best.tolist()), len(histories))


def _curves(histories: Sequence[Mapping[str, np.ndarray]], stage: int) -> np.ndarray:
    """[K, E, S] the score after each epoch of a stage; that of a fit that has ended stays what it was."""
    scores = [each["score"][each["stage"][:, 0] == stage] for each in histories]
    longest = max(map(len, scores))
    padded = [
        np.concatenate([each, np.repeat(each[-1:], longest - len(each), 0)])
        if len(each)
        else np.full((longest, each.shape[1]), np.inf)
        for each in scores
    ]
    stacked = np.stack(padded)
    return np.where(np.isfinite(stacked), stacked, np.inf)


def _count_folds(workspace: Workspace) -> int:
    """How often runs are held out: as the configuration says, or else each block once."""
    chosen = workspace.config.fit.folds
    return (workspace.config.data.blocks or 1) if chosen is None else chosen


def _stages(workspace: Workspace, system: System, split: DataSplit) -> tuple[AbstractMethod, ...]:
    """The stages of a fit; default ones depend on the data."""
    settings = workspace.config.fit
    options = {"trainable": settings.trainable, **shared_options(workspace, split)}
    return settings.methods() or prepare(system.twin, split.train, **options)[0]


def _projects_late(workspace: Workspace, system: System) -> bool:
    return workspace.config.fit.project == "late" and not isinstance(system.twin.projection, NoProjection)


def _finished(fit: Fit) -> Fit:
    if fit.interrupted:
        raise KeyboardInterrupt
    return fit
