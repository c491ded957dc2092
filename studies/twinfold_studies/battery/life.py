"""Protocol `life`: the next discharge and the remaining life, over the lives of all cells.

The network is trained on the first discharges of other cells, the scalars of a cell come from its own first discharge.
After every discharge q_max and R_o are re-estimated; from then on nothing but load, temperature and the first voltage
of the next discharge is known.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.identify import predict_next
from twinfold.model import Twin
from twinfold.train import fit
from twinfold_studies.battery.calibrate import CHECKPOINTS, METHOD, fit_settings, model_runs, shared_fit
from twinfold_studies.battery.capacity import capacities, standard_load
from twinfold_studies.battery.cells import SAMPLE_INTERVAL, Cells, Pair, folds, load_group, pairs, runs_of
from twinfold_studies.battery.lives import REESTIMATED, long_lives
from twinfold_studies.battery.models import HEATED, MODELS, Model
from twinfold_studies.battery.monitoring import HEALTHY
from twinfold_studies.battery.remaining import remaining_rows, steady_stretch, summarise_remaining
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import dots
from twinfold_studies.bench.store import Store
from twinfold_studies.nasa import Discharge

FOLDS = 3  # of the cells: each network is trained on two thirds of them
MODEL = "hrpinn"
KINDS = ("measured", "predicted")  # how the temperature of the cell is known
# The settings of `predict_next` were chosen on these, with the temperature measured; the others were opened afterwards.
CHOSEN_ON = tuple(f"B00{cell}" for cell in ("05", "06", 18, 31, 32, 33, 34, 36, 38, 39, 47))
LONG_REST = 24.0  # h, from the start of one discharge to that of the next
NEW_LOAD = 0.1  # A
VARIANTS = {
    "persistence": "last",
    "twin_updated": "updated",
    "persistence_drift": "last+drift",
    "twin_carried": "carried",
    "twin_carried_drift": "carried+drift",
    "combined": "combined",
}
CAPTION = (
    "Mean absolute error of the voltage of the next discharge in V, median over the life of a cell (rows `all`: over "
    "cells). persistence: the last discharge at the same charge. twin_updated: q_max and R_o re-estimated on the last "
    "discharge. twin_carried: with what it left over there, at the same charge. _drift: with the change of q_max and "
    "R_o that is expected from the changes so far. combined: of the four, by their earlier errors on this cell. _mean: "
    "mean over the life; _rest: mean after 24 hours or more since the last discharge, over all `rests`; _load: mean "
    "where the load is another one than in the last discharge. chosen_on: the settings were chosen with this cell in "
    "view."
)
REMAINING = (
    "Cycles until the measured capacity stays below the threshold (three in a row), and the prediction from the "
    "capacities up to `cycle`: `estimated` by the twin, or `measured`. Thresholds are shares of the capacity in cycles "
    "1-10, and 1.4 Ah; moments are shares of this life, or, where the record ends before the threshold is reached, "
    "of the record: then `true` is a lower bound, and `covered` says that the interval does not end before it. "
    "line: the straight line through all capacities. Only cycles under one load at one temperature."
)
Rows = list[dict[str, Any]]


def life(cells: Cells, store: Store, log: Callable[[str], None]) -> Findings:
    """Next discharges and remaining lives of all cells with enough clean discharges."""
    lives = long_lives(cells)
    if not lives:
        return Findings(["Protocol life: no cell has enough discharges."], [])
    found = follow_lives(cells, lives, store, log)
    rows = [
        next_row(cell, kind, lives[cell], each)
        for kind, cells_found in found.items()
        for cell, each in cells_found.items()
    ]
    rows += total_rows(rows)
    remaining: Rows = []
    for cell, each in found["measured"].items():
        log(f"battery life: remaining life of {cell}")
        with record_skips(store):
            remaining += cached(
                store, "battery-life-remaining", [cell, each], lambda c=cell, e=each: _remaining(c, lives[c], e)
            )
    tables = [
        Table("life", f"The next discharge over the life of a cell ({cells.source})", rows, caption=CAPTION),
        Table("remaining_life", f"Remaining life to any threshold ({cells.source})", remaining, caption=REMAINING),
    ]
    return Findings(
        [*_sentences(rows, cells), *summarise_remaining(remaining)], tables, [_picture(rows, cells)] if rows else []
    )


def follow_lives(
    cells: Cells, lives: Mapping[str, Sequence[Discharge]], store: Store, log: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """What `_follow` finds of each cell, for each kind of temperature; what another process computes is left out."""
    found: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        model = (HEATED if kind == "predicted" else MODELS)[MODEL]
        found[kind] = {}
        for index, (others, these) in enumerate(folds(pairs(cells), FOLDS)):
            own = {pair.cell: lives[pair.cell] for pair in these if pair.cell in lives}
            data = runs_of([each for one in own.values() for each in one]).fingerprint()
            trained = runs_of([pair.first for pair in others]).fingerprint()
            settings = [trained, data, *fit_settings(model), FOLDS]

            def compute(model: Model = model, others: Sequence[Pair] = others, own: Any = own) -> dict[str, Any]:
                network = shared_fit(model, others, 1, store.folder / CHECKPOINTS).twin
                return _follow(model, network.centred(), own, log)

            log(f"battery life: temperature {kind}, fold {index + 1} of {FOLDS}: {', '.join(own)}")
            with record_skips(store):
                found[kind] |= cached(store, f"battery-life-{kind}", settings, compute)
    return found


def _follow(
    model: Model, network: Twin, lives: Mapping[str, Sequence[Discharge]], log: Callable[[str], None]
) -> dict[str, Any]:
    """For each cell the errors of all variants, and the capacity estimated from each discharge, with its error."""
    first = model_runs(model, [each[0] for each in lives.values()], interval=SAMPLE_INTERVAL)
    twin = fit(network, first, method=METHOD, loss=model.loss, trainable="per_run", progress=False).twin
    found = {}
    for cell, discharges in lives.items():
        data = voltage_only(model_runs(model, discharges))
        seen = predict_next(twin, data, REESTIMATED, along="current", rest=hours_between(discharges))
        found[cell] = {name: seen.errors[key][:, 0].tolist() for name, key in VARIANTS.items()}
        if not model.heated:
            found[cell] |= _capacities(twin, discharges, data, seen.estimates.change, seen.estimates.covariance)
        log(f"battery life: {cell}, {len(discharges)} discharges, combined {np.median(found[cell]['combined']):.4f} V")
    return found


def _capacities(
    twin: Twin, discharges: Sequence[Discharge], data: Dataset, change: np.ndarray, covariance: np.ndarray
) -> dict[str, list[float]]:
    """Capacity and standard error of each discharge, under the load that the remaining life is judged at."""
    # The longest of the first ones: the load has to reach the end of any discharge that follows.
    start_of_stretch = steady_stretch(discharges).start
    first = discharges[start_of_stretch : start_of_stretch + HEALTHY]
    standard = standard_load(twin, [max(first, key=lambda each: each.charge)])
    start = np.array([run.y[0, 0] for run in data.runs])
    values = capacities(twin, standard, np.zeros(len(start), int), start, REESTIMATED, change, covariance)
    return {name: each.tolist() for name, each in zip(("estimated_Ah", "estimated_error"), values, strict=True)}


def voltage_only(data: Dataset) -> Dataset:
    """The same runs without the temperatures that were measured after the first one: the voltage alone is compared."""
    if len(data.output_names) == 1:
        return data
    runs = []
    for run in data.runs:
        y = run.y.copy()
        y[1:, 1] = np.nan
        runs.append(dataclasses.replace(run, y=y))
    return dataclasses.replace(data, runs=tuple(runs))


def hours_between(discharges: Sequence[Discharge]) -> np.ndarray | None:
    """Hours from the start of the last discharge to that of each, 0 for the first; None if the logs do not say."""
    starts = [each.start for each in discharges]
    known = [start for start in starts if start is not None]
    if len(known) < len(starts):
        return None
    seconds = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(known)]
    return np.maximum(np.array([0.0, *seconds]) / 3600, 0.0)


def next_row(cell: str, kind: str, discharges: Sequence[Discharge], found: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a cell in the table of next discharges."""
    errors = {name: np.array(found[name]) for name in VARIANTS}
    loads = np.array([each.load_current for each in discharges])
    new_load = np.abs(np.diff(loads)) > NEW_LOAD
    hours = hours_between(discharges)
    rested = np.zeros(len(new_load), bool) if hours is None else (hours[1:] > LONG_REST) & ~new_load
    row = {
        "cell": cell,
        "group": load_group(discharges[0]) or "other",
        "temperature": kind,
        "chosen_on": cell in CHOSEN_ON,
        "discharges": len(new_load),
    }
    row |= {name: float(np.median(each)) for name, each in errors.items()}
    row |= {f"{name}_mean": _mean(errors[name]) for name in ("persistence", "combined")}
    row |= {"rests": int(rested.sum())}
    row |= {f"{name}_rest": _mean(errors[name][rested]) for name in ("persistence", "combined")}
    row |= {"new_loads": int(new_load.sum())}
    return row | {
        f"{name}_load": _mean(errors[name][new_load])
        for name in ("persistence", "twin_updated", "twin_carried", "combined")
    }


