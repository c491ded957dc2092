"""From cells to rows: what each model of a system comes to over its seeds, and paired differences with intervals."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from twinfold.bench.contenders import CONTENDERS
from twinfold.bench.job import HORIZONS, Job
from twinfold.bench.paper import paper_mae
from twinfold.bench.store import Cell, Store

RESAMPLES = 10_000
METRICS = ("mae", "mse", "rmse", "dtw", "relative_violation_mean", "relative_violation_max", "valid_time", "failed")


def summary_row(cell: Cell, horizon: str, floor: float) -> dict[str, Any]:
    """One row of summary.csv."""
    mae = cell.by_seed(horizon, "mae")
    job = cell.job
    with np.errstate(invalid="ignore"):  # an infinite seed: the mean is infinite, the spread not defined
        spread = float(np.std(mae))
    return {
        "system": job.system,
        "model": job.model,
        "protocol": job.protocol,
        "horizon": horizon,
        "seeds": len(cell.seeds),
        "failures": int(cell.by_seed(horizon, "failed").sum()),
        "parameters": cell.facts.get("parameters", 0),
        "mae_mean": float(np.mean(mae)),
        "mae_std": spread,
        "mae_median": float(np.median(mae)),
        "floor_mae": floor,
        "dtw_mean": float(np.mean(cell.by_seed(horizon, "dtw"))),
        "violation_mean": float(np.mean(cell.by_seed(horizon, "relative_violation_mean"))),
        "violation_max": float(np.max(cell.by_seed(horizon, "relative_violation_max"))),
        "train_s": cell.facts.get("train_s", 0.0),
        "infer_s": cell.facts["infer_s"][horizon],
        "paper_mae": paper_mae(job.system, job.model) or math.nan,
    }


def summary(jobs: Iterable[Job], store: Store, seeds: int) -> list[dict[str, Any]]:
    """Rows of all cells that are finished, both horizons."""
    rows = []
    for job in jobs:
        cell = store.cell(job, seeds, fewer=True)
        if cell is None:
            continue
        for horizon in HORIZONS:
            rows.append(summary_row(cell, horizon, floor_mae(job, store, horizon)))
    return rows


def floor_job(job: Job) -> Job:
    """The exact field under the integrator and projection of a job's model."""
    kind = job.model if job.model.startswith(("pnode", "phrpinn")) else "hrpinn"
    return Job(job.system, kind.replace("pnode", "phrpinn"), "best", floor=True, quick=job.quick)


def floor_mae(job: Job, store: Store, horizon: str) -> float:
    """The error of the floor; NaN where it has not been measured or the model does not integrate."""
    cell = store.cell(floor_job(job), 1)
    return math.nan if cell is None or job.model in ("pinn", "constant") else float(cell.by_seed(horizon, "mae").mean())


def metric_lines(jobs: Iterable[Job], store: Store, seeds: int) -> Iterable[dict[str, Any]]:
    """One line for each cell, horizon, seed and trajectory."""
    for job in jobs:
        cell = store.cell(job, seeds, fewer=True)
        if cell is None:
            continue
        for horizon in HORIZONS:
            values = cell.metrics[horizon]
            for i, seed in enumerate(cell.seeds):
                for run in range(values["mae"].shape[1]):
                    line = {"cell": job.key, "horizon": horizon, "seed": seed, "run": run}
                    warped = values["dtw"]
                    found = {name: values[name][i, run].item() for name in METRICS if name != "dtw"}
                    found["dtw"] = warped[i, run].item() if run < warped.shape[1] else math.nan
                    yield line | {name: _short(value) for name, value in found.items()}


def _short(value: float | bool) -> float | bool:
    return value if isinstance(value, bool) or not math.isfinite(value) else float(f"{value:.4g}")


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean over seeds."""
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan, math.nan
    chosen = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[chosen].mean(1), [0.025, 0.975])
    return float(low), float(high)


def paired(jobs: Sequence[Job], store: Store, seeds: int, reference: str = "phrpinn_robust") -> list[dict[str, Any]]:
    """MAE of each model minus that of the reference, seed by seed: mean, interval, and how often it is lower.

    A seed draws weights and data order; both models see the same data. A model without seeds is compared with each.
    """
    rows = []
    for system, protocol in dict.fromkeys((job.system, job.protocol) for job in jobs):
        group = [job for job in jobs if (job.system, job.protocol) == (system, protocol)]
        base = next((store.cell(job, seeds, fewer=True) for job in group if job.model == reference), None)
        if base is None:
            continue
        for job in group:
            cell = store.cell(job, seeds, fewer=True)
            if cell is None or job.model == reference:
                continue
            for horizon in HORIZONS:
                ours, theirs = base.by_seed(horizon, "mae"), cell.by_seed(horizon, "mae")
                count = len(ours) if len(theirs) == 1 else min(len(ours), len(theirs))
                theirs = np.broadcast_to(theirs, ours.shape) if len(theirs) == 1 else theirs[:count]
                with np.errstate(invalid="ignore"):
                    difference = theirs - ours[:count]
                low, high = interval(difference)
                rows.append(
                    {
                        "system": system,
                        "protocol": protocol,
                        "horizon": horizon,
                        "model": job.model,
                        "against": reference,
                        "seeds": count,
                        "difference_mean": float(np.mean(difference)),
                        "low": low,
                        "high": high,
                        "reference_lower": int((difference > 0).sum()),
                        "verdict": _verdict(low, high),
                    }
                )
    return rows


def _verdict(low: float, high: float) -> str:
    if math.isnan(low):
        return "not decided"
    if low > 0:
        return "reference better"
    return "reference worse" if high < 0 else "no difference"


def title(model: str) -> str:
    """How a model is called in tables."""
    return CONTENDERS[model].title
