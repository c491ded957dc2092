"""How a constraint should be enforced: not at all, softly (how strongly?), in training only, fast, or robustly."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.report import number
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import dots
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import HORIZONS, problem
from twinfold_studies.bench.queue import Wanted
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import computed, interval, lowest, seed_by_seed, summary_row
from twinfold_studies.systems.registry import SYSTEMS

WEIGHTS = (0.01, 1.0, 100.0)
KINDS = ("unconstrained", *(f"soft {weight:g}" for weight in WEIGHTS), "ALM", "fast", "robust")


def job_of(system: str, kind: str, protocol: str, quick: bool) -> Job:
    """The cell of one way of enforcing."""
    if kind.startswith("soft"):
        weight = float(kind.split()[1])
        # The weight of the comparison's own soft model: the same cell.
        return Job(system, "hrpinn_soft", protocol, soft=None if weight == 1.0 else weight, quick=quick)
    model = {"unconstrained": "hrpinn", "ALM": "alm", "fast": "phrpinn_fast", "robust": "phrpinn_robust"}[kind]
    return Job(system, model, protocol, quick=quick)


def jobs(options: Options) -> list[tuple[str, Job]]:
    """All cells, with what they stand for."""
    return [
        (kind, job_of(system, kind, protocol, options.quick))
        for protocol in options.protocols
        for system in options.systems
        for kind in KINDS
    ]


def wanted(options: Options) -> list[Wanted]:
    return [Wanted(job, options.seeds) for _, job in jobs(options)]


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """A row for each system, protocol, horizon and way of enforcing."""
    del tell
    rows: list[dict[str, Any]] = []
    panels: dict[str, dict[str, np.ndarray]] = {}
    for kind, job, cell in computed(jobs(options), store, options.seeds):
        free = job_of(job.system, "unconstrained", job.protocol, options.quick)
        base = store.cell(free, options.seeds, fewer=True)
        for horizon in HORIZONS:
            row = summary_row(cell, horizon, np.nan)
            low, high = (np.nan, np.nan) if base is None else interval(seed_by_seed(base, cell, horizon))
            rows.append(
                {"system": job.system, "protocol": job.protocol, "horizon": horizon, "enforced": kind}
                | {name: row[name] for name in ("seeds", "failures", "mae_mean", "mae_std", "mae_median")}
                | {"gain_low": low, "gain_high": high, "violation_max": row["violation_max"], "train_s": row["train_s"]}
            )
        if job.protocol == options.protocols[-1]:
            panels.setdefault(problem(job.system).title, {})[kind] = cell.by_seed("train", "mae")
    table = Table(
        "summary",
        "Ways of enforcing",
        rows,
        caption="gain_low to gain_high: 95 % interval over seeds of the unconstrained model's MAE minus this one's.",
    )
    pictures = [
        Picture(
            "mae",
            "MAE at the training horizon by how the constraint is enforced",
            "A dot for each seed, a bar at the median.",
            lambda: dots(panels, "MAE, training horizon"),
        )
    ]
    return Findings(words(rows), [table], pictures if panels else [])


def words(rows: list[dict[str, Any]]) -> list[str]:
    """Which way is the most accurate on each system, and what a soft constraint holds."""
    said = []
    for protocol, horizon in dict.fromkeys((r["protocol"], r["horizon"]) for r in rows):
        here = [r for r in rows if (r["protocol"], r["horizon"]) == (protocol, horizon)]
        listed = lowest(here, lambda r: r["enforced"])
        said.append(f"Protocol {protocol}, {horizon} horizon, lowest mean MAE. {listed}.")
    held = {
        kind: max((r["violation_max"] for r in rows if r["enforced"] == kind), default=np.nan)
        for kind in dict.fromkeys(r["enforced"] for r in rows)
    }
    if held:
        listed = ", ".join(f"{kind} {number(value)}" for kind, value in held.items())
        said.append(f"Largest relative violation of all: {listed}.")
    return said


ABLATION = Experiment(
    "ablation",
    "How to enforce a constraint",
    "Unconstrained, soft at three weights, augmented Lagrangian, fast and robust projection on all six systems.",
    full=Options(tuple(SYSTEMS), seeds=25, protocols=("best",)),
    quick=Options(("mass_spring",), seeds=1, protocols=("best",)),
    wanted=wanted,
    find=find,
)
