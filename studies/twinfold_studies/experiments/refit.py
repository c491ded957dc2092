"""How long to train, and on what: held-out blocks and refits on synthetic records."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.first.family import RECORDS, each_record
from twinfold_studies.first.project import FIRST

ONE = "one block, refit"
VARIANTS = {FIRST: (), ONE: ("fit.folds=1",)}
TIE = 0.02
BEFORE, EVERY = "one block", "every block, refit"
TITLES = (BEFORE, ONE, EVERY)
CAPTION = (
    "Errors on the test record, which has other inputs: root mean square over the samples after the warm-up, divided "
    f"by the standard deviation of the output. {BEFORE}: trained on four of five blocks, for as many steps as were "
    f"best on the fifth. {ONE}: trained again on all five, for the same number of steps. {EVERY}: each block was held "
    "out once before, and the mean score decided about the number; what `fit.refit = true` does with blocks."
)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """A row for each record, and the mean ratios."""
    each = each_record("refit", VARIANTS, store, options, log, refit=True)
    rows = [_row(record, found) for record, found in each]
    if not rows:
        return Findings([], [])
    ratios = {name: np.array([row[name] / row[BEFORE] for row in rows]) for name in (ONE, EVERY)}
    sentences = [_sentence(name, each) for name, each in ratios.items()]
    return Findings(sentences, [Table("records", "Test errors", rows, caption=CAPTION)])


def _sentence(name: str, ratios: np.ndarray) -> str:
    mean, low, high = np.exp(np.log(ratios).mean()), np.sum(ratios < 1 - TIE), np.sum(ratios > 1 + TIE)
    return (
        f"{name}: {mean:.2f} times the error of '{BEFORE}' (geometric mean of {len(ratios)} records), lower on {low} "
        f"and higher on {high} of them (by more than {TIE:.0%}), {ratios.min():.2f} to {ratios.max():.2f} times."
    )


def _row(record: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    errors = (found[FIRST]["test_before"], found[ONE]["test"], found[FIRST]["test"])
    return {"record": record, **dict(zip(TITLES, errors, strict=True))}


REFIT = Experiment(
    "refit",
    "The refit",
    "How long to train is decided on one held-out block or on each in turn; then, on all data: synthetic records. "
    "`twinfold bench refit NAME ...` for some of the records.",
    full=Options(),
    quick=Options(),
    requests=lambda options: [],
    analyse=analyse,
    sets=RECORDS,
)
