"""Fit a twin to data (the paper's step 6): stages in sequence, seeds in parallel, resumable at any time."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from twinfold._core import tree_take
from twinfold.data import Dataset
from twinfold.model import Region, Twin, count_parameters
from twinfold.parallel import InProcess, report_progress, select_executor
from twinfold.train import _checkpoint as checkpoints
from twinfold.train._ahead import Ahead
from twinfold.train._display import progress_bar
from twinfold.train._estimate import Estimate
from twinfold.train._evidence import Weights
from twinfold.train._levenberg import LevenbergMarquardt, estimated_weights
from twinfold.train._loss import Loss
from twinfold.train._method import AbstractMethod
from twinfold.train._prepare import Project, Trainable, prepare
from twinfold.train._problem import TrainingProblem
from twinfold.train._region import region_scores, trained_regions, with_regions
from twinfold.train._seeds import CHUNK, Seed, begin_stage, compile_stage, run_epochs, score
from twinfold.train._shares import (
    Share,
    TrainedShare,
    check_share_files,
    concatenated,
    join_histories,
    remove_share_files,
    train_shares,
)

SAVE_EVERY = 5.0  # seconds between two checkpoints
HISTORY = ("stage", "loss", "score", "rate", "failed_runs")
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
    run = _prepare_run(twin, data, names, options, path)
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
    best, best_score = run.progress.state.best, run.progress.state.best_score
    # A region belongs to the weights that were trained in it: a network that is kept keeps its own.
    regions = trained_regions(problems[0], best, data) if trainable == "all" else ()
    if regions and valid is not None:  # on the training data, the twin is the same
        best_score = region_scores(run.problem, best, regions)
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


def _prepare_run(
    twin: Twin, data: Dataset, names: tuple[int, ...], options: dict[str, Any], path: Path | None
) -> "_Run":
    """A fit that has not begun; `options` of `prepare`."""
    methods, problems, params = prepare(twin, data, seeds=names, **options)
    if problems[0].estimated and not isinstance(methods[-1], LevenbergMarquardt):
        raise ValueError(
            f'loss: {problems[0].estimated[0]}="auto" is estimated by Levenberg-Marquardt, and the last stage is '
            f"{methods[-1].name}. Add a stage of LevenbergMarquardt(...), or give a number."
        )
    keys = jax.vmap(jax.random.key)(np.array(names))
    identity = checkpoints.fit_identity(
        twin, names, methods, Loss() if options["loss"] is None else options["loss"], options["project"]
    )
    identity |= {
        "data": checkpoints.array_fingerprint([(problem.batch, problem.valid) for problem in problems]),
        "start": checkpoints.array_fingerprint((params, problems[0].frozen)),
    }
    return _Run(problems, methods, keys, params, identity, path)


def _train_share(twin: Twin, data: Dataset, options: dict[str, Any], share: Share) -> TrainedShare:
    """Train some of the seeds, in a worker."""
    run = _prepare_run(twin, data, share.seeds, options, share.checkpoint)
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


class _Progress(NamedTuple):
    """How far a fit is: its stage, the state of the seeds, the number of records, and the computing time.

    `projected`: whether the projection takes part from now on, though it was planned for later.
    It is replaced as a whole, since Ctrl-C may come between any two statements.
    """

    stage: int
    state: Seed
    records: int = 0
    seconds: float = 0.0
    projected: bool = False


class _Run:
    """A fit in progress, and the records of its epochs."""

    def __init__(
        self,
        problems: tuple[TrainingProblem, ...],
        methods: tuple[AbstractMethod, ...],
        keys: Key[Array, " S"],
        params: PyTree,
        identity: dict[str, Any],
        path: Path | None,
    ):
        self.problems, self.methods, self.keys = problems, methods, keys
        self.identity, self.path = identity, path
        self.interrupted = False
        count = keys.shape[0]
        unscored = jax.device_put(np.full(count, np.inf, problems[0].batch.y.dtype))
        none_failed = jax.device_put(np.zeros(count, bool))
        self.progress = _Progress(0, begin_stage(problems[0], methods[0], params, unscored, none_failed))
        self.records: list[dict[str, np.ndarray]] = []

    @property
    def problem(self) -> TrainingProblem:
        """The problem of the current stage."""
        return self._problem(self.progress.stage)

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The records of all epochs, concatenated."""
        records = self.records[: self.progress.records]
        if not records:
            return {name: np.zeros((0, self.keys.shape[0])) for name in HISTORY}
        return {name: np.concatenate([record[name] for record in records]) for name in HISTORY}

    def run(self, report: Callable[..., None]) -> None:
        """Run all stages to their end, or until Ctrl-C."""
        epochs, saved = 1, time.perf_counter()
        later = range(self.progress.stage + 1, len(self.methods))
        ahead = Ahead({stage: partial(self._compile, stage) for stage in later})
        try:
            while True:
                stage, state, records, seconds, _ = self.progress
                method, done = self.methods[stage], int(np.asarray(state.epoch).max())
                before = sum(each.epochs for each in self.methods[:stage])
                epochs = min(epochs, CHUNK, method.epochs - done)
                if epochs <= 0 or bool(np.all(np.asarray(state.finished) | np.asarray(state.failed))):
                    self._report(report, before + method.epochs)
                    if self._repeat_projected():
                        epochs = 1
                        continue
                    if stage + 1 == len(self.methods):
                        break
                    ahead.wait(stage + 1)
                    self._next_stage()
                    epochs = 1
                    continue
                began = time.perf_counter()
                problem, count = self.problem, jnp.array(epochs)
                state, record, taken = jax.block_until_ready(run_epochs(problem, method, state, self.keys, count))
                took = time.perf_counter() - began
                rows = {name: np.asarray(getattr(record, name))[: int(taken)] for name in HISTORY[1:]}
                self.records.append({"stage": np.full(rows["loss"].shape, stage)} | rows)
                self.progress = self.progress._replace(state=state, records=records + 1, seconds=seconds + took)
                self._report(report, before + done + epochs)
                if self.path is not None and time.perf_counter() - saved > SAVE_EVERY:
                    self._save()
                    saved = time.perf_counter()
                # About half a second between two reports: quick to cancel, and little overhead.
                epochs = max(1, int(epochs * min(4.0, 0.5 / took)))
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            ahead.stop()
        self._save()

    def _problem(self, stage: int) -> TrainingProblem:
        problem = self.problems[stage]
        return replace(problem, projected=problem.projected or self.progress.projected)

    def _compile(self, stage: int) -> None:
        compile_stage(self._problem(stage), self.methods[stage], self.progress.state, self.keys)

    def _next_stage(self) -> None:
        stage, seeds = self.progress.stage + 1, self.progress.state
        problem, method, best_score = self._problem(stage), self.methods[stage], seeds.best_score
        changed = problem.projected and not self._problem(stage - 1).projected
        if changed:  # the scores are those of another model
            best_score = jnp.full_like(best_score, jnp.inf)
        state = begin_stage(problem, method, seeds.best, best_score, seeds.failed, seeds.drawn)
        if changed:
            state = score(problem, method, state, self.keys)
        self.progress = self.progress._replace(stage=stage, state=state)

    def _repeat_projected(self) -> bool:
        """Whether seeds failed in this stage for lack of projection: they repeat it, and all later ones, with it."""
        stage, seeds = self.progress.stage, self.progress.state
        if self._problem(stage).projected or not self.records:
            return False
        again = np.asarray(seeds.failed) | (self.records[-1]["failed_runs"][-1] > 0)
        if not again.any():
            return False
        warnings.warn(
            f"{again.sum()} of {len(again)} seeds failed without projection in stage {stage + 1} "
            f'({self.methods[stage].name}); they repeat it with projection. project="always" projects from the start.',
            stacklevel=4,
        )
        problem, method = replace(self.problems[stage], projected=True), self.methods[stage]
        unscored, none_failed = jnp.full_like(seeds.best_score, jnp.inf), jnp.zeros_like(seeds.failed)
        state = begin_stage(problem, method, seeds.best, unscored, none_failed, seeds.drawn)
        state = score(problem, method, state, self.keys)
        state = eqx.tree_at(lambda seeds: seeds.finished, state, jnp.asarray(~again))
        self.progress = self.progress._replace(state=state, projected=True)
        return True

    def _report(self, report: Callable[..., None], done: int) -> None:
        if self.records:
            last, failed = self.records[-1], int(np.asarray(self.progress.state.failed).sum())
            report(self.methods[self.progress.stage].name, done, last["loss"][-1], last["rate"][-1], failed)

    def _save(self) -> None:
        if self.path is not None:
            progress = {name: getattr(self.progress, name) for name in ("stage", "seconds", "projected")}
            trees = {"state": self.progress.state, "history": self.history}
            checkpoints.save(self.path, self.identity, progress, trees)

    def resume(self) -> bool:
        """Continue from the checkpoint, if there is one; returns whether there is."""
        if self.path is None or not self.path.exists():
            return False
        stored = checkpoints.Checkpoint(self.path, self.identity)
        stage, projected = stored.progress["stage"], stored.progress["projected"]
        state = stored.tree("state", self._like(stage))
        history = {name: np.asarray(values) for name, values in stored.tree("history", self.history).items()}
        self.records = [history] if len(history["loss"]) else []
        self.progress = _Progress(stage, state, len(self.records), stored.progress["seconds"], projected)
        return True

    def adopt(self, shares: tuple[TrainedShare, ...]) -> None:
        """Go to where other processes have brought the shares of the seeds."""
        stage = max(share.stage for share in shares)
        state = concatenated([share.state(self._like(share.stage)) for share in shares], self._like(stage))
        self.records = [join_histories([share.history for share in shares])]
        seconds, projected = max(share.seconds for share in shares), any(share.projected for share in shares)
        self.interrupted = any(share.interrupted for share in shares)
        self.progress = _Progress(stage, state, len(self.records), seconds, projected)
        if not self.interrupted:  # else the shares resume from checkpoints of their own
            self._save()
            remove_share_files(self.path)

    def _like(self, stage: int) -> Seed:
        """The structure of the state of all seeds in a stage."""
        now = self.progress.state
        return begin_stage(self.problems[stage], self.methods[stage], now.params, now.best_score, now.failed)
