"""Finished cells, shared by all experiments: parameters and metrics of each, written once and as a whole.

A cell has up to three parts, each a file of its own: `fit` (parameters), `errors` and `dtw`. What was finished on one
machine can be completed on another.
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
from twinfold.metrics._evaluate import OVER_RUNS
from twinfold.train import Fit
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import HORIZONS


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is known of a job: metrics [S, R] by horizon and name, per-seed facts, and why it failed where it did."""

    job: Job
    seeds: tuple[int, ...]
    facts: dict[str, Any]
    metrics: dict[str, dict[str, np.ndarray]]
    losses: np.ndarray  # final training loss, [S]

    def by_seed(self, horizon: str, metric: str) -> np.ndarray:
        """One number for each seed."""
        return OVER_RUNS[metric](self.metrics[horizon][metric], axis=1)

    def first(self, count: int) -> "Cell":
        """Only the first `count` seeds; a model without seeds is left as it is."""
        if len(self.seeds) <= count:
            return self
        metrics = {h: {name: values[:count] for name, values in each.items()} for h, each in self.metrics.items()}
        return dataclasses.replace(self, seeds=self.seeds[:count], metrics=metrics, losses=self.losses[:count])


class Store:
    """The folder of finished cells.

    After `until` (by `time.monotonic`) nothing more is begun that would be kept beside them; `left` is what was left
    out, and why.
    """

    def __init__(self, folder: Path, until: float | None = None):
        self.folder, self.until = folder, until
        self.left: list[tuple[str, str]] = []
        self._cells: dict[tuple[Job, int, bool], Cell] = {}
        (folder / "cells").mkdir(parents=True, exist_ok=True)

    def path(self, job: Job, part: str) -> Path:
        return self.folder / "cells" / f"{job.key}.{part}.npz"

    def save(self, job: Job, part: str, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write one part of a cell; an interrupted write leaves nothing behind."""
        header = json.dumps({"job": dataclasses.asdict(job), "versions": versions(), **facts})
        with atomic_write(self.path(job, part)) as file:
            np.savez_compressed(file, header=np.array(header), **arrays)

    def load(self, job: Job, part: str, seeds: int) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """One part of a cell, if it is there, readable, and has at least as many seeds."""
        arrays = self._read(job, part, None)
        facts = json.loads(str(arrays.pop("header"))) if arrays else None
        return (facts, arrays) if facts and _enough(job, facts, seeds) else None

    def has(self, job: Job, part: str, seeds: int) -> bool:
        """Whether `load` would find it, without reading more than its header."""
        found = self._read(job, part, ("header",))
        return bool(found) and _enough(job, json.loads(str(found["header"])), seeds)

    def _read(self, job: Job, part: str, names: tuple[str, ...] | None) -> dict[str, np.ndarray]:
        """These arrays of a part, or all; nothing where there is none or it cannot be read."""
        try:
            with np.load(self.path(job, part), allow_pickle=False) as stored:
                return {name: stored[name] for name in names or stored.files}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return {}

    def save_fit(self, job: Job, fit: Fit) -> None:
        """The parameters that a fit ended with, and its last training loss."""
        leaves = jax.tree.leaves(fit.params)
        losses = fit.history["loss"]
        facts = {
            "seeds": list(fit.seeds),
            "parameters": fit.parameters,
            "train_s": fit.seconds,
            "failed_seeds": {str(seed): reason for seed, reason in fit.failures.items()},
            "device": jax.devices()[0].device_kind,
        }
        arrays = {f"leaf{index}": np.asarray(leaf) for index, leaf in enumerate(leaves)}
        arrays |= {"scores": fit.scores, "losses": losses[-1]}
        self.save(job, "fit", facts, arrays)

    def save_errors(self, job: Job, seeds: tuple[int, ...], found: dict[str, Evaluation], seconds: dict) -> None:
        """Metrics of every seed and run, and the reasons of the failures (of each kind, the first few)."""
        reasons = {
            horizon: [f"seed {seed}, run {run}: {why}" for (seed, run), why in list(each.reasons.items())[:5]]
            for horizon, each in found.items()
        }
        arrays = {
            f"{horizon}.{name}": values if name == "failed" else _single(values)
            for horizon, each in found.items()
            for name, values in each.metrics.items()
            if name != "dtw"
        }
        self.save(job, "errors", {"seeds": list(seeds), "infer_s": seconds, "reasons": reasons}, arrays)

    def save_failure(self, job: Job, reason: str) -> None:
        """Why a cell could not be computed: shown in the tables, tried again next time."""
        path = self.path(job, "failed").with_suffix(".txt")
        path.write_text(reason, encoding="utf-8")

    def failure(self, job: Job) -> str | None:
        path = self.path(job, "failed").with_suffix(".txt")
        return path.read_text(encoding="utf-8") if path.exists() else None

    def clear_failure(self, job: Job) -> None:
        self.path(job, "failed").with_suffix(".txt").unlink(missing_ok=True)

    def cell(self, job: Job, seeds: int, *, fewer: bool = False) -> Cell | None:
        """All that is known of a job with so many seeds (or `fewer`, if that is all); None where there is nothing."""
        known = (job, seeds, fewer)
        if known not in self._cells:
            found = self._cell(job, seeds, fewer)
            if found is None:
                return None
            self._cells[known] = found
        return self._cells[known]

    def _cell(self, job: Job, seeds: int, fewer: bool) -> Cell | None:
        least = 1 if fewer else seeds
        errors = self.load(job, "errors", least)
        if errors is None:
            return None
        facts, arrays = errors
        metrics: dict[str, dict[str, np.ndarray]] = {horizon: {} for horizon in HORIZONS}
        for name, values in arrays.items():
            horizon, metric = name.split(".", 1)
            metrics[horizon][metric] = values
        count = len(facts["seeds"])  # another part with fewer seeds belongs to an earlier run
        warping = self.load(job, "dtw", count)
        for horizon in HORIZONS:
            shape = metrics[horizon]["mae"].shape
            metrics[horizon]["dtw"] = np.full(shape, np.nan) if warping is None else warping[1][horizon][:count]
        losses = np.full(count, np.nan)
        fitted = self.load(job, "fit", count)
        if fitted is not None:
            facts = facts | {k: v for k, v in fitted[0].items() if k not in ("job", "seeds")}
            losses = fitted[1]["losses"][:count]
        return Cell(job, tuple(facts["seeds"]), facts, metrics, losses).first(seeds)


def _enough(job: Job, facts: dict[str, Any], seeds: int) -> bool:
    return len(facts["seeds"]) >= seeds or not job.trained


def _single(values: np.ndarray) -> np.ndarray:
    """In four bytes, unless a value is too large for them."""
    finite = values[np.isfinite(values)]
    fits = finite.size == 0 or float(np.abs(finite).max()) <= float(np.finfo(np.float32).max)
    return values.astype(np.float32) if fits else values
