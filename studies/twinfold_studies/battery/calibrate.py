"""Protocol `calibrate`: estimate the scalars of a cell from its first clean discharge, and predict the next one.

All cells share a network. Seen cells are among its training cells. For unseen cells the network is fixed, and only the
scalars of the cell are estimated.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from twinfold.data import Dataset
from twinfold.model import Twin
from twinfold.systems import fade_outside
from twinfold.train import Fit, LevenbergMarquardt, fit
from twinfold_studies.battery.cells import SAMPLE_INTERVAL, Cells, Pair, first_two, folds, pairs, runs_of, with_ambient
from twinfold_studies.battery.models import MODELS, Model, constant, persistence, plain_physics
from twinfold_studies.battery.scores import Scores, score, score_rows, score_rule
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.fingerprint import code_fingerprint
from twinfold_studies.bench.store import Store
from twinfold_studies.nasa import Discharge

FOLDS = 9
CHECKPOINTS = "checkpoints"  # the folder, within that of the results, of fits under way
METHOD = LevenbergMarquardt(40)  # for the scalars of an unseen cell
MIN_CHANGE = 0.1  # relative change of capacity from one clean discharge to the next that is reported


def model_runs(model: Model, discharges: Sequence[Discharge], *, interval: float = 0.0) -> Dataset:
    """Discharges as runs, with the temperature as an input or, if the model predicts it, as an output."""
    data = runs_of(discharges, interval=interval)
    return with_ambient(data, discharges) if model.heated else data


def shared_fit(model: Model, train: Sequence[Pair], seeds: int, checkpoints: Path | None = None) -> Fit:
    """Fit network and scalars to the first clean discharges of these cells.

    With a folder of `checkpoints`, an interrupted fit continues where it was, and a finished one is read.
    """
    data = model_runs(model, [pair.first for pair in train], interval=SAMPLE_INTERVAL)
    count = seeds if model.random else 1
    options: dict[str, Any] = {"seeds": count, "method": model.method, "loss": model.loss, "progress": False}
    if checkpoints is not None:
        key = [data.fingerprint(), count, *fit_settings(model), repr(model.build(True)), code_fingerprint()]
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        checkpoints.mkdir(parents=True, exist_ok=True)
        options["checkpoint"] = checkpoints / f"battery-{name}.npz"
    return fit(model.build(True), data, **options)


def score_seen(model: Model, pairs: Sequence[Pair], seeds: int, checkpoints: Path | None = None) -> Scores:
    """Fit all cells together, and predict their next discharges."""
    fitted = shared_fit(model, pairs, seeds, checkpoints)
    test = model_runs(model, [pair.next for pair in pairs])
    return score(fitted, test, train_s=fitted.seconds, parameters=fitted.parameters)


def score_unseen(
    model: Model,
    others: Sequence[Pair],
    these: Sequence[Pair],
    seeds: int,
    *,
    fade: bool = False,
    checkpoints: Path | None = None,
) -> Scores:
    """Fit the network to other cells, and only the scalars of these to their first discharges.

    With `fade`, the network fades to the physics outside of what it saw along the discharges of the other cells.
    """
    fitted = shared_fit(model, others, seeds, checkpoints)
    known = model_runs(model, [pair.first for pair in others], interval=SAMPLE_INTERVAL)
    first = model_runs(model, [pair.first for pair in these], interval=SAMPLE_INTERVAL)
    test = model_runs(model, [pair.next for pair in these])
    count = {"train_s": fitted.seconds, "parameters": fitted.parameters}
    if not any(unknown.own for unknown in fitted.twin.unknowns()):
        return score(fitted, test, **count)
    parts = []
    with on_processor() as processor:
        for index in range(len(fitted.seeds)):
            # The scalars of a new cell start from the median of the training cells.
            twin = processor(fitted.twin_of(index))
            new = (fade_outside(twin, known) if fade else twin).centred()
            own = fit(new, first, method=METHOD, loss=model.loss, trainable="per_run", progress=False)
            parts.append(score(own, test, **count))
    stacked = {name: [row for part in parts for row in getattr(part, name)] for name in ("mae", "dtw", "failed")}
    return dataclasses.replace(parts[0], **stacked)


@contextlib.contextmanager
def on_processor() -> Iterator[Callable[[Twin], Twin]]:
    """Compute on the processor: a few scalars of a few cells keep no GPU busy. Yields what moves a twin there."""
    device = jax.devices("cpu")[0]

    def moved(twin: Twin) -> Twin:
        arrays, others = eqx.partition(twin, eqx.is_array)
        return eqx.combine(jax.device_put(arrays, device), others)

    with jax.default_device(device):
        yield moved


def baselines(pairs: Sequence[Pair]) -> dict[str, Scores]:
    """Constant, persistence and the published physics."""
    first, test = runs_of([pair.first for pair in pairs]), runs_of([pair.next for pair in pairs])
    means = {run.group: constant([run]) for run in first.runs}
    last = {run.group: persistence(run) for run in first.runs}
    return {
        "constant": score_rule(lambda run: means[run.group](run), test),
        "persistence": score_rule(lambda run: last[run.group](run), test),
        "physics": score(plain_physics(), test),
    }


def calibrate_baselines(cells: Cells, models: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of the baselines, which are the same for seen and unseen cells."""
    all_pairs = pairs(cells)
    groups = {pair.cell: pair.group for pair in all_pairs}
    return [
        row
        for name, scores in baselines(all_pairs).items()
        if name in models
        for seen in ("seen", "unseen")
        for row in score_rows("calibrate", seen, name, scores, groups)
    ]


