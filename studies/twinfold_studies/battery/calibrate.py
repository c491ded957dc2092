"""Protocol `calibrate`: the scalars of a cell from its first clean discharge, its next one predicted.

The network is shared. Seen cells are among those that it was trained on; unseen ones are not: there the network stays
as it is, and only the cell's own scalars are estimated.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from twinfold.train import Fit, LevenbergMarquardt, fit
from twinfold.train._estimate import has_own_parameters
from twinfold_studies.battery.cells import EVERY, Cells, Pair, first_two, folds, pairs, runs_of
from twinfold_studies.battery.models import MODELS, Model, constant, persistence, plain_physics
from twinfold_studies.battery.scores import Scores, rows_of, scores_of, scores_of_rule
from twinfold_studies.bench.kept import kept, unless_left
from twinfold_studies.bench.store import Store

FOLDS = 9
METHOD = LevenbergMarquardt(40)  # of the scalars of an unseen cell
CHANGED = 0.1  # relative change of capacity from one clean discharge to the next that is worth a line


def shared_fit(model: Model, train: Sequence[Pair], seeds: int) -> Fit:
    """Network and scalars on the first clean discharges of these cells."""
    data = runs_of([pair.first for pair in train], every=EVERY)
    count = seeds if model.random else 1
    return fit(model.build(True), data, seeds=count, method=model.method, loss=model.loss, progress=False)


def on_seen(model: Model, found: Sequence[Pair], seeds: int) -> Scores:
    """All cells at once."""
    fitted = shared_fit(model, found, seeds)
    test = runs_of([pair.next for pair in found])
    return scores_of(fitted, test, train_s=fitted.seconds, parameters=fitted.parameters)


def on_unseen(model: Model, others: Sequence[Pair], these: Sequence[Pair], seeds: int) -> Scores:
    """The network from other cells; of these only their scalars, from their first discharge."""
    fitted = shared_fit(model, others, seeds)
    first, test = runs_of([pair.first for pair in these], every=EVERY), runs_of([pair.next for pair in these])
    count = {"train_s": fitted.seconds, "parameters": fitted.parameters}
    if not has_own_parameters(fitted.twin):
        return scores_of(fitted, test, **count)
    parts = []
    for index in range(len(fitted.seeds)):
        # A new cell starts from the middle of those that the network was trained with.
        new = fitted.twin_of(index).centred()
        own = fit(new, first, method=METHOD, loss=model.loss, trainable="per_run", progress=False)
        parts.append(scores_of(own, test, **count))
    stacked = {name: [row for part in parts for row in getattr(part, name)] for name in ("mae", "dtw", "failed")}
    return dataclasses.replace(parts[0], **stacked)


def baselines(found: Sequence[Pair]) -> dict[str, Scores]:
    """Constant, persistence and the untouched physics."""
    first, test = runs_of([pair.first for pair in found]), runs_of([pair.next for pair in found])
    means = {run.group: constant([run]) for run in first.runs}
    last = {run.group: persistence(run) for run in first.runs}
    return {
        "constant": scores_of_rule(lambda run: means[run.group](run), test),
        "persistence": scores_of_rule(lambda run: last[run.group](run), test),
        "physics": scores_of(plain_physics(), test),
    }


def calibrate(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of all models, seen and unseen."""
    found = pairs(cells)
    groups = {pair.cell: pair.group for pair in found}
    data = runs_of([pair.first for pair in found]).fingerprint()
    rows: list[dict[str, Any]] = []

    def remembered(name: str, settings: list, compute: Callable[[], Scores]) -> Scores:
        made = kept(store, f"battery-calibrate-{name}", [data, seeds, *settings], lambda: vars(compute()))
        return Scores(**made)

    for name, scores in baselines(found).items():
        if name in models:
            for seen in ("seen", "unseen"):
                rows += rows_of("calibrate", seen, name, scores, groups)
    chosen = {name: model for name, model in MODELS.items() if name in models}
    for name, model in chosen.items():
        settings = [str(model.method), str(model.loss)]
        with unless_left(store):
            tell(f"battery calibrate: {name}, seen cells")
            seen = remembered(name, [*settings, "seen"], lambda model=model: on_seen(model, found, seeds))
            rows += rows_of("calibrate", "seen", name, seen, groups)
    for name, model in chosen.items():
        settings = [str(model.method), str(model.loss)]
        with unless_left(store):
            parts = []
            for index, (others, these) in enumerate(folds(found, FOLDS)):
                tell(f"battery calibrate: {name}, unseen cells, fold {index + 1} of {FOLDS}")
                parts.append(
                    remembered(
                        name,
                        [*settings, "unseen", "centred", index, FOLDS],
                        lambda model=model, others=others, these=these: on_unseen(model, others, these, seeds),
                    )
                )
            rows += rows_of("calibrate", "unseen", name, Scores.joined(parts), groups)
    return rows


def changed_cells(cells: Cells) -> list[dict[str, Any]]:
    """Cells whose capacity changes by itself between the two discharges: nothing could have predicted that."""
    return [
        {
            "cell": pair.cell,
            "group": pair.group or "other",
            "first_Ah": pair.first.charge,
            "next_Ah": pair.next.charge,
            "change": pair.next.charge / pair.first.charge - 1,
        }
        for pair in pairs(cells)
        if abs(pair.next.charge / pair.first.charge - 1) > CHANGED
    ]


def reference_pairs(cells: Cells) -> list[Pair]:
    """The first and second reference discharge of each randomized-usage cell."""
    return first_two(cells.collection.select(kind="reference", clean=True), lambda discharge: discharge.cell)


def on_references(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """From the first to the second reference discharge of a randomized-usage cell, each cell by itself."""
    rows: list[dict[str, Any]] = []
    for pair in reference_pairs(cells):
        groups = {pair.cell: pair.group}
        for name, scores in baselines([pair]).items():
            if name in models:
                rows += rows_of("calibrate", "seen", name, scores, groups, every=False)
        for name, model in MODELS.items():
            if name not in models:
                continue
            tell(f"battery calibrate: {name}, {pair.cell}")
            settings = [pair.cell, seeds, str(model.method), str(model.loss), runs_of([pair.first]).fingerprint()]
            with unless_left(store):
                made = kept(
                    store,
                    f"battery-reference-{name}",
                    settings,
                    lambda model=model, pair=pair: vars(on_seen(model, [pair], seeds)),
                )
                rows += rows_of("calibrate", "seen", name, Scores(**made), groups, every=False)
    return rows
