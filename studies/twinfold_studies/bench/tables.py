"""Rows of tables from the results of jobs: statistics over seeds, and paired differences with intervals."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from twinfold.report import format_number
from twinfold_studies.bench.contenders import CONTENDERS
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.paper import paper_mae
from twinfold_studies.bench.problems import HORIZONS
from twinfold_studies.bench.store import JobResult, Store

RESAMPLES = 10_000
# A seed has converged if its MAE at the training horizon is at most this share of that of a constant, the mean of the
# training data: one that is stuck is about as bad as the constant.
CONVERGED = 0.2
METRICS = ("mae", "mse", "rmse", "dtw", "relative_violation_mean", "relative_violation_max", "valid_time", "failed")


def _labels(result: JobResult, horizon: str) -> dict[str, Any]:
    job = result.job
    return {"system": job.system_name, "model": job.model, "protocol": job.protocol, "horizon": horizon}


def _counts(result: JobResult, horizon: str) -> dict[str, int]:
    return {"seeds": len(result.seeds), "failures": int(result.by_seed(horizon, "failed").sum())}


def summary_row(result: JobResult, horizon: str, floor: float) -> dict[str, Any]:
    """One row of summary.csv."""
    mae = result.by_seed(horizon, "mae")
    job = result.job
    with np.errstate(invalid="ignore"):  # with an infinite value the standard deviation is undefined
        spread = float(np.std(mae))
    return {
        **_labels(result, horizon),
        **_counts(result, horizon),
        "parameters": result.facts.get("parameters", 0),
        "mae_mean": float(np.mean(mae)),
        "mae_std": spread,
        "mae_median": float(np.median(mae)),
        "floor_mae": floor,
        "dtw_mean": float(np.mean(result.by_seed(horizon, "dtw"))),
        "violation_mean": float(np.mean(result.by_seed(horizon, "relative_violation_mean"))),
        "violation_max": float(np.max(result.by_seed(horizon, "relative_violation_max"))),
        "train_s": result.facts.get("train_s", 0.0),
        "infer_s": result.facts["infer_s"][horizon],
        "paper_mae": paper_mae(job.system_name, job.model) or math.nan,
    }


def convergence(result: JobResult, horizon: str, constant: float) -> dict[str, float]:
    """The share of seeds that converged, by the rule of `CONVERGED`, and the median MAE of those.

    **Arguments:** `result`; `horizon` of the median; `constant`, the MAE of the constant at the training horizon.
    """
    good = result.by_seed("train", "mae") <= CONVERGED * constant
    return {
        "converged": math.nan if math.isnan(constant) else float(np.mean(good)),
        "converged_median": float(np.median(result.by_seed(horizon, "mae")[good])) if good.any() else math.nan,
    }


def spread_row(result: JobResult, horizon: str, varied: dict[str, Any]) -> dict[str, Any]:
    """A row of an experiment that varies a setting: the mean error with its interval over seeds."""
    mae = result.by_seed(horizon, "mae")
    low, high = interval(mae)
    return {
        **_labels(result, horizon),
        **varied,
        **_counts(result, horizon),
        "mae_mean": float(mae.mean()),
        "mae_low": low,
        "mae_high": high,
        "mae_median": float(np.median(mae)),
        "mse_mean": float(result.by_seed(horizon, "mse").mean()),
        "violation_max": float(result.by_seed(horizon, "relative_violation_max").max()),
    }


def available(labelled: Iterable[tuple[Any, Job]], store: Store, seeds: int) -> Iterator[tuple[Any, Job, JobResult]]:
    """The jobs that have a result, with at most this many seeds."""
    for label, job in labelled:
        result = store.result(job, seeds, allow_fewer=True)
        if result is not None:
            yield label, job, result


def lowest_mae(rows: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> str:
    """The row with the lowest mean MAE of each system, as text."""
    best = [
        min((r for r in rows if r["system"] == system), key=lambda r: r["mae_mean"])
        for system in dict.fromkeys(r["system"] for r in rows)
    ]
    return ", ".join(f"{r['system']}: {name(r)} {format_number(r['mae_mean'])}" for r in best)


def summary_rows(jobs: Iterable[Job], store: Store, seeds: int) -> list[dict[str, Any]]:
    """Rows of all available results, for both horizons."""
    return [
        summary_row(result, horizon, floor_mae(job, store, horizon))
        | convergence(result, horizon, constant_mae(job, store))
        for _, job, result in available(((None, job) for job in jobs), store, seeds)
        for horizon in HORIZONS
    ]


def floor_job(job: Job) -> Job:
    """The job with the true field under the same integrator and projection."""
    kind = job.model if job.model.startswith(("pnode", "phrpinn")) else "hrpinn"
    return Job(job.system_name, kind.replace("pnode", "phrpinn"), "best", floor=True, quick=job.quick)


def floor_mae(job: Job, store: Store, horizon: str) -> float:
    """The MAE of the floor; NaN if it is not available or the model is not integrated."""
    result = store.result(floor_job(job), 1)
    if result is None or job.model in ("pinn", "constant"):
        return math.nan
    return float(result.by_seed(horizon, "mae").mean())


def constant_job(job: Job) -> Job:
    """The job that predicts the mean of the training data of the same system."""
    return Job(job.system_name, "constant", job.protocol, quick=job.quick)


def constant_mae(job: Job, store: Store) -> float:
    """The MAE of the constant at the training horizon; NaN if it is not available."""
    result = store.result(constant_job(job), 1)
    return math.nan if result is None else float(result.by_seed("train", "mae").mean())


def metric_lines(jobs: Iterable[Job], store: Store, seeds: int) -> Iterable[dict[str, Any]]:
    """One line for each job, horizon, seed and trajectory."""
    for _, job, result in available(((None, job) for job in jobs), store, seeds):
        for horizon in HORIZONS:
            values = result.metrics[horizon]
            for i, seed in enumerate(result.seeds):
                for run in range(values["mae"].shape[1]):
                    line = {"cell": job.key, "horizon": horizon, "seed": seed, "run": run}
                    metrics = {name: values[name][i, run].item() for name in METRICS if name != "dtw"}
                    has_dtw = run < values["dtw"].shape[1]
                    metrics["dtw"] = values["dtw"][i, run].item() if has_dtw else math.nan
                    yield line | {name: _rounded(value) for name, value in metrics.items()}


def _rounded(value: float | bool) -> float | bool:
    return value if isinstance(value, bool) or not math.isfinite(value) else float(f"{value:.4g}")


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean."""
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan, math.nan
    samples = np.random.default_rng(seed).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[samples].mean(1), [0.025, 0.975])
    return float(low), float(high)


def paired_rows(
    jobs: Sequence[Job], store: Store, seeds: int, reference: str = "phrpinn_robust"
) -> list[dict[str, Any]]:
    """MAE of each model minus that of the reference, by seed: mean, interval, and number of seeds where it is positive.

    A seed determines weights and order of the data; both models are trained on the same data. A model without seeds is
    compared with every seed of the reference.
    """
    rows = []
    for system, protocol in dict.fromkeys((job.system_name, job.protocol) for job in jobs):
        group = [job for job in jobs if (job.system_name, job.protocol) == (system, protocol)]
        base = next((store.result(job, seeds, allow_fewer=True) for job in group if job.model == reference), None)
        if base is None:
            continue
        for job in group:
            result = store.result(job, seeds, allow_fewer=True)
            if result is None or job.model == reference:
                continue
            for horizon in HORIZONS:
                difference = paired_difference(result, base, horizon)
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


def paired_difference(result: JobResult, base: JobResult, horizon: str) -> np.ndarray:
    """MAE minus that of the base, over the seeds that both have; a result without seeds is paired with each."""
    theirs, ours = result.by_seed(horizon, "mae"), base.by_seed(horizon, "mae")
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
    """The name of a model in tables."""
    return CONTENDERS[model].title
