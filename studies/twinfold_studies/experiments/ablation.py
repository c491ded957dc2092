"""Ways to enforce a constraint: none, soft penalties, augmented Lagrangian, fast and robust projection."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.report import format_number
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import dots
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import HORIZONS, problem
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import available, interval, lowest_mae, paired_difference, summary_row
from twinfold_studies.systems import SYSTEMS

WEIGHTS = (0.01, 1.0, 100.0)
KINDS = ("unconstrained", *(f"soft {weight:g}" for weight in WEIGHTS), "ALM", "fast", "robust")


def enforcing_job(system: str, kind: str, protocol: str, quick: bool) -> Job:
    """The job of one way to enforce the constraint."""
    if kind.startswith("soft"):
        weight = float(kind.split()[1])
        # With weight 1 it is the soft model of the comparison: the same job.
        return Job(system, "hrpinn_soft", protocol, soft=None if weight == 1.0 else weight, quick=quick)
    model = {"unconstrained": "hrpinn", "ALM": "alm", "fast": "phrpinn_fast", "robust": "phrpinn_robust"}[kind]
    return Job(system, model, protocol, quick=quick)


def jobs(options: Options) -> list[tuple[str, Job]]:
    """All jobs, labelled with the way of enforcing."""
    return [
        (kind, enforcing_job(system, kind, protocol, options.quick))
        for protocol in options.protocols
        for system in options.systems
        for kind in KINDS
    ]


def requests(options: Options) -> list[Request]:
    return [Request(job, options.seeds) for _, job in jobs(options)]


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """A row for each system, protocol, horizon and way of enforcing."""
    del log
    rows: list[dict[str, Any]] = []
    panels: dict[str, dict[str, np.ndarray]] = {}
    for kind, job, result in available(jobs(options), store, options.seeds):
        free = enforcing_job(job.system_name, "unconstrained", job.protocol, options.quick)
        base = store.result(free, options.seeds, allow_fewer=True)
        for horizon in HORIZONS:
            row = summary_row(result, horizon, np.nan)
            low, high = (np.nan, np.nan) if base is None else interval(paired_difference(base, result, horizon))
            rows.append(
                {"system": job.system_name, "protocol": job.protocol, "horizon": horizon, "enforced": kind}
                | {name: row[name] for name in ("seeds", "failures", "mae_mean", "mae_std", "mae_median")}
                | {"gain_low": low, "gain_high": high, "violation_max": row["violation_max"], "train_s": row["train_s"]}
            )
        if job.protocol == options.protocols[-1]:
            panels.setdefault(problem(job.system_name).title, {})[kind] = result.by_seed("train", "mae")
    table = Table(
        "summary",
        "Ways to enforce a constraint",
        rows,
        caption="gain_low to gain_high: 95 % interval over seeds of the unconstrained model's MAE minus this one's.",
    )
    pictures = [
        Picture(
            "mae",
            "MAE at the training horizon by way of enforcing",
            "A dot for each seed, a bar at the median.",
            lambda: dots(panels, "MAE, training horizon"),
        )
    ]
    return Findings(summarise(rows), [table], pictures if panels else [])


def summarise(rows: list[dict[str, Any]]) -> list[str]:
    """The most accurate way on each system, and the largest violation of each way."""
    sentences = []
    for protocol, horizon in dict.fromkeys((r["protocol"], r["horizon"]) for r in rows):
        here = [r for r in rows if (r["protocol"], r["horizon"]) == (protocol, horizon)]
        listed = lowest_mae(here, lambda r: r["enforced"])
        sentences.append(f"Protocol {protocol}, {horizon} horizon, lowest mean MAE. {listed}.")
    largest = {
        kind: max((r["violation_max"] for r in rows if r["enforced"] == kind), default=np.nan)
        for kind in dict.fromkeys(r["enforced"] for r in rows)
    }
    if largest:
        listed = ", ".join(f"{kind} {format_number(value)}" for kind, value in largest.items())
        sentences.append(f"Largest relative violation over all systems: {listed}.")
    return sentences


ABLATION = Experiment(
    "ablation",
    "How to enforce a constraint",
    "Unconstrained, soft at three weights, augmented Lagrangian, fast and robust projection on all six systems.",
    full=Options(tuple(SYSTEMS), seeds=25, protocols=("best",)),
    quick=Options(("mass_spring",), seeds=1, protocols=("best",)),
    requests=requests,
    analyse=analyse,
)
