"""Protocol `efficiency`: error against the number of training cells and against the size of the network.

Tested on cells that no network saw: the scalars of a grey box from their first clean discharge, the next one predicted.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from twinfold.train import Adam
from twinfold_studies.battery.calibrate import on_unseen
from twinfold_studies.battery.cells import Cells, folds, pairs, runs_of
from twinfold_studies.battery.models import MODELS, Model, black_box, replaced
from twinfold_studies.battery.scores import Scores, rows_of
from twinfold_studies.bench.kept import kept, unless_left
from twinfold_studies.bench.store import Store

TESTED = 3  # every third cell is tested on
COUNTS = (2, 4, 8, 16)
# Widths of the paper's HRPINN and of a NODE that give about the same number of weights: 68 to 10,000.
SIZES = ((4, 3), (13, 15), (33, 43), (69, 92))
SEEDS = 5  # at most: the trend is what is asked for
METHOD = (Adam(400, learning_rate=5e-3),)  # one that all sizes can afford


def sized(hrpinn: int, node: int) -> dict[str, Model]:
    """Both models at one size."""
    return {
        "hrpinn": dataclasses.replace(MODELS["hrpinn_large"], build=lambda own: replaced(own, hrpinn), method=METHOD),
        "node": dataclasses.replace(MODELS["node"], build=lambda own: black_box(node), method=METHOD),
    }


def efficiency(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Rows with a column for what is varied and its value."""
    others, these = folds(pairs(cells), TESTED)[0]
    groups = {pair.cell: pair.group for pair in these}
    data = runs_of([pair.first for pair in [*others, *these]]).fingerprint()
    count = min(seeds, SEEDS)
    # Spread over the groups: every so many of the cells, in the order of their groups.
    asked = [
        ("training cells", used, {name: MODELS[name] for name in ("hrpinn", "node")}, _some(others, used))
        for used in dict.fromkeys([*(c for c in COUNTS if c < len(others)), len(others)])
    ]
    asked += [("weights", hrpinn, sized(hrpinn, node), others) for hrpinn, node in SIZES]
    rows: list[dict[str, Any]] = []
    for varied, value, chosen, train in asked:
        for name, model in chosen.items():
            if name not in models:
                continue
            tell(f"battery efficiency: {name}, {varied} {value}")
            with unless_left(store):
                made = kept(
                    store,
                    f"battery-efficiency-{name}",
                    [data, varied, value, count, str(model.method), str(model.loss), "centred"],
                    lambda model=model, train=train: vars(on_unseen(model, train, these, count)),
                )
                found = rows_of("efficiency", "unseen", name, Scores(**made), groups)
                at = value if varied == "training cells" else made["parameters"]
                rows += [row | {"varied": varied, "value": at} for row in found if row["group"] == "all"]
    return rows


def _some(others: Sequence[Any], count: int) -> list[Any]:
    return [others[round(index * (len(others) - 1) / max(count - 1, 1))] for index in range(count)]
