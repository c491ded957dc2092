"""A job: one model of one system under one protocol, fitted with many seeds and measured over both horizons."""

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from twinfold.data import Dataset
from twinfold.metrics import MAX_DTW_SAMPLES, Evaluation, dtw, evaluate, predict, with_true_field
from twinfold.model import Region, Twin
from twinfold.systems import System
from twinfold.train import Fit, TrainingProblem, fit, prepare
from twinfold_studies.bench.contenders import Contender, Design, contender
from twinfold_studies.bench.fingerprint import code_fingerprint
from twinfold_studies.bench.problems import HORIZONS, SAME, Data, Sizes, full_sizes, make_data, problem, quick_sizes
from twinfold_studies.bench.protocols import PARAMETERS, describe_stages, protocol
from twinfold_studies.systems.misspecified import misspecified

MAX_VALUES = 60_000_000  # numbers predicted in one pass: enough for most jobs
WARMUP = 10  # samples from which initial states are estimated where the data are noisy
MAX_DTW_RUNS = 10  # trajectories of the long horizon whose DTW is computed: it takes milliseconds per seed and run


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything that determines the numbers of one entry of a table, except the seeds.

    **Arguments:** `system_name`, `model` and `protocol`, by name; `fraction` of the training trajectories; `noise` of
    the training data; `soft` replaces the model's weight of the constraint; `variant`, a misspecification (see
    `misspecified`); `learned`: whether training may correct its wrong parameters; `floor`: replace the learned field by
    the true one; `quick`: the small version.
    """

    system_name: str
    model: str
    protocol: str = "best"
    fraction: float = 1.0
    noise: float = 0.0
    soft: float | None = None
    variant: str = ""
    learned: bool = False
    floor: bool = False
    quick: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The fields by the names under which they are stored; these names are part of `key`."""
        fields = dataclasses.asdict(self)
        return {"system": fields.pop("system_name")} | fields

    @property
    def key(self) -> str:
        """A file name: readable, and unique to this job, the stages of its protocol and the code."""
        stages = describe_stages(protocol(self.protocol, quick=self.quick)) if self.trained else ""
        weights = (self.contender.soft, self.contender.collocation)
        plain = self.trained and not self.variant and self.soft is None
        model = SAME.get((self.system_name, self.model), self.model) if plain else self.model
        settings = json.dumps(
            [self.settings | {"model": model}, PARAMETERS, stages, weights, code_fingerprint()], sort_keys=True
        )
        return f"{self.system_name}-{model}-{self.protocol}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"

    @property
    def system(self) -> System:
        """The system with the physics that the model assumes."""
        system = problem(self.system_name)
        return misspecified(system, self.variant, self.learned) if self.variant else system

    @property
    def contender(self) -> Contender:
        return contender(self.model)

    @property
    def sizes(self) -> Sizes:
        system = problem(self.system_name)
        return quick_sizes(system) if self.quick else full_sizes(system)

    @property
    def trained(self) -> bool:
        return self.contender.trained and not self.floor

    def data(self, folder: Path) -> Data:
        return make_data(self.system_name, self.sizes, folder / "data", fraction=self.fraction, noise=self.noise)

    def twin(self, data: Data) -> Twin:
        """The model before training."""
        scaled = protocol(self.protocol).scaled or self.model == "constant"
        statistics = data.train.statistics(observed_states=True) if scaled else None
        twin = self.contender.build(Design(self.system, PARAMETERS, statistics))
        if self.noise > 0 and twin.trajectory is None:
            twin = eqx.tree_at(lambda twin: twin.warmup, twin, WARMUP, is_leaf=lambda node: node is None)
        return with_true_field(twin, problem(self.system_name).truth) if self.floor else twin


def train(job: Job, seeds: tuple[int, ...], data: Data, checkpoint: Path | None, progress: Any) -> Fit:
    """Fit the model of a job with all seeds."""
    chosen = protocol(job.protocol, quick=job.quick)
    return fit(
        job.twin(data),
        data.train,
        valid=data.valid,
        seeds=seeds,
        method=chosen.methods(job.contender),
        loss=chosen.loss(job.contender, job.soft),
        checkpoint=checkpoint,
        progress=progress,
        label=f"{job.system_name} {job.model}",
    )


def training_problem(job: Job, data: Data) -> tuple[TrainingProblem, PyTree]:
    """The least-squares problem of the last stage of a job, and the untrained parameters of one seed."""
    chosen = protocol(job.protocol, quick=job.quick)
    loss, last = chosen.loss(job.contender, job.soft), chosen.methods(job.contender)[-1:]
    _, (last_problem,), params = prepare(job.twin(data), data.train, loss=loss, methods=last)
    return last_problem, params


def restored_fit(job: Job, data: Data, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Fit:
    """The stored fit of a job."""
    last_problem, params = training_problem(job, data)
    structure = jax.tree.structure(params)
    leaves = [jnp.asarray(arrays[f"leaf{index}"]) for index in range(structure.num_leaves)]
    ends = [jnp.asarray(arrays[f"region{index}"]) for index in range(sum(name.startswith("region") for name in arrays))]
    return Fit(
        seeds=tuple(facts["seeds"]),
        scores=arrays["scores"],
        failures={int(seed): reason for seed, reason in facts["failed_seeds"].items()},
        history={},
        seconds=facts["train_s"],
        interrupted=False,
        parameters=facts["parameters"],
        params=jax.tree.unflatten(structure, leaves),
        frozen=last_problem.frozen,
        regions=tuple(Region(*ends[index : index + 3]) for index in range(0, len(ends), 3)),
    )


def horizon_runs(data: Data, horizon: str) -> Dataset:
    """The test trajectories of a horizon."""
    return data.test if horizon == "train" else data.long


def measure_errors(job: Job, model: Twin | Fit, data: Data) -> tuple[dict[str, Evaluation], dict[str, float]]:
    """All metrics except DTW over both horizons, and the seconds per trajectory of a batch."""
    evaluations, seconds = {}, {}
    seeds = len(model.seeds) if isinstance(model, Fit) else 1
    for horizon in HORIZONS:
        runs = horizon_runs(data, horizon)
        constraint = problem(job.system_name).constraint
        evaluations[horizon] = evaluate(model, runs, dtw=False, constraint=constraint, max_values=MAX_VALUES)
        if horizon == "train":
            start = time.perf_counter()
            predict(model, runs)  # already compiled
            seconds[horizon] = (time.perf_counter() - start) / (seeds * len(runs))
    seconds["long"] = seconds["train"] * len(data.long.runs[0].ts) / len(data.test.runs[0].ts)
    return evaluations, seconds


def measure_dtw(model: Twin | Fit, data: Data) -> dict[str, np.ndarray]:
    """DTW over both horizons [S, R]; of the long one, for the first runs and samples only."""
    distances = {}
    for horizon in HORIZONS:
        runs = horizon_runs(data, horizon)
        if horizon == "long":
            runs = _truncated(runs, MAX_DTW_RUNS, MAX_DTW_SAMPLES)
        predictions = predict(model, runs)
        distances[horizon] = dtw(predictions.predicted, predictions.y, predictions.mask)
    return distances


def _truncated(data: Dataset, runs: int, samples: int) -> Dataset:
    chosen = data.runs[:runs]
    ys = np.stack([np.asarray(run.y)[:samples] for run in chosen])
    return Dataset.from_arrays(np.asarray(chosen[0].ts)[:samples], ys, output_names=data.output_names)
