"""Results of finished jobs, shared by all experiments in a folder.

A result has up to three parts, each a file written once: `fit` (parameters), `errors` and `dtw`. A part that is missing
can be computed later, or on another machine.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

from twinfold.io import atomic_write, versions
from twinfold.metrics import Evaluation
from twinfold.train import Fit
from twinfold_studies.bench.fingerprint import code_fingerprint
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import HORIZONS


@dataclasses.dataclass(frozen=True)
class JobResult:
    """The result of a job: metrics [S, R] by horizon and name, facts about the fit, and final training losses [S]."""

    job: Job
    seeds: tuple[int, ...]
    facts: dict[str, Any]
    metrics: dict[str, dict[str, np.ndarray]]
    losses: np.ndarray

    def by_seed(self, horizon: str, metric: str) -> np.ndarray:
        """The metric of each seed over all runs."""
        values = self.metrics[horizon][metric]
        return Evaluation(self.seeds, (), {metric: values}, {}).by_seed()[metric]

    def first_seeds(self, count: int) -> "JobResult":
        """The result with the first `count` seeds only; unchanged if it has no more."""
        if len(self.seeds) <= count:
            return self
        metrics = {h: {name: values[:count] for name, values in each.items()} for h, each in self.metrics.items()}
        return dataclasses.replace(self, seeds=self.seeds[:count], metrics=metrics, losses=self.losses[:count])


class Store:
    """The folder of the results.

    **Arguments:** `folder`; `deadline`, on the clock of `time.monotonic`, after which no further result is computed;
    `shared`: whether other processes compute results of the same folder at the same time.

    **Attributes:** `skipped`, names and reasons of results that could not be computed.
    """

    def __init__(self, folder: Path, deadline: float | None = None, *, shared: bool = False):
        self.folder, self.deadline, self.shared = folder, deadline, shared
        self.skipped: list[tuple[str, str]] = []
        self._results: dict[tuple[Job, int, bool], JobResult] = {}
        (folder / "cells").mkdir(parents=True, exist_ok=True)

    def path(self, job: Job, part: str) -> Path:
        return self.folder / "cells" / f"{job.key}.{part}.npz"

    def save(self, job: Job, part: str, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write one part of a result, atomically."""
        header = json.dumps({"job": job.settings, "versions": versions(), "code": code_fingerprint(), **facts})
        with atomic_write(self.path(job, part)) as file:
            np.savez_compressed(file, header=np.array(header), **arrays)

    def load(self, job: Job, part: str, seeds: int) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """One part of a result; None if it is missing, unreadable, or has fewer seeds."""
        arrays = self._read(job, part, None)
        facts = json.loads(str(arrays.pop("header"))) if arrays else None
        return (facts, arrays) if facts and _has_seeds(job, facts, seeds) else None

    def has(self, job: Job, part: str, seeds: int) -> bool:
        """Whether `load` would return a part; reads the header only."""
        arrays = self._read(job, part, ("header",))
        return bool(arrays) and _has_seeds(job, json.loads(str(arrays["header"])), seeds)

    def _read(self, job: Job, part: str, names: tuple[str, ...] | None) -> dict[str, np.ndarray]:
        """The named arrays of a part, or all; empty if the part is missing or unreadable."""
        try:
            with np.load(self.path(job, part), allow_pickle=False) as stored:
                return {name: stored[name] for name in names or stored.files}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return {}

    def save_fit(self, job: Job, fit: Fit) -> None:
        """Write the parameters of a fit and its final training losses."""
        leaves = jax.tree.leaves(fit.params)
        facts = {
            "seeds": list(fit.seeds),
            "parameters": fit.parameters,
            "train_s": fit.seconds,
            "failed_seeds": {str(seed): reason for seed, reason in fit.failures.items()},
            "device": jax.devices()[0].device_kind,
        }
        arrays = {f"leaf{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
        arrays |= {f"region{index}": np.asarray(leaf) for index, leaf in enumerate(jax.tree.leaves(fit.regions))}
        arrays |= {"scores": fit.scores, "losses": fit.history["loss"][-1]}
        self.save(job, "fit", facts, arrays)

    def save_errors(
        self, job: Job, seeds: tuple[int, ...], evaluations: dict[str, Evaluation], seconds: dict[str, float]
    ) -> None:
        """Write the metrics of every seed and run, and the reasons of the first failures of each horizon."""
        reasons = {
            horizon: [f"seed {seed}, run {run}: {reason}" for (seed, run), reason in list(each.reasons.items())[:5]]
            for horizon, each in evaluations.items()
        }
        arrays = {
            f"{horizon}.{name}": values if name == "failed" else _single_precision(values)
            for horizon, each in evaluations.items()
            for name, values in each.metrics.items()
            if name != "dtw"
        }
        self.save(job, "errors", {"seeds": list(seeds), "infer_s": seconds, "reasons": reasons}, arrays)

    def save_failure(self, job: Job, reason: str) -> None:
        """Record why a job failed, for the report; the next run tries again."""
        self._failure_path(job).write_text(reason, encoding="utf-8")

    def failure(self, job: Job) -> str | None:
        path = self._failure_path(job)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def clear_failure(self, job: Job) -> None:
        self._failure_path(job).unlink(missing_ok=True)

    def _failure_path(self, job: Job) -> Path:
        return self.path(job, "failed").with_suffix(".txt")

    def result(self, job: Job, seeds: int, *, allow_fewer: bool = False) -> JobResult | None:
        """The result of a job with this many seeds, or also with fewer; None if there is none."""
        known = (job, seeds, allow_fewer)
        if known not in self._results:
            result = self._load_result(job, seeds, allow_fewer)
            if result is None:
                return None
            self._results[known] = result
        return self._results[known]

    def _load_result(self, job: Job, seeds: int, allow_fewer: bool) -> JobResult | None:
        errors = self.load(job, "errors", 1 if allow_fewer else seeds)
        if errors is None:
            return None
        facts, arrays = errors
        metrics: dict[str, dict[str, np.ndarray]] = {horizon: {} for horizon in HORIZONS}
        for name, values in arrays.items():
            horizon, metric = name.split(".", 1)
            metrics[horizon][metric] = values
        count = len(facts["seeds"])  # parts with fewer seeds belong to an earlier run
        distances = self.load(job, "dtw", count)
        for horizon in HORIZONS:
            shape = metrics[horizon]["mae"].shape
            metrics[horizon]["dtw"] = np.full(shape, np.nan) if distances is None else distances[1][horizon][:count]
        losses = np.full(count, np.nan)
        fitted = self.load(job, "fit", count)
        if fitted is not None:
            facts = facts | {k: v for k, v in fitted[0].items() if k not in ("job", "seeds")}
            losses = fitted[1]["losses"][:count]
        return JobResult(job, tuple(facts["seeds"]), facts, metrics, losses).first_seeds(seeds)


def _has_seeds(job: Job, facts: dict[str, Any], seeds: int) -> bool:
    return len(facts["seeds"]) >= seeds or not job.trained


def _single_precision(values: np.ndarray) -> np.ndarray:
    """The values in float32, unless one of them overflows."""
    finite = values[np.isfinite(values)]
    fits = finite.size == 0 or float(np.abs(finite).max()) <= float(np.finfo(np.float32).max)
    return values.astype(np.float32) if fits else values
