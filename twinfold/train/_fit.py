"""Fit a twin to data (the paper's step 6): stages in sequence, seeds in parallel, resumable at any time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from twinfold._core import tree_take
from twinfold.data import Dataset
from twinfold.model import Region, Twin, count_parameters
from twinfold.parallel import InProcess, report_progress, select_executor
from twinfold.train._display import progress_bar
from twinfold.train._estimate import Estimate
from twinfold.train._evidence import Weights
from twinfold.train._levenberg import estimated_weights
from twinfold.train._loss import Loss
from twinfold.train._method import AbstractMethod
from twinfold.train._prepare import Project, Trainable
from twinfold.train._region import with_regions
from twinfold.train._run import prepare_run
from twinfold.train._shares import Share, TrainedShare, check_share_files, train_shares

FAILED = "became non-finite and was stopped at its last good parameters"


@dataclass(frozen=True)
class Fit:
    """The result of `fit`: the twins of all seeds, their scores, and the history of the training.

    `twin` is that of the best seed (by validation loss, or training loss where there was no validation set);
    `history` has an array [epoch, seed] for each of loss, score, rate and failed_runs, and the stage of each epoch.
    `weights` of the loss that were "auto", as they were estimated last: `l2` and `correlation` by seed.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    fit = tw.fit(twin, data, method=tw.Adam(3), progress=False)
    fit.twin, fit.scores, fit.history["loss"]
    ```
    """

    seeds: tuple[int, ...]
    scores: np.ndarray
    failures: dict[int, str]
    history: dict[str, np.ndarray]
    seconds: float
    interrupted: bool
    parameters: int
    params: PyTree  # of all seeds, stacked along a leading axis
    frozen: Estimate  # all that is not trained
    regions: tuple[Region, ...] = ()  # of the learned parts that have one, stacked along a leading axis
    weights: Weights | None = None  # of the loss, where they were estimated, stacked along a leading axis

    @property
    def best(self) -> int:
        """Index of the best seed."""
        usable = np.where(np.isfinite(self.scores), self.scores, np.inf)
        return int(np.argmin(usable))

    @property
    def twin(self) -> Twin:
        """The fitted twin of the best seed."""
        return self.twin_of(self.best)

    def twin_of(self, index: int) -> Twin:
        """The fitted twin of the seed at `index`."""
        return self._twin(*tree_take((self.params, self.regions), index))

    def loss_of(self, index: int, loss: Loss) -> Loss:
        """`loss`, with which it was made, with the weights that were estimated for the seed at `index`."""
        found = None if self.weights is None else tree_take(self.weights, index)
        return replace(loss, **{name: getattr(found, name) for name in loss.estimated})

    def map(self, fn: Callable[[Twin], Any]) -> Any:
        """`fn` of each seed's twin, side by side; results have a leading axis of seeds."""
        return jax.vmap(lambda params, regions: fn(self._twin(params, regions)))(self.params, self.regions)

    def _twin(self, params: PyTree, regions: tuple[Region, ...]) -> Twin:
        return with_regions(eqx.combine(params, self.frozen).twin, regions)


def fit(
    twin: Twin,
    data: Dataset,
    *,
    valid: Dataset | None = None,
    seeds: int | Sequence[int] = 1,
    method: AbstractMethod | Sequence[AbstractMethod] | None = None,
    loss: Loss | None = None,
    window: int | None = None,
    shooting: bool | None = None,
    trainable: Trainable = "all",
    remat: bool = False,
    project: Project = "late",
    draw: bool = True,
    checkpoint: str | Path | None = None,
    workers: int = 1,
    scheduler: str = "",
    progress: bool | Callable[[float, str], None] = True,
    label: str = "",
) -> Fit:
    """Estimate the learned parts and unknown parameters of a twin from measured runs.

    **Arguments:**

    - `twin`, `data`; `valid`: runs on which the best parameters are chosen.
    - `seeds`: how many (0, 1, ...) or which; each draws its own weights and data order.
    - `method`: one or several in a row; stages that suit the data when left out (see `default_methods`).
    - `loss`: the terms to minimise.
    - `window`: train on windows of that many samples rather than on whole runs.
    - `shooting`: estimate the state at the start of each window (with a continuity term); when left out, this is
      done where the state is not measured there.
    - `trainable`: `"all"`; `"per_run"` to estimate only what belongs to single runs or groups; `"parameters"` to
      estimate every `Unknown` and keep the rest as it is (learned parts without weights are drawn).
    - `remat`: for long runs; the gradient keeps few of the states and computes the others again, so that its memory
      grows as the square root of the run, for one more pass forward.
    - `project`: when the projection of the twin takes part: `"late"`, only in the last stage, which is faster and
      mostly more accurate (a stage that fails without it is repeated with it); or `"always"`.
    - `draw`: False to begin with the weights and parameters of `twin`, which was fitted before, to these runs or to
      others; every seed then starts from the same ones.
    - `checkpoint`: a file; a killed fit resumes from it when called again.
    - `workers`: processes that train a share of the seeds each, with the extra `distributed`; or `scheduler`, the
      address of a Dask cluster that trains `workers` shares. The seeds are those of a fit in one process, up to
      rounding; only a stage that is repeated with projection is repeated for the seeds of its share alone.
    - `progress`, `label`: the progress bar and its name; or a function of the fraction done and a line of text.

    **Returns:** a `Fit`. Ctrl-C returns the best so far.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(5), progress=False)
    fit.twin.parameters()["k"]  # 0.7
    ```
    """
    names = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not names:
        raise ValueError("seeds: give at least one seed.")
    options: dict[str, Any] = {
        "valid": valid,
        "loss": loss,
        "window": window,
        "shooting": shooting,
        "trainable": trainable,
        "methods": _methods(method),
        "remat": remat,
        "project": project,
        "draw": draw,
    }
    path = None if checkpoint is None else Path(checkpoint)
    run = prepare_run(twin, data, names, options, path)
    executor = select_executor(min(workers, len(names)), scheduler)
    count = 1 if isinstance(executor, InProcess) else min(workers, len(names))
    check_share_files(path, count)
    if run.resume() or count == 1:
        with progress_bar(sum(method.epochs for method in run.methods), label, progress) as report:
            run.run(report)
    else:
        train = partial(_train_share, twin, data, options)
        run.adopt(train_shares(train, names, count, path, executor, progress))
    problems = run.problems
    best, regions, best_score = run.best()
    return Fit(
        seeds=names,
        scores=np.asarray(best_score),
        failures={name: FAILED for name, bad in zip(names, np.asarray(run.progress.state.failed), strict=True) if bad},
        history=run.history,
        seconds=run.progress.seconds,
        interrupted=run.interrupted,
        parameters=count_parameters(tree_take(best, 0)),
        params=best,
        frozen=problems[0].frozen,
        regions=regions,
        weights=estimated_weights(run.progress.state.method) if problems[0].estimated else None,
    )


def _train_share(twin: Twin, data: Dataset, options: dict[str, Any], share: Share) -> TrainedShare:
    """Train some of the seeds, in a worker."""
    run = prepare_run(twin, data, share.seeds, options, share.checkpoint)
    run.resume()
    with progress_bar(sum(method.epochs for method in run.methods), "", report_progress) as report:
        run.run(report)
    stage, state, _, seconds, projected = run.progress
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
    return TrainedShare(stage, leaves, run.history, seconds, projected, run.interrupted)


def _methods(method: AbstractMethod | Sequence[AbstractMethod] | None) -> tuple[AbstractMethod, ...] | None:
    if method is None:
        return None
    methods = (method,) if isinstance(method, AbstractMethod) else tuple(method)
    if not methods or not all(isinstance(method, AbstractMethod) for method in methods):
        raise ValueError("method: give Adam(...), Gradient(...), LevenbergMarquardt(...), or a sequence of them.")
    return methods
