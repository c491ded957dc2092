"""Protocol `efficiency`: error against the number of training cells and against the size of the network.

Tested on unseen cells: the scalars of a grey box are estimated from their first clean discharge, the next is predicted.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from twinfold.train import Adam
from twinfold_studies.battery.calibrate import score_unseen
from twinfold_studies.battery.cells import Cells, folds, pairs, runs_of
from twinfold_studies.battery.models import MODELS, Model, black_box, replacement
from twinfold_studies.battery.scores import Scores, score_rows
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.store import Store

TEST_EVERY = 3  # every third cell is a test cell
COUNTS = (2, 4, 8, 16)
# Widths of the paper's HRPINN and of a NODE with about the same number of weights, 68 to 10,000.
SIZES = ((4, 3), (13, 15), (33, 43), (69, 92))
MAX_SEEDS = 5  # enough for the trend
METHOD = (Adam(400, learning_rate=5e-3),)  # affordable for all sizes


def sized(hrpinn: int, node: int) -> dict[str, Model]:
    """Both models with networks of these widths."""
    return {
        "hrpinn": dataclasses.replace(
            MODELS["hrpinn_large"], build=lambda per_cell: replacement(per_cell, hrpinn), method=METHOD
        ),
        "node": dataclasses.replace(MODELS["node"], build=lambda per_cell: black_box(node), method=METHOD),
    }


def efficiency(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Rows with columns for the varied quantity and its value."""
    others, these = folds(pairs(cells), TEST_EVERY)[0]
    groups = {pair.cell: pair.group for pair in these}
    data = runs_of([pair.first for pair in [*others, *these]]).fingerprint()
    count = min(seeds, MAX_SEEDS)
    cases = [
        ("training cells", used, {name: MODELS[name] for name in ("hrpinn", "node")}, _spread(others, used))
        for used in dict.fromkeys([*(c for c in COUNTS if c < len(others)), len(others)])
    ]
    cases += [("weights", hrpinn, sized(hrpinn, node), others) for hrpinn, node in SIZES]
    rows: list[dict[str, Any]] = []
    for varied, value, chosen, train in cases:
        for name, model in chosen.items():
            if name not in models:
                continue
            log(f"battery efficiency: {name}, {varied} {value}")
            with record_skips(store):
                scores = cached(
                    store,
                    f"battery-efficiency-{name}",
                    [data, varied, value, count, str(model.method), str(model.loss), "centred"],
                    lambda model=model, train=train: vars(score_unseen(model, train, these, count)),
                )
                found = score_rows("efficiency", "unseen", name, Scores(**scores), groups)
                at = value if varied == "training cells" else scores["parameters"]
                rows += [row | {"varied": varied, "value": at} for row in found if row["group"] == "all"]
    return rows


def _spread(others: Sequence[Any], count: int) -> list[Any]:
    """Evenly spaced elements: the cells are ordered by group, so that all groups are represented."""
    return [others[round(index * (len(others) - 1) / max(count - 1, 1))] for index in range(count)]
