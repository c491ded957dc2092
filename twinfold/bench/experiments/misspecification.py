"""The paper's main caveat, which it never tests: what happens when the physics, or the manifold, is wrong."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold.bench.figures import dots
from twinfold.bench.job import HORIZONS, Job
from twinfold.bench.misspecified import VARIANTS, WRONGS
from twinfold.bench.problems import problem
from twinfold.bench.queue import Wanted
from twinfold.bench.store import Store
from twinfold.bench.summary import number
from twinfold.bench.tables import interval, title

MODELS = ("hrpinn", "phrpinn_robust")


def settle(options: Options) -> Options:
    """Three systems whose known part or manifold has a parameter; 10 seeds."""
    return dataclasses.replace(
        options,
        systems=options.systems or (("mass_spring",) if options.quick else tuple(WRONGS)),
        models=options.models or MODELS,
        seeds=options.seeds or (1 if options.quick else 10),
        protocols=options.protocols or ("best",),
    )


def jobs(options: Options) -> list[tuple[str, Job]]:
    """The right model, and each wrong one with its parameter held or learned."""
    cells = []
    for protocol in options.protocols or ():
        for system in options.systems or ():
            for model in options.models or ():
                plain = Job(system, model, protocol, quick=options.quick)
                cells.append(("nothing wrong", plain))
                for variant in ("parameter", "manifold") if options.quick else VARIANTS:
                    wrong = dataclasses.replace(plain, variant=variant)
                    cells.append((f"{variant}, held" if variant != "term" else "term", wrong))
                    if variant != "term":
                        cells.append((f"{variant}, learned", dataclasses.replace(wrong, learned=True)))
    return cells


def wanted(options: Options) -> list[Wanted]:
    return [Wanted(job, options.seeds or 1) for _, job in jobs(options)]


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """A row for each model and what it was told wrongly; violations are of the true manifold."""
    del tell
    rows: list[dict[str, Any]] = []
    panels: dict[str, dict[str, np.ndarray]] = {}
    for wrong, job in jobs(options):
        cell = store.cell(job, options.seeds or 1, fewer=True)
        if cell is None:
            continue
        for horizon in HORIZONS:
            mae = cell.by_seed(horizon, "mae")
            low, high = interval(mae)
            rows.append(
                {
                    "system": job.system,
                    "model": job.model,
                    "protocol": job.protocol,
                    "horizon": horizon,
                    "wrong": wrong,
                    "seeds": len(cell.seeds),
                    "failures": int(cell.by_seed(horizon, "failed").sum()),
                    "mae_mean": float(mae.mean()),
                    "mae_low": low,
                    "mae_high": high,
                    "mae_median": float(np.median(mae)),
                    "violation_max": float(cell.by_seed(horizon, "relative_violation_max").max()),
                }
            )
        panel = panels.setdefault(problem(job.system).title, {})
        panel[f"{title(job.model)}, {wrong}"] = cell.by_seed("train", "mae")
    caption = "; ".join(f"{name}: {what}" for name, what in VARIANTS.items())
    pictures = [
        Picture(
            "mae",
            "MAE at the training horizon by what is wrong",
            f"{caption}. A dot for each seed, a bar at the median.",
            lambda: dots(panels, "MAE, training horizon"),
        )
    ]
    return Findings(
        words(rows), [Table("summary", "What a wrong model costs", rows, caption=caption)], pictures if panels else []
    )


def words(rows: list[dict[str, Any]]) -> list[str]:
    """Each kind of mistake beside the model without it."""
    said = []
    for system, model in dict.fromkeys((r["system"], r["model"]) for r in rows):
        here = [r for r in rows if (r["system"], r["model"], r["horizon"]) == (system, model, "train")]
        listed = ", ".join(f"{r['wrong']} {number(r['mae_mean'])}" for r in here)
        said.append(f"{system}, {title(model)}, mean MAE: {listed}.")
    return said


MISSPECIFICATION = Experiment(
    "misspecification",
    "Wrong physics, wrong manifold",
    "A wrong parameter, a missing term, a manifold from the wrong physics; held, or learned with the network.",
    settle,
    wanted,
    find,
)
