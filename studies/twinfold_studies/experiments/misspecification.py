"""The paper's main caveat, which it never tests: what happens when the physics, or the manifold, is wrong."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.report import number
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import dots
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.misspecified import VARIANTS, WRONGS
from twinfold_studies.bench.problems import HORIZONS, problem
from twinfold_studies.bench.queue import Wanted
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import computed, spread_row, title

MODELS = ("hrpinn", "phrpinn_robust")


def jobs(options: Options) -> list[tuple[str, Job]]:
    """The right model, and each wrong one with its parameter held or learned."""
    cells = []
    for protocol in options.protocols:
        for system in options.systems:
            for model in options.models:
                plain = Job(system, model, protocol, quick=options.quick)
                cells.append(("nothing wrong", plain))
                for variant in ("parameter", "manifold") if options.quick else VARIANTS:
                    wrong = dataclasses.replace(plain, variant=variant)
                    cells.append((f"{variant}, held" if variant != "term" else "term", wrong))
                    if variant != "term":
                        cells.append((f"{variant}, learned", dataclasses.replace(wrong, learned=True)))
    return cells


def wanted(options: Options) -> list[Wanted]:
    return [Wanted(job, options.seeds) for _, job in jobs(options)]


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """A row for each model and what it was told wrongly; violations are of the true manifold."""
    del tell
    rows: list[dict[str, Any]] = []
    panels: dict[str, dict[str, np.ndarray]] = {}
    for wrong, job, cell in computed(jobs(options), store, options.seeds):
        rows += [spread_row(cell, horizon, {"wrong": wrong}) for horizon in HORIZONS]
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
    full=Options(tuple(WRONGS), MODELS, 10, ("best",)),
    quick=Options(("mass_spring",), MODELS, 1, ("best",)),
    wanted=wanted,
    find=find,
)
