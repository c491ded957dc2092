"""The settings of a new project beside those of before, on synthetic records."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.first.family import fit_each, projects
from twinfold_studies.first.project import FIRST, Project

FIXED = "fixed weights"
VARIANTS = {
    FIRST: (),
    FIXED: ("loss.l2=1e-7", "loss.correlation=0.0", "fit.lm_steps=80"),
}
DRAWS = (1, 2, 3)  # the settings were chosen on the first two
CAPTION = (
    "Errors on the test record, which has other inputs: root mean square over the samples after the warm-up, divided "
    f"by the standard deviation of the output. {FIRST}: the settings of `twinfold new`. {FIXED}: "
    "`loss.l2 = 1e-7` and `loss.correlation = 0`, 80 steps."
)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """A row for each record, and the mean ratios."""
    rows: list[dict[str, Any]] = []
    for draw in DRAWS[:1] if options.quick else DRAWS:
        for project in projects(draw, VARIANTS):
            rows.append(_row(project, store, options, log))
            jax.clear_caches()
    chosen = tuple(f" {draw}" for draw in DRAWS[:2])
    parts = {
        "records on which it was chosen": [row for row in rows if row["record"].endswith(chosen)],
        "further records": [row for row in rows if not row["record"].endswith(chosen)],
    }
    sentences = [_sentence(name, part) for name, part in parts.items() if part]
    return Findings(sentences, [Table("records", "Test errors", rows, caption=CAPTION)])


def _sentence(name: str, rows: list[dict[str, Any]]) -> str:
    ratios = np.array([row[FIRST] / row[FIXED] for row in rows])
    return (
        f"{FIRST}: {np.exp(np.log(ratios).mean()):.2f} times the error of '{FIXED}' (geometric mean of {len(ratios)} "
        f"{name}), lower on {np.sum(ratios < 1)} of them, {ratios.min():.2f} to {ratios.max():.2f} times."
    )


def _row(project: Project, store: Store, options: Options, log: Callable[[str], None]) -> dict[str, Any]:
    found = fit_each(project, "defaults", VARIANTS, store, options, log)
    return {"record": project.name, **{name: errors["test_before"] for name, errors in found.items()}}


DEFAULTS = Experiment(
    "defaults",
    "The settings of a new project",
    "Weights of the loss that are estimated, beside fixed ones: errors on synthetic records.",
    full=Options(),
    quick=Options(),
    requests=lambda options: [],
    analyse=analyse,
)
