"""Case Study 1: the battery, on NASA's cells or, without them, on a synthetic fleet."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinfold.report import format_number
from twinfold_studies.battery.ageing import ageing
from twinfold_studies.battery.calibrate import (
    calibrate,
    calibrate_baselines,
    calibrate_references,
    changed_cells,
    shared_fit,
)
from twinfold_studies.battery.cells import GROUPS, Cells, open_cells, pairs
from twinfold_studies.battery.conditions import conditions
from twinfold_studies.battery.efficiency import efficiency
from twinfold_studies.battery.figures import interaction_curves, voltage_curves
from twinfold_studies.battery.life import life
from twinfold_studies.battery.models import HEATED, MODELS, SCALARS
from twinfold_studies.battery.paper import paper_protocol, split
from twinfold_studies.battery.showcase import showcase
from twinfold_studies.battery.speed import speed
from twinfold_studies.battery.transfer import random_walk, square_waves
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves, dots
from twinfold_studies.bench.store import Store

PROTOCOLS = ("paper", "calibrate", "temperature", "conditions", "transfer", "efficiency", "ageing", "life")
ALL_MODELS = (
    "constant",
    "persistence",
    "physics",
    "physics_fitted",
    "hrpinn",
    "hrpinn_small",
    "hrpinn_large",
    "pinn",
    "node",
    "node_scaled",
)
QUICK_MODELS = ("constant", "persistence", "physics", "physics_fitted", "hrpinn")
FIGURE_SEEDS = 3
CAPTION = (
    "MAE of the voltage in V. mae_median: median over cells of the mean over seeds. cells_seen: whether the network "
    "was trained on other discharges of the same cells. temperature: that of the cell, measured or predicted from the "
    "load and the surroundings. Protocol conditions: trained without all cells of the condition. Constant and "
    "persistence always use the last discharge of the cell."
)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """The findings of the chosen protocols, with one summary."""
    cells = open_cells(options.data)
    log(f"battery: {cells.source}, {len(cells.collection.cells)} cells")
    arguments = (cells, store, options.models, options.seeds, log)
    rows: list[dict[str, Any]] = []
    sentences = [_describe(cells)]
    tables: list[Table] = []
    pictures: list[Picture] = []
    if "paper" in options.protocols:
        rows += paper_protocol(*arguments)
        train, test = split(cells)
        sentences.append(
            f"Protocol paper: {len(train)} discharges of {len({d.cell for d in train})} cells for training, "
            f"{len(test)} of {len({d.cell for d in test})} other cells for testing."
        )
    if "calibrate" in options.protocols:
        rows += calibrate_baselines(cells, options.models) + calibrate(*arguments) + calibrate_references(*arguments)
        tables.append(Table("changed", "Cells whose capacity changes spontaneously", changed_cells(cells)))
        with record_skips(store):
            settings = [cells.source, str(MODELS["hrpinn"].method)]
            timed = cached(store, "battery-speed", settings, lambda: speed(cells), timed=True)
            tables.append(Table("speed", "Time on this machine, and that reported by the paper", timed))
    if "temperature" in options.protocols:
        rows += calibrate(*arguments, HEATED)
    if "conditions" in options.protocols:
        rows += conditions(*arguments)
    if "transfer" in options.protocols:
        walk_rows, verdicts = random_walk(*arguments)
        rows += walk_rows + square_waves(*arguments)
        sentences += verdicts
    if "efficiency" in options.protocols:
        varied = efficiency(*arguments)
        tables.append(Table("efficiency", "Error against cells and weights, unseen cells", varied))
        if varied:
            pictures.append(_efficiency_picture(varied))
    sentences += _ranking(rows)
    if rows:
        tables.insert(0, Table("summary", f"All protocols ({cells.source})", rows, caption=CAPTION))
        pictures.insert(0, _groups_picture(rows, cells))
    if "calibrate" in options.protocols:
        with record_skips(store):
            pictures += _showcase_pictures(cells, store, min(options.seeds, FIGURE_SEEDS))
    tables.append(Table("flags", "Quality of the discharges", _flag_rows(cells)))
    if "ageing" in options.protocols:
        with record_skips(store):
            fit_settings = [str(MODELS["hrpinn"].method), str(MODELS["hrpinn"].loss), SCALARS]
            found = ageing(
                cells,
                lambda: shared_fit(MODELS["hrpinn"], pairs(cells), 1),
                store,
                log,
                fit_settings=fit_settings,
            )
            sentences += found.sentences
            tables += found.tables
            pictures += found.pictures
    if "life" in options.protocols:
        followed = life(cells, store, log)
        sentences += followed.sentences
        tables += followed.tables
        pictures += followed.pictures
    return Findings(sentences, tables, pictures)


def _describe(cells: Cells) -> str:
    clean = cells.collection.select(kind="cycle", clean=True, first=2)
    first = cells.collection.select(kind="cycle", first=2)
    return (
        f"Data: {cells.source}. Of the first two discharges of each cell, {len(clean)} of {len(first)} have no flag "
        f"({len(clean.cells)} of {len(first.cells)} cells)."
    )


def _flag_rows(cells: Cells) -> list[dict[str, Any]]:
    first = cells.collection.select(first=2)
    groups = {"all": cells.collection.counts(), "first two": first.counts()}
    return [
        {"flag": name} | {f"{which} discharges": counts.get(name, 0) for which, counts in groups.items()}
        for name in groups["all"]
    ]


def _ranking(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The models of each protocol and group in the order of their median MAE."""
    sentences = []
    for key in dict.fromkeys((r["protocol"], r["cells_seen"], r["group"]) for r in rows):
        here = [r for r in rows if (r["protocol"], r["cells_seen"], r["group"]) == key]
        ordered = sorted(here, key=lambda r: r["mae_median"])
        listed = ", ".join(f"{_label(r)} {format_number(r['mae_median'])}" for r in ordered)
        sentences.append(f"{key[0]}, {key[1]} cells, {key[2]}: median MAE {listed}.")
    return sentences