def total_rows(rows: Rows) -> Rows:
    """Medians over all cells, and over those on which nothing was chosen; means after rests and at new loads."""
    totals = []
    for kind in dict.fromkeys(row["temperature"] for row in rows):
        for name, chosen in (("all", (True, False)), ("all not chosen on", (False,))):
            here = [row for row in rows if row["temperature"] == kind and row["chosen_on"] in chosen]
            if not here:
                continue
            total: dict[str, Any] = dict(here[0]) | {
                "cell": name,
                "group": f"{len(here)} cells",
                "chosen_on": len(chosen) == 2,
            }
            for column in here[0]:
                values = [row[column] for row in here]
                if column in ("discharges", "rests", "new_loads"):
                    total[column] = sum(values)
                elif column.endswith(("_rest", "_load")):
                    counts = [row["rests" if column.endswith("_rest") else "new_loads"] for row in here]
                    pairs_ = [(count, value) for count, value in zip(counts, values, strict=True) if count]
                    total[column] = float(np.average(*_columns(pairs_))) if pairs_ else float("nan")
                elif isinstance(values[0], float):
                    total[column] = float(np.median(values))
            totals.append(total)
    return totals


def _columns(pairs_: Sequence[tuple[int, float]]) -> tuple[list[float], None, list[int]]:
    """Arguments of `np.average`: values, axis, weights."""
    return [value for _, value in pairs_], None, [count for count, _ in pairs_]


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _remaining(cell: str, discharges: Sequence[Discharge], found: Mapping[str, Any]) -> Rows:
    steady = steady_stretch(discharges)
    measured = np.array([each.capacity for each in discharges])[steady]
    estimated, error = (np.array(found[name])[steady] for name in ("estimated_Ah", "estimated_error"))
    return remaining_rows(cell, measured, {"measured": (measured, None), "estimated": (estimated, error)})


def _sentences(rows: Rows, cells: Cells) -> list[str]:
    sentences = []
    for row in rows:
        if row["cell"].startswith("all"):
            errors = ", ".join(f"{name} {row[name]:.4f}" for name in VARIANTS)
            sentences.append(
                f"Protocol life ({cells.source}), {row['cell']}, {row['group']}, T {row['temperature']}: median error "
                f"of the next discharge {errors} V; after {row['rests']} rests over {LONG_REST:g} h persistence "
                f"{row['persistence_rest']:.4f}, combined {row['combined_rest']:.4f} V."
            )
    return sentences


def _picture(rows: Rows, cells: Cells) -> Picture:
    panels: dict[str, dict[str, np.ndarray]] = {}
    for kind in dict.fromkeys(row["temperature"] for row in rows):
        here = [row for row in rows if row["temperature"] == kind and not row["cell"].startswith("all")]
        panels[f"temperature {kind}"] = {name: np.array([row[name] for row in here]) for name in VARIANTS}
    return Picture(
        "life",
        f"The next discharge over the life of a cell ({cells.source})",
        "One dot per cell: the median over its life.",
        lambda: dots(panels, "median MAE / V"),
    )