def calibrate(
    cells: Cells,
    store: Store,
    models: Sequence[str],
    seeds: int,
    log: Callable[[str], None],
    known: Mapping[str, Model] = MODELS,
) -> list[dict[str, Any]]:
    """The rows of the fitted models, for seen and unseen cells."""
    all_pairs = pairs(cells)
    groups = {pair.cell: pair.group for pair in all_pairs}
    data = runs_of([pair.first for pair in all_pairs]).fingerprint()
    rows: list[dict[str, Any]] = []

    def cached_scores(name: str, settings: list, compute: Callable[[], Scores]) -> Scores:
        scores = cached(store, f"battery-calibrate-{name}", [data, seeds, *settings], lambda: vars(compute()))
        return Scores(**scores)

    chosen = [(name, model) for name, model in known.items() if name in models]
    for name, model in chosen:
        settings = fit_settings(model)
        with record_skips(store):
            log(f"battery calibrate: {name}, seen cells, temperature {model.temperature}")
            seen = cached_scores(
                name,
                [*settings, "seen"],
                lambda model=model: score_seen(model, all_pairs, seeds, store.folder / CHECKPOINTS),
            )
            rows += score_rows("calibrate", "seen", name, seen, groups, temperature=model.temperature)
    for name, model in chosen:
        settings = fit_settings(model)
        parts = []
        for index, (others, these) in enumerate(folds(all_pairs, FOLDS)):
            log(
                f"battery calibrate: {name}, unseen cells, temperature {model.temperature}, fold {index + 1} of {FOLDS}"
            )
            with record_skips(store):
                parts.append(
                    cached_scores(
                        name,
                        [*settings, "unseen", "centred", index, FOLDS],
                        lambda model=model, others=others, these=these: score_unseen(
                            model, others, these, seeds, checkpoints=store.folder / CHECKPOINTS
                        ),
                    )
                )
        if len(parts) == FOLDS:
            joined = Scores.joined(parts)
            rows += score_rows("calibrate", "unseen", name, joined, groups, temperature=model.temperature)
    return rows


def fit_settings(model: Model) -> list[str]:
    """What a stored result depends on beside the data; results with a measured temperature have no entry for it."""
    return [str(model.method), str(model.loss), *(["predicted temperature"] if model.heated else [])]


def changed_cells(cells: Cells) -> list[dict[str, Any]]:
    """Cells whose capacity changes spontaneously between the two discharges, which no model can predict."""
    return [
        {
            "cell": pair.cell,
            "group": pair.group or "other",
            "first_Ah": pair.first.charge,
            "next_Ah": pair.next.charge,
            "change": pair.next.charge / pair.first.charge - 1,
        }
        for pair in pairs(cells)
        if abs(pair.next.charge / pair.first.charge - 1) > MIN_CHANGE
    ]


def reference_pairs(cells: Cells) -> list[Pair]:
    """The first and second reference discharge of each randomized-usage cell."""
    return first_two(cells.collection.select(kind="reference", clean=True), lambda discharge: discharge.cell)


def calibrate_references(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """From the first to the second reference discharge of each randomized-usage cell, fitted separately."""
    rows: list[dict[str, Any]] = []
    for pair in reference_pairs(cells):
        groups = {pair.cell: pair.group}
        for name, scores in baselines([pair]).items():
            if name in models:
                rows += score_rows("calibrate", "seen", name, scores, groups, total=False)
        for name, model in MODELS.items():
            if name not in models:
                continue
            log(f"battery calibrate: {name}, {pair.cell}")
            settings = [pair.cell, seeds, str(model.method), str(model.loss), runs_of([pair.first]).fingerprint()]
            with record_skips(store):
                stored = cached(
                    store,
                    f"battery-reference-{name}",
                    settings,
                    lambda model=model, pair=pair: vars(score_seen(model, [pair], seeds)),
                )
                rows += score_rows("calibrate", "seen", name, Scores(**stored), groups, total=False)
    return rows
