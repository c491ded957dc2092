"""The settings of a new project beside others that could be its defaults, on synthetic records."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.first.family import DRAWS, RECORDS, each_record
from twinfold_studies.first.project import FIRST

FIXED, ADAM, SEEDS, NARROW = "fixed weights", "Adam before", "4 seeds", "width 6"
VARIANTS = {
    FIRST: (),
    FIXED: ("loss.l2=1e-7", "loss.correlation=0.0", "fit.lm_steps=80"),
    ADAM: ("fit.adam_epochs=300", "fit.learning_rate=1e-2"),
    SEEDS: ("fit.seeds=4",),
    NARROW: ("model.width=6",),
}
CHOICES = {  # the one of several fits with the least error on the validation block
    "with or without Adam": (FIRST, ADAM),
    "any": tuple(VARIANTS),
}
CHOSEN = tuple(f"-{draw}" for draw in DRAWS[:2])  # the draws on which the settings were chosen
CAPTION = (
    "Errors on the test record, which has other inputs: root mean square over the samples after the warm-up, divided "
    f"by the standard deviation of the output. {FIRST}: the settings of `twinfold new`. {FIXED}: "
    f"`loss.l2 = 1e-7` and `loss.correlation = 0`, 80 steps. {ADAM}: 300 epochs of Adam before Levenberg-Marquardt. "
    "with or without Adam, any: of two fits, or of all, the one with the least error on the validation block."
)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """A row for each record, and the mean ratios."""
    rows = [_row(record, found) for record, found in each_record("defaults", VARIANTS, store, options, log)]
    parts = {
        "records on which it was chosen": [row for row in rows if row["record"].endswith(CHOSEN)],
        "further records": [row for row in rows if not row["record"].endswith(CHOSEN)],
    }
    others = [name for name in (*VARIANTS, *CHOICES) if name != FIRST]
    sentences = [_sentence(other, name, part) for name, part in parts.items() if part for other in others]
    return Findings(sentences, [Table("records", "Test errors", rows, caption=CAPTION)])


def _sentence(other: str, name: str, rows: list[dict[str, Any]]) -> str:
    ratios = np.array([row[FIRST] / row[other] for row in rows])
    return (
        f"{FIRST}: {np.exp(np.log(ratios).mean()):.2f} times the error of '{other}' (geometric mean of {len(ratios)} "
        f"{name}), lower on {np.sum(ratios < 1)} of them, {ratios.min():.2f} to {ratios.max():.2f} times."
    )


def _row(record: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    errors = {name: each["test_before"] for name, each in found.items()}
    chosen = {title: errors[min(names, key=lambda name: found[name]["valid"])] for title, names in CHOICES.items()}
    return {"record": record, **errors, **chosen}


DEFAULTS = Experiment(
    "defaults",
    "The settings of a new project",
    "The defaults beside fixed weights of the loss, Adam, more seeds and a narrow network: errors on synthetic "
    "records. `twinfold bench defaults NAME ...` for some of them.",
    full=Options(),
    quick=Options(),
    requests=lambda options: [],
    analyse=analyse,
    sets=RECORDS,
)
