"""Protocol `transfer`: prediction under unseen loads.

The random walk of a randomized-usage cell: fitted to its first reference discharge and three runs of the walk, tested
on the next three. Then fitted to the reference discharge alone, whose constant current does not distinguish the voltage
drop over R_o from V_INT (see `guarded_fit`). Finally square waves, with a network fitted to constant currents.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset, Run
from twinfold.identify import guarded_fit
from twinfold.model import Twin
from twinfold.train import Fit, LevenbergMarquardt, Loss, fit
from twinfold_studies.battery.calibrate import baselines, score_unseen
from twinfold_studies.battery.cells import Cells, first_two, pairs, runs_of
from twinfold_studies.battery.models import MODELS, Model, constant, fitted_physics, plain_physics, residual
from twinfold_studies.battery.scores import Scores, score, score_rows, score_rule
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.store import Store

WALKS = 3  # runs of the walk for training, and as many for testing
INTERVAL = 5.0  # s between samples of a walk
# Chosen on the first three runs of the walk. Without temperature as an input: there is one cell at one temperature.
LOSS = Loss(huber=0.1, l2=1e-5, prior=1e-3)
METHOD = LevenbergMarquardt(80)
OPTIONS: dict[str, Any] = {"method": METHOD, "loss": LOSS, "progress": False}


def walking_cell(cells: Cells) -> tuple[Dataset, Dataset, Dataset] | None:
    """The first reference discharge, training runs and test runs of the first cell that has them."""
    for cell, walks in cells.collection.select(kind="walk").by_cell().items():
        own = walks[: 2 * WALKS]
        reference = list(cells.collection.select(kind="reference", clean=True, cells=[cell]))[:1]
        if len(own) == 2 * WALKS and reference:
            train, test = runs_of(own[:WALKS], interval=INTERVAL), runs_of(own[WALKS:], interval=INTERVAL)
            return runs_of(reference, interval=INTERVAL), train, test
    return None


def expected_loads(cell: str, count: int = 2, seconds: float = 1200.0, celsius: float = 40.0) -> Dataset:
    """Loads that the cell is specified for: 0.5 to 5 A for a minute each, from full charge."""
    random = np.random.default_rng(0)
    ts = np.arange(0.0, seconds + 1, INTERVAL)
    runs = []
    for index in range(count):
        steps = random.choice(np.arange(0.5, 5.01, 0.5), len(ts) // 12 + 1)
        current = np.repeat(steps, 12)[: len(ts)]
        current[0] = 0.0
        w = np.stack([current, np.full(len(ts), celsius)], axis=1)
        runs.append(Run(f"load {index}", ts, np.full(len(ts), 4.2), w, group=cell))
    return Dataset(tuple(runs), ("voltage",), ("current", "temperature"))


def _physics(known: Dataset, seeds: int) -> tuple[Fit, str]:
    del seeds  # nothing is random
    return fit(fitted_physics(True, start="full"), known, **OPTIONS), ""


def _unguarded(known: Dataset, seeds: int) -> tuple[Fit, str]:
    return fit(_twin(), known, seeds=seeds, **OPTIONS), ""


def _guarded(known: Dataset, seeds: int) -> tuple[Fit, str]:
    guarded = guarded_fit(_twin(), known, expected_loads(known.groups[0]), seeds=seeds, **OPTIONS)
    return guarded.fit, guarded.reason


def _twin() -> Twin:
    return residual(True, sees=("x", "i"), start="full")


# Protocol, model, and function that returns the fit and a remark.
FITS = (
    ("transfer", "physics_fitted", _physics),
    ("transfer", "hrpinn", _guarded),
    ("transfer_constant", "physics_fitted", _physics),
    ("transfer_constant", "hrpinn", _guarded),
    ("transfer_constant", "hrpinn_unguarded", _unguarded),
)


def random_walk(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, log: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of the random walk, and the decisions of the guard."""
    data = walking_cell(cells)
    if data is None:
        return [], ["No cell has six runs of a random walk: this part of `transfer` is skipped."]
    reference, walks, test = data
    cell = reference.groups[0]
    groups, rows, sentences = {cell: "random_walk"}, [], []
    both = dataclasses.replace(reference, runs=(*reference.runs, *walks.runs))
    known = {"transfer": both, "transfer_constant": reference}
    plain = {
        "constant": score_rule(constant(both.runs), test),
        "physics": score(plain_physics(), test),
    }
    for name, scores in plain.items():
        if name in models:
            rows += score_rows("transfer", "seen", name, scores, groups, total=False)

    def fit_and_score(fit_model: Callable[[Dataset, int], tuple[Fit, str]], data: Dataset) -> dict[str, Any]:
        fitted, why = fit_model(data, seeds)
        return vars(score(fitted, test, train_s=fitted.seconds, parameters=fitted.parameters)) | {"why": why}

    for protocol, name, fit_model in FITS:
        if name.removesuffix("_unguarded") not in models:
            continue
        log(f"battery {protocol}: {name}, random walk of {cell}")
        settings = [reference.fingerprint(), walks.fingerprint(), test.fingerprint(), seeds, str(METHOD), str(LOSS)]
        with record_skips(store):
            scores = cached(
                store,
                f"battery-{protocol}-{name}",
                settings,
                lambda fit_model=fit_model, data=known[protocol]: fit_and_score(fit_model, data),
            )
            why = scores.pop("why")
            rows += score_rows(protocol, "seen", name, Scores(**scores), groups, total=False)
            if why:
                sentences.append(f"{protocol}, {name}: {why}")
    return rows, sentences


def square_waves(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Cells under square waves: network from cells at constant current, scalars from the first discharge."""
    discharges = cells.collection.select(kind="cycle", flags=["square_wave"], clean=True, allow=["square_wave"])
    these = first_two(discharges, lambda discharge: "square_wave")
    if not these:
        return []
    others, groups = pairs(cells), {pair.cell: pair.group for pair in these}
    rows: list[dict[str, Any]] = []
    for name, scores in baselines(these).items():
        if name in models:
            rows += score_rows("transfer", "unseen", name, scores, groups, total=False)
    for name in ("physics_fitted", "hrpinn"):
        if name not in models:
            continue
        model: Model = MODELS[name]
        log(f"battery transfer: {name}, square waves")
        data = runs_of([pair.first for pair in [*others, *these]]).fingerprint()
        settings = [data, seeds, str(model.method), str(model.loss), "centred"]
        with record_skips(store):
            scores = cached(
                store,
                f"battery-square-{name}",
                settings,
                lambda model=model: vars(score_unseen(model, others, these, seeds)),
            )
            rows += score_rows("transfer", "unseen", name, Scores(**scores), groups, total=False)
    return rows