def _label(row: dict[str, Any]) -> str:
    return row["model"] + (" (T predicted)" if row["temperature"] == "predicted" else "")


def _groups_picture(rows: Sequence[dict[str, Any]], cells: Cells) -> Picture:
    panels: dict[str, dict] = {}
    for row in rows:
        if row["protocol"] == "calibrate" and row["cells_seen"] == "unseen" and row["group"] in (*GROUPS, "all"):
            panels.setdefault(row["group"], {})[_label(row)] = np.array([row["mae_median"]])
    for row in rows:
        if row["protocol"].startswith("transfer"):
            panels.setdefault(f"{row['group']}, {row['protocol']}", {})[row["model"]] = np.array([row["mae_median"]])
    return Picture(
        "groups",
        f"Median voltage MAE by group, next discharge of unseen cells ({cells.source})",
        "Calibrated on the first clean discharge of each cell; transfer: random walk and square waves.",
        lambda: dots(panels, "MAE / V"),
    )


def _efficiency_picture(rows: Sequence[dict[str, Any]]) -> Picture:
    def draw() -> Any:
        panels: dict[str, dict] = {}
        for varied in dict.fromkeys(row["varied"] for row in rows):
            for model in dict.fromkeys(row["model"] for row in rows):
                here = [r for r in rows if (r["varied"], r["model"]) == (varied, model)]
                points = np.array([(r["value"], r["mae_median"]) for r in here]).T
                if len(here):
                    panels.setdefault(f"against {varied}", {})[model] = (points[0], points[1])
        return curves(panels, "number", "median MAE / V", log=(True, True))

    return Picture("efficiency", "Error against training cells and weights", "Unseen cells.", draw)


def _showcase_pictures(cells: Cells, store: Store, seeds: int) -> list[Picture]:
    settings = [cells.source, seeds, str(MODELS["hrpinn"].loss), str(MODELS["hrpinn"].method)]
    data = cached(store, "battery-courses", settings, lambda: showcase(cells, seeds))
    return [
        Picture(
            "courses",
            f"The next discharge of one cell per group ({cells.source})",
            "Points: measured voltage. Lower row: predicted minus measured.",
            lambda: voltage_curves(data["cells"]),
        ),
        Picture(
            "interaction",
            f"V_INT of the positive electrode, published expansion and learned ({cells.source})",
            "At 2 A and 25 degrees; one line per seed. Grey: mole fractions outside the data.",
            lambda: interaction_curves(data["interaction"]),
        ),
    ]


BATTERY = Experiment(
    "battery",
    "Case Study 1: the battery",
    "A partially observed DAE on NASA's cells: the protocol of the paper, calibration, transfer to other loads, "
    "ageing.",
    full=Options(models=ALL_MODELS, seeds=25, protocols=PROTOCOLS),
    quick=Options(models=QUICK_MODELS, seeds=1, protocols=("transfer",)),
    requests=lambda options: [],
    analyse=analyse,
    models=ALL_MODELS,
    protocols=PROTOCOLS,
)
