"""Wrong physics and wrong constraints: the main caveat of the paper, which it does not test."""

import dataclasses
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
from twinfold_studies.bench.tables import available, spread_row, title
from twinfold_studies.systems.misspecified import MISSPECIFICATIONS, VARIANTS

MODELS = ("hrpinn", "phrpinn_robust", "phrpinn_slack")


def jobs(options: Options) -> list[tuple[str, Job]]:
    """The correct model, and each misspecified one with its parameter held or learned."""
    labelled = []
    for protocol in options.protocols:
        for system in options.systems:
            for model in options.models:
                plain = Job(system, model, protocol, quick=options.quick)
                labelled.append(("nothing wrong", plain))
                for variant in ("parameter", "manifold") if options.quick else VARIANTS:
                    wrong = dataclasses.replace(plain, variant=variant)
                    labelled.append((f"{variant}, held" if variant != "term" else "term", wrong))
                    if variant != "term":
                        labelled.append((f"{variant}, learned", dataclasses.replace(wrong, learned=True)))
    return labelled


def requests(options: Options) -> list[Request]:
    return [Request(job, options.seeds) for _, job in jobs(options)]


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """A row for each model and misspecification; violations are those of the true constraint."""
    del log
    rows: list[dict[str, Any]] = []
    panels: dict[str, dict[str, np.ndarray]] = {}
    for wrong, job, result in available(jobs(options), store, options.seeds):
        rows += [spread_row(result, horizon, {"wrong": wrong}) for horizon in HORIZONS]
        panel = panels.setdefault(problem(job.system_name).title, {})
        panel[f"{title(job.model)}, {wrong}"] = result.by_seed("train", "mae")
    caption = "; ".join(f"{name}: {what}" for name, what in VARIANTS.items())
    pictures = [
        Picture(
            "mae",
            "MAE at the training horizon by misspecification",
            f"{caption}. A dot for each seed, a bar at the median.",
            lambda: dots(panels, "MAE, training horizon"),
        )
    ]
    return Findings(
        summarise(rows),
        [Table("summary", "Errors of misspecified models", rows, caption=caption)],
        pictures if panels else [],
    )


def summarise(rows: list[dict[str, Any]]) -> list[str]:
    """Mean MAE of each model under each misspecification."""
    sentences = []
    for system, model in dict.fromkeys((r["system"], r["model"]) for r in rows):
        here = [r for r in rows if (r["system"], r["model"], r["horizon"]) == (system, model, "train")]
        listed = ", ".join(f"{r['wrong']} {format_number(r['mae_mean'])}" for r in here)
        sentences.append(f"{system}, {title(model)}, mean MAE: {listed}.")
    return sentences


MISSPECIFICATION = Experiment(
    "misspecification",
    "Wrong physics, wrong constraint",
    "A wrong parameter, a missing term, a constraint from the wrong physics; parameters held or learned.",
    full=Options(tuple(MISSPECIFICATIONS), MODELS, 10, ("best",)),
    quick=Options(("mass_spring",), MODELS, 1, ("best",)),
    requests=requests,
    analyse=analyse,
)
