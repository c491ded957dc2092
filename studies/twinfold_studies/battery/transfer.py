"""Protocol `transfer`: loads that were never seen.

The random walk of a randomized-usage cell: trained on its first reference discharge and three runs of the walk, tested
on the next three; and the trap, trained on the reference discharge at constant current alone, where the drop over R_o
and the potential V_INT look the same (see `twinfold.identify.guard`). And square waves, after constant currents.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset, Run
from twinfold.identify import guarded_fit
from twinfold.model import Twin
from twinfold.train import Fit, LevenbergMarquardt, Loss, fit
from twinfold_studies.battery.calibrate import baselines, on_unseen
from twinfold_studies.battery.cells import Cells, first_two, pairs, runs_of
from twinfold_studies.battery.models import MODELS, Model, constant, fitted_physics, plain_physics, residual
from twinfold_studies.battery.scores import Scores, rows_of, scores_of, scores_of_rule
from twinfold_studies.bench.kept import kept, unless_left
from twinfold_studies.bench.store import Store

WALKS = 3  # runs of the walk to train on, and as many to test on
EVERY = 5.0  # s between samples of a walk
# Chosen on the first three runs of the walk alone, and for one cell at one temperature: it sees no T.
LOSS = Loss(huber=0.1, l2=1e-5, prior=1e-3)
METHOD = LevenbergMarquardt(80)
OPTIONS: dict[str, Any] = {"method": METHOD, "loss": LOSS, "progress": False}


def walking_cell(cells: Cells) -> tuple[Dataset, Dataset, Dataset] | None:
    """The first reference discharge, the runs to train on and those to test on, of the first cell that has them."""
    for cell, walks in cells.collection.select(kind="walk").by_cell().items():
        own = walks[: 2 * WALKS]
        reference = list(cells.collection.select(kind="reference", clean=True, cells=[cell]))[:1]
        if len(own) == 2 * WALKS and reference:
            train, test = runs_of(own[:WALKS], every=EVERY), runs_of(own[WALKS:], every=EVERY)
            return runs_of(reference, every=EVERY), train, test
    return None


def expected_loads(cell: str, count: int = 2, seconds: float = 1200.0, celsius: float = 40.0) -> Dataset:
    """Loads that the cell is going to meet, by its data sheet: 0.5 to 5 A for a minute each, from full charge."""
    random = np.random.default_rng(0)
    ts = np.arange(0.0, seconds + 1, EVERY)
    runs = []
    for index in range(count):
        steps = random.choice(np.arange(0.5, 5.01, 0.5), len(ts) // 12 + 1)
        current = np.repeat(steps, 12)[: len(ts)]
        current[0] = 0.0
        w = np.stack([current, np.full(len(ts), celsius)], axis=1)
        runs.append(Run(f"load {index}", ts, np.full(len(ts), 4.2), w, group=cell))
    return Dataset(tuple(runs), ("voltage",), ("current", "temperature"))


def _physics(known: Dataset, seeds: int) -> tuple[Fit, str]:
    del seeds  # nothing in it is drawn
    return fit(fitted_physics(True, start="full"), known, **OPTIONS), ""


def _unguarded(known: Dataset, seeds: int) -> tuple[Fit, str]:
    return fit(_twin(), known, seeds=seeds, **OPTIONS), ""


def _guarded(known: Dataset, seeds: int) -> tuple[Fit, str]:
    found = guarded_fit(_twin(), known, expected_loads(known.groups[0]), seeds=seeds, **OPTIONS)
    return found.fit, found.why


def _twin() -> Twin:
    return residual(True, sees=("x", "i"), start="full")


# Every way of fitting gives the fit and what there is to say of it.
WAYS = (
    ("transfer", "physics_fitted", _physics),
    ("transfer", "hrpinn", _guarded),
    ("transfer_constant", "physics_fitted", _physics),
    ("transfer_constant", "hrpinn", _guarded),
    ("transfer_constant", "hrpinn_unguarded", _unguarded),
)


def random_walk(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, tell: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of the walk and of the trap, and what the guard said."""
    data = walking_cell(cells)
    if data is None:
        return [], ["No cell has six runs of a random walk: that part of `transfer` is left out."]
    reference, walks, test = data
    cell = reference.groups[0]
    groups, rows, said = {cell: "random_walk"}, [], []
    both = dataclasses.replace(reference, runs=(*reference.runs, *walks.runs))
    known = {"transfer": both, "transfer_constant": reference}
    plain = {
        "constant": scores_of_rule(constant(both.runs), test),
        "physics": scores_of(plain_physics(), test),
    }
    for name, scores in plain.items():
        if name in models:
            rows += rows_of("transfer", "seen", name, scores, groups, every=False)

    def scored(way: Callable[[Dataset, int], tuple[Fit, str]], data: Dataset) -> dict[str, Any]:
        found, why = way(data, seeds)
        return vars(scores_of(found, test, train_s=found.seconds, parameters=found.parameters)) | {"why": why}

    for protocol, name, way in WAYS:
        if name.removesuffix("_unguarded") not in models:
            continue
        tell(f"battery {protocol}: {name}, random walk of {cell}")
        settings = [reference.fingerprint(), walks.fingerprint(), test.fingerprint(), seeds, str(METHOD), str(LOSS)]
        with unless_left(store):
            made = kept(
                store,
                f"battery-{protocol}-{name}",
                settings,
                lambda way=way, data=known[protocol]: scored(way, data),
            )
            why = made.pop("why")
            rows += rows_of(protocol, "seen", name, Scores(**made), groups, every=False)
            if why:
                said.append(f"{protocol}, {name}: {why}")
    return rows, said


def square_waves(
    cells: Cells, store: Store, models: Sequence[str], seeds: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Cells under a square wave: the network from cells at constant current, scalars from their first discharge."""
    found = cells.collection.select(kind="cycle", flags=["square_wave"], clean=True, allow=["square_wave"])
    these = first_two(found, lambda discharge: "square_wave")
    if not these:
        return []
    others, groups = pairs(cells), {pair.cell: pair.group for pair in these}
    rows: list[dict[str, Any]] = []
    for name, scores in baselines(these).items():
        if name in models:
            rows += rows_of("transfer", "unseen", name, scores, groups, every=False)
    for name in ("physics_fitted", "hrpinn"):
        if name not in models:
            continue
        model: Model = MODELS[name]
        tell(f"battery transfer: {name}, square waves")
        data = runs_of([pair.first for pair in [*others, *these]]).fingerprint()
        settings = [data, seeds, str(model.method), str(model.loss), "centred"]
        with unless_left(store):
            made = kept(
                store,
                f"battery-square-{name}",
                settings,
                lambda model=model: vars(on_unseen(model, others, these, seeds)),
            )
            rows += rows_of("transfer", "unseen", name, Scores(**made), groups, every=False)
    return rows
