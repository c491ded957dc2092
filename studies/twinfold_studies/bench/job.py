"""One cell of a table: a model of a system under a protocol, fitted from many seeds and measured at both horizons."""

import dataclasses
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from twinfold._version import __version__
from twinfold.data import Dataset
from twinfold.metrics import Evaluation, Predictions, evaluate, predict, with_true_field
from twinfold.metrics import dtw as warped
from twinfold.metrics._dtw import LONGEST
from twinfold.model import Twin
from twinfold.systems import System
from twinfold.train import Fit, TrainingProblem, fit, prepare
from twinfold_studies.bench.contenders import Contender, Design, contender
from twinfold_studies.bench.misspecified import misspecified
from twinfold_studies.bench.problems import HORIZONS, SAME, Amount, Data, few, full, make_data, problem
from twinfold_studies.bench.protocols import PARAMETERS, describe_stages, protocol

VALUES = 60_000_000  # numbers that are predicted at a time: one pass for most cells
WARPED = 10  # trajectories of the long horizon that DTW is computed for: it takes milliseconds for each seed and each


@dataclasses.dataclass(frozen=True)
class Job:
    """All that decides the numbers of a cell but the seeds.

    `soft` replaces the model's own weight of the constraint; `variant` is a misspecification (see `misspecified`),
    `learned` whether its wrong parameters may be corrected by training; `floor`: the exact field in place of the
    learned one.
    """

    system: str
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
    def key(self) -> str:
        """A name for files: readable, and of this job under these protocols and this version alone."""
        trained = describe_stages(protocol(self.protocol, quick=self.quick)) if self.trained else ""
        own = (self.contender.soft, self.contender.collocation)
        plain = self.trained and not self.variant and self.soft is None
        model = SAME.get((self.system, self.model), self.model) if plain else self.model
        fields = dataclasses.asdict(self) | {"model": model}
        settings = json.dumps([fields, PARAMETERS, trained, own, __version__], sort_keys=True)
        return f"{self.system}-{model}-{self.protocol}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"

    @property
    def of(self) -> System:
        """The system, as the model is told it is."""
        known = problem(self.system)
        return misspecified(known, self.variant, self.learned) if self.variant else known

    @property
    def contender(self) -> Contender:
        return contender(self.model)

    @property
    def amount(self) -> Amount:
        return few(problem(self.system)) if self.quick else full(problem(self.system))

    @property
    def trained(self) -> bool:
        return self.contender.trained and not self.floor

    def data(self, folder: Path) -> Data:
        return make_data(self.system, self.amount, folder / "data", fraction=self.fraction, noise=self.noise)

    def twin(self, data: Data) -> Twin:
        """The model before it is fitted."""
        scaled = protocol(self.protocol).scaled or self.model == "constant"
        statistics = data.train.statistics(observed_states=True) if scaled else None
        twin = self.contender.build(Design(self.of, PARAMETERS, statistics))
        return with_true_field(twin, problem(self.system).truth) if self.floor else twin


def train(job: Job, seeds: tuple[int, ...], data: Data, checkpoint: Path | None, progress: Any) -> Fit:
    """Fit the model of a job from all seeds."""
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
        label=f"{job.system} {job.model}",
    )


def prepared(job: Job, data: Data) -> tuple[TrainingProblem, PyTree]:
    """The least-squares problem that the last stage of a job ends with, and one seed's parameters before training."""
    chosen = protocol(job.protocol, quick=job.quick)
    loss, last = chosen.loss(job.contender, job.soft), chosen.methods(job.contender)[-1:]
    _, (whole,), params = prepare(job.twin(data), data.train, loss=loss, methods=last)
    return whole, params


def restored(job: Job, data: Data, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Fit:
    """The fit of a job as it was stored."""
    whole, params = prepared(job, data)
    structure = jax.tree.structure(params)
    leaves = [jnp.asarray(arrays[f"leaf{index}"]) for index in range(structure.num_leaves)]
    return Fit(
        seeds=tuple(facts["seeds"]),
        scores=arrays["scores"],
        failures={int(seed): reason for seed, reason in facts["failed_seeds"].items()},
        history={},
        seconds=facts["train_s"],
        interrupted=False,
        parameters=facts["parameters"],
        params=jax.tree.unflatten(structure, leaves),
        frozen=whole.frozen,
    )


def horizon_data(data: Data, horizon: str) -> Dataset:
    """The test trajectories of a horizon."""
    return data.test if horizon == "train" else data.long


def measure_errors(job: Job, model: Twin | Fit, data: Data) -> tuple[dict[str, Evaluation], dict[str, float]]:
    """Everything but DTW at both horizons, and the seconds that one trajectory takes, simulated beside the others."""
    out, seconds = {}, {}
    seeds = len(model.seeds) if isinstance(model, Fit) else 1
    for horizon in HORIZONS:
        runs = horizon_data(data, horizon)
        measured = evaluate(model, runs, dtw=False, constraint=problem(job.system).constraint, values=VALUES)
        if horizon == "train":
            began = time.perf_counter()
            predict(model, runs)  # compiled by now
            seconds[horizon] = (time.perf_counter() - began) / (seeds * len(runs))
        out[horizon] = measured
    seconds["long"] = seconds["train"] * len(data.long.runs[0].ts) / len(data.test.runs[0].ts)
    return out, seconds


def measure_warping(model: Twin | Fit, data: Data) -> dict[str, np.ndarray]:
    """DTW at both horizons: [S, R], on the first 1,000 samples of at most `WARPED` long trajectories."""
    out = {}
    for horizon in HORIZONS:
        runs = horizon_data(data, horizon)
        if horizon == "long":
            runs = _first(runs, WARPED, LONGEST)
        found: Predictions = predict(model, runs)
        out[horizon] = warped(found.predicted, found.y, found.mask)
    return out


def _first(runs: Dataset, count: int, samples: int) -> Dataset:
    chosen = runs.runs[:count]
    ys = np.stack([np.asarray(run.y)[:samples] for run in chosen])
    return Dataset.from_arrays(np.asarray(chosen[0].ts)[:samples], ys, output_names=runs.output_names)
