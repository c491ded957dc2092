"""Protocol `conditions`: the network is trained without all cells of a condition, and tested on these.

The scalars of a cell come from its first clean discharge, and the next one is predicted, as in `calibrate`; the network
has never seen such a temperature, or such a current at it. Outside of its training data it fades to the physics.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twinfold_studies.battery.calibrate import CHECKPOINTS, baselines, fit_settings, score_unseen
from twinfold_studies.battery.cells import Cells, pairs, runs_of
from twinfold_studies.battery.models import HEATED, MODELS
from twinfold_studies.battery.scores import Scores, score_rows
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.store import Store

CONDITIONS = {"43C": ("43C",), "4C": ("4C_1A", "4C_2A"), "4A_RT": ("4A_RT",), "2A_RT": ("2A_RT",)}
COMPARED = ("physics_fitted", "hrpinn")


def conditions(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of each condition: its cells, unseen, by a network that was trained on all others."""
    all_pairs = pairs(cells)
    data = runs_of([pair.first for pair in all_pairs]).fingerprint()
    rows: list[dict[str, Any]] = []
    for condition, groups in CONDITIONS.items():
        these = [pair for pair in all_pairs if pair.group in groups]
        others = [pair for pair in all_pairs if pair.group not in groups]
        if not these or not others:
            continue
        named = {pair.cell: condition for pair in these}
        for name, scores in baselines(these).items():
            if name in models:
                rows += score_rows("conditions", "unseen", name, scores, named, total=False)
        for model_set in (MODELS, HEATED):
            for name in COMPARED:
                if name not in models:
                    continue
                model = model_set[name]
                log(f"battery conditions: {name}, {condition} left out, temperature {model.temperature}")
                settings = [data, seeds, *fit_settings(model), condition]
                with record_skips(store):
                    stored = cached(
                        store,
                        f"battery-conditions-{name}",
                        settings,
                        lambda model=model, others=others, these=these: vars(
                            score_unseen(
                                model,
                                others,
                                these,
                                seeds,
                                fade=model.random,
                                checkpoints=store.folder / CHECKPOINTS,
                            )
                        ),
                    )
                    rows += score_rows(
                        "conditions",
                        "unseen",
                        name,
                        Scores(**stored),
                        named,
                        total=False,
                        temperature=model.temperature,
                    )
    return rows
