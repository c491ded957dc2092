"""A fit in progress: its stages one after the other, the records of its epochs, its checkpoint."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from twinfold.data import Dataset
from twinfold.model import Region, Twin
from twinfold.train import _checkpoint as checkpoints
from twinfold.train._ahead import Ahead
from twinfold.train._levenberg import LevenbergMarquardt
from twinfold.train._loss import Loss
from twinfold.train._method import AbstractMethod
from twinfold.train._prepare import prepare
from twinfold.train._problem import TrainingProblem
from twinfold.train._region import region_scores, trained_regions
from twinfold.train._seeds import CHUNK, Seed, begin_stage, compile_stage, run_epochs, score
from twinfold.train._shares import TrainedShare, concatenated, join_histories, remove_share_files

SAVE_EVERY = 5.0  # seconds between two checkpoints
HISTORY = ("stage", "loss", "score", "rate", "failed_runs")


def prepare_run(twin: Twin, data: Dataset, names: tuple[int, ...], options: dict[str, Any], path: Path | None) -> "Run":
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
    return Run(problems, methods, keys, params, identity, path, data if options["trainable"] == "all" else None)


class Progress(NamedTuple):
    """How far a fit is: its stage, the state of the seeds, the number of records, and the computing time.

    `projected`: whether the projection takes part from now on, though it was planned for later.
    It is replaced as a whole, since Ctrl-C may come between any two statements.
    """

    stage: int
    state: Seed
    records: int = 0
    seconds: float = 0.0
    projected: bool = False


class Run:
    """A fit in progress, and the records of its epochs."""

    def __init__(
        self,
        problems: tuple[TrainingProblem, ...],
        methods: tuple[AbstractMethod, ...],
        keys: Key[Array, " S"],
        params: PyTree,
        identity: dict[str, Any],
        path: Path | None,
        data: Dataset | None,
    ):
        self.problems, self.methods, self.keys = problems, methods, keys
        self.data = data  # in which the learned parts are trained
        self.identity, self.path = identity, path
        self.interrupted = False
        count = keys.shape[0]
        unscored = jax.device_put(np.full(count, np.inf, problems[0].batch.y.dtype))
        none_failed = jax.device_put(np.zeros(count, bool))
        self.progress = Progress(0, begin_stage(problems[0], methods[0], params, unscored, none_failed))
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
        tasks: dict[int, Callable[[], Any]] = {stage: partial(self._compile, stage) for stage in later}
        first = self.progress.state
        tasks[len(self.methods)] = partial(self._regions, len(self.methods) - 1, first.params, first.best_score)
        ahead = Ahead(tasks)
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
                    ahead.wait(stage + 1)
                    if stage + 1 == len(self.methods):
                        break
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

    def best(self) -> tuple[PyTree, tuple[Region, ...], Float[Array, " S"]]:
        """The best parameters so far, the regions of the learned parts that have one, and the scores with these."""
        state = self.progress.state
        return state.best, *self._regions(self.progress.stage, state.best, state.best_score)

    def _regions(
        self, stage: int, params: PyTree, scores: Float[Array, " S"]
    ) -> tuple[tuple[Region, ...], Float[Array, " S"]]:
        problem = self._problem(stage)
        # A region belongs to the weights that were trained in it: a network that is kept keeps its own.
        regions = () if self.data is None else trained_regions(self.problems[0], params, self.data)
        if regions and problem.valid is not None:  # on the training data, the twin is the same
            scores = region_scores(problem, params, regions)
        return regions, scores

    def _problem(self, stage: int) -> TrainingProblem:
        problem = self.problems[stage]
        return replace(problem, projected=problem.projected or self.progress.projected)

    def _compile(self, stage: int) -> None:
        compile_stage(self._problem(stage), self.methods[stage], self.progress.state, self.keys)

    def _next_stage(self) -> None:
        stage, seeds = self.progress.stage + 1, self.progress.state
        problem, method, best_score = self._problem(stage), self.methods[stage], seeds.best_score
        changed = problem.projected and not self._problem(stage - 1).projected
        # Without validation runs a score is a training loss: that of short windows is another one.
        changed = changed or (problem.valid is None and method.window != self.methods[stage - 1].window)
        if changed:  # the scores are those of another model, or of other data
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
        self.progress = Progress(stage, state, len(self.records), stored.progress["seconds"], projected)
        return True

    def adopt(self, shares: tuple[TrainedShare, ...]) -> None:
        """Go to where other processes have brought the shares of the seeds."""
        stage = max(share.stage for share in shares)
        state = concatenated([share.state(self._like(share.stage)) for share in shares], self._like(stage))
        self.records = [join_histories([share.history for share in shares])]
        seconds, projected = max(share.seconds for share in shares), any(share.projected for share in shares)
        self.interrupted = any(share.interrupted for share in shares)
        self.progress = Progress(stage, state, len(self.records), seconds, projected)
        if not self.interrupted:  # else the shares resume from checkpoints of their own
            self._save()
            remove_share_files(self.path)

    def _like(self, stage: int) -> Seed:
        """The structure of the state of all seeds in a stage."""
        now = self.progress.state
        return begin_stage(self.problems[stage], self.methods[stage], now.params, now.best_score, now.failed)
