"""How a constraint should be enforced: not at all, softly (how strongly?), in training only, fast, or robustly."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold.bench.figures import dots
from twinfold.bench.job import HORIZONS, Job
from twinfold.bench.problems import problem
from twinfold.bench.queue import Wanted
from twinfold.bench.store import Store
from twinfold.bench.summary import number
from twinfold.bench.tables import interval, summary_row
from twinfold.systems.registry import SYSTEMS

WEIGHTS = (0.01, 1.0, 100.0)
KINDS = ("unconstrained", *(f"soft {weight:g}" for weight in WEIGHTS), "ALM", "fast", "robust")


def settle(options: Options) -> Options:
    """All six systems, 25 seeds."""
    return dataclasses.replace(
        options,
        systems=options.systems or (("mass_spring",) if options.quick else tuple(SYSTEMS)),
        seeds=options.seeds or (1 if options.quick else 25),
        protocols=options.protocols or ("best",),
    )


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
        for protocol in options.protocols or ()
        for system in options.systems or ()
        for kind in KINDS
    ]


def wanted(options: Options) -> list[Wanted]:
    return [Wanted(job, options.seeds or 1) for _, job in jobs(options)]


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """A row for each system, protocol, horizon and way of enforcing."""
    del tell
    rows: list[dict[str, Any]] = []
    panels: dict[str, dict[str, np.ndarray]] = {}
    seeds = options.seeds or 1
    for kind, job in jobs(options):
        cell = store.cell(job, seeds, fewer=True)
        base = store.cell(job_of(job.system, "unconstrained", job.protocol, options.quick), seeds, fewer=True)
        if cell is None:
            continue
        for horizon in HORIZONS:
            row = summary_row(cell, horizon, np.nan)
            gain = None if base is None else _difference(base.by_seed(horizon, "mae"), cell.by_seed(horizon, "mae"))
            low, high = (np.nan, np.nan) if gain is None else interval(gain)
            rows.append(
                {"system": job.system, "protocol": job.protocol, "horizon": horizon, "enforced": kind}
                | {name: row[name] for name in ("seeds", "failures", "mae_mean", "mae_std", "mae_median")}
                | {"gain_low": low, "gain_high": high, "violation_max": row["violation_max"], "train_s": row["train_s"]}
            )
        if job.protocol == (options.protocols or ("best",))[-1]:
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


def _difference(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Seed by seed, over the seeds that both have."""
    count = min(len(ours), len(theirs))
    with np.errstate(invalid="ignore"):
        return ours[:count] - theirs[:count]


def words(rows: list[dict[str, Any]]) -> list[str]:
    """Which way is the most accurate on each system, and what a soft constraint holds."""
    said = []
    for protocol, horizon in dict.fromkeys((r["protocol"], r["horizon"]) for r in rows):
        here = [r for r in rows if (r["protocol"], r["horizon"]) == (protocol, horizon)]
        best = [
            min((r for r in here if r["system"] == s), key=lambda r: r["mae_mean"])
            for s in dict.fromkeys(r["system"] for r in here)
        ]
        listed = ", ".join(f"{r['system']}: {r['enforced']} {number(r['mae_mean'])}" for r in best)
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
    settle,
    wanted,
    find,
)
