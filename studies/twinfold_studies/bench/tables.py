"""From cells to rows: what each model of a system comes to over its seeds, and paired differences with intervals."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from twinfold.report import number
from twinfold_studies.bench.contenders import CONTENDERS
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.paper import paper_mae
from twinfold_studies.bench.problems import HORIZONS
from twinfold_studies.bench.store import Cell, Store

RESAMPLES = 10_000
METRICS = ("mae", "mse", "rmse", "dtw", "relative_violation_mean", "relative_violation_max", "valid_time", "failed")


def _named(cell: Cell, horizon: str) -> dict[str, Any]:
    """Whose row it is."""
    job = cell.job
    return {"system": job.system, "model": job.model, "protocol": job.protocol, "horizon": horizon}


def _counted(cell: Cell, horizon: str) -> dict[str, int]:
    return {"seeds": len(cell.seeds), "failures": int(cell.by_seed(horizon, "failed").sum())}


def summary_row(cell: Cell, horizon: str, floor: float) -> dict[str, Any]:
    """One row of summary.csv."""
    mae = cell.by_seed(horizon, "mae")
    job = cell.job
    with np.errstate(invalid="ignore"):  # an infinite seed: the mean is infinite, the spread not defined
        spread = float(np.std(mae))
    return {
        **_named(cell, horizon),
        **_counted(cell, horizon),
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


def spread_row(cell: Cell, horizon: str, varied: dict[str, Any]) -> dict[str, Any]:
    """A row for a cell of an experiment that varies something: the mean error with its interval over seeds."""
    mae = cell.by_seed(horizon, "mae")
    low, high = interval(mae)
    return {
        **_named(cell, horizon),
        **varied,
        **_counted(cell, horizon),
        "mae_mean": float(mae.mean()),
        "mae_low": low,
        "mae_high": high,
        "mae_median": float(np.median(mae)),
        "mse_mean": float(cell.by_seed(horizon, "mse").mean()),
        "violation_max": float(cell.by_seed(horizon, "relative_violation_max").max()),
    }


def computed(labelled: Iterable[tuple[Any, Job]], store: Store, seeds: int) -> Iterator[tuple[Any, Job, Cell]]:
    """The jobs that have a cell, with as many of the seeds as there are."""
    for label, job in labelled:
        cell = store.cell(job, seeds, fewer=True)
        if cell is not None:
            yield label, job, cell


def lowest(rows: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> str:
    """For each system the row with the lowest mean MAE, in words."""
    best = [
        min((r for r in rows if r["system"] == system), key=lambda r: r["mae_mean"])
        for system in dict.fromkeys(r["system"] for r in rows)
    ]
    return ", ".join(f"{r['system']}: {name(r)} {number(r['mae_mean'])}" for r in best)


def summary(jobs: Iterable[Job], store: Store, seeds: int) -> list[dict[str, Any]]:
    """Rows of all cells that are finished, both horizons."""
    return [
        summary_row(cell, horizon, floor_mae(job, store, horizon))
        for _, job, cell in computed(((None, job) for job in jobs), store, seeds)
        for horizon in HORIZONS
    ]


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
    for _, job, cell in computed(((None, job) for job in jobs), store, seeds):
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
                difference = seed_by_seed(cell, base, horizon)
                low, high = interval(difference)
                rows.append(
                    {
                        "system": system,
                        "protocol": protocol,
                        "horizon": horizon,
                        "model": job.model,
                        "against": reference,
                        "seeds": len(difference),
                        "difference_mean": float(np.mean(difference)),
                        "low": low,
                        "high": high,
                        "reference_lower": int((difference > 0).sum()),
                        "verdict": _verdict(low, high),
                    }
                )
    return rows


def seed_by_seed(cell: Cell, base: Cell, horizon: str) -> np.ndarray:
    """MAE of a cell minus that of another, over the seeds that both have; one without seeds stands beside each."""
    theirs, ours = cell.by_seed(horizon, "mae"), base.by_seed(horizon, "mae")
    count = max(len(theirs), len(ours)) if 1 in (len(theirs), len(ours)) else min(len(theirs), len(ours))
    with np.errstate(invalid="ignore"):
        return np.resize(theirs, count) - np.resize(ours, count)


def _verdict(low: float, high: float) -> str:
    if math.isnan(low):
        return "not decided"
    if low > 0:
        return "reference better"
    return "reference worse" if high < 0 else "no difference"


def title(model: str) -> str:
    """How a model is called in tables."""
    return CONTENDERS[model].title
