"""Case Study 1: the battery, on NASA's cells where they are, on a synthetic fleet where they are not."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from twinfold.report import number
from twinfold_studies.battery.ageing import ageing
from twinfold_studies.battery.calibrate import calibrate, changed_cells, on_references, shared_fit
from twinfold_studies.battery.cells import GROUPS, Cells, open_cells, pairs
from twinfold_studies.battery.efficiency import efficiency
from twinfold_studies.battery.figures import learned_interaction, voltage_courses
from twinfold_studies.battery.models import MODELS, SCALARS
from twinfold_studies.battery.paper import as_in_the_paper, split
from twinfold_studies.battery.showcase import courses
from twinfold_studies.battery.speed import speed
from twinfold_studies.battery.transfer import random_walk, square_waves
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves, dots
from twinfold_studies.bench.kept import kept, unless_left
from twinfold_studies.bench.store import Store

PROTOCOLS = ("paper", "calibrate", "transfer", "efficiency", "ageing")
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
SHOWN_SEEDS = 3  # of the pictures
CAPTION = (
    "Voltage MAE in volt. mae_median: over cells, of the mean over seeds. cells_seen: whether the network was trained "
    "on other discharges of the same cells. Constant and persistence use the cell's own last discharge either way."
)


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """Every protocol that is asked for; one summary of all."""
    cells = open_cells(options.data)
    tell(f"battery: {cells.source}, {len(cells.collection.cells)} cells")
    asked = (cells, store, options.models, options.seeds, tell)
    rows: list[dict[str, Any]] = []
    words = [_cells_in_words(cells)]
    tables: list[Table] = []
    pictures: list[Picture] = []
    if "paper" in options.protocols:
        rows += as_in_the_paper(*asked)
        train, test = split(cells)
        words.append(
            f"Protocol paper: {len(train)} discharges of {len({d.cell for d in train})} cells to train on, "
            f"{len(test)} of {len({d.cell for d in test})} other cells to test on."
        )
    if "calibrate" in options.protocols:
        rows += calibrate(*asked) + on_references(*asked)
        tables.append(Table("changed", "Cells that change by themselves", changed_cells(cells)))
        with unless_left(store):
            timed = kept(store, "battery-speed", [cells.source, str(MODELS["hrpinn"].method)], lambda: speed(cells))
            tables.append(Table("speed", "Time on this machine, and the paper's on its own", timed))
    if "transfer" in options.protocols:
        walked, said = random_walk(*asked)
        rows += walked + square_waves(*asked)
        words += said
    if "efficiency" in options.protocols:
        varied = efficiency(*asked)
        tables.append(Table("efficiency", "Error against cells and weights, unseen cells", varied))
        if varied:
            pictures.append(_efficiency_picture(varied))
    words += _sentences(rows)
    if rows:
        tables.insert(0, Table("summary", f"All protocols ({cells.source})", rows, caption=CAPTION))
        pictures.insert(0, _groups_picture(rows, cells))
    if "calibrate" in options.protocols:
        with unless_left(store):
            pictures += _course_pictures(cells, store, min(options.seeds, SHOWN_SEEDS))
    tables.append(Table("flags", "Quality of the discharges", _flag_rows(cells)))
    if "ageing" in options.protocols:
        with unless_left(store):
            made_of = [str(MODELS["hrpinn"].method), str(MODELS["hrpinn"].loss), SCALARS]
            found = ageing(cells, lambda: shared_fit(MODELS["hrpinn"], pairs(cells), 1), store, tell, made_of=made_of)
            words += found.words
            tables += found.tables
            pictures += found.pictures
    return Findings(words, tables, pictures)


def _cells_in_words(cells: Cells) -> str:
    clean = cells.collection.select(kind="cycle", clean=True, first=2)
    first = cells.collection.select(kind="cycle", first=2)
    return (
        f"Data: {cells.source}. {len(clean)} of the {len(first)} first two discharges carry no flag "
        f"({len(clean.cells)} of {len(first.cells)} cells)."
    )


def _flag_rows(cells: Cells) -> list[dict[str, Any]]:
    first = cells.collection.select(first=2)
    named = {"all": cells.collection.counts(), "first two": first.counts()}
    return [
        {"flag": name} | {f"{which} discharges": counts.get(name, 0) for which, counts in named.items()}
        for name in named["all"]
    ]


def _sentences(rows: Sequence[dict[str, Any]]) -> list[str]:
    """For each protocol and group the median of each model, lowest first: whoever wins."""
    said = []
    for key in dict.fromkeys((r["protocol"], r["cells_seen"], r["group"]) for r in rows):
        here = [r for r in rows if (r["protocol"], r["cells_seen"], r["group"]) == key]
        ordered = sorted(here, key=lambda r: r["mae_median"])
        listed = ", ".join(f"{r['model']} {number(r['mae_median'])}" for r in ordered)
        said.append(f"{key[0]}, {key[1]} cells, {key[2]}: median MAE {listed}.")
    return said


def _groups_picture(rows: Sequence[dict[str, Any]], cells: Cells) -> Picture:
    panels: dict[str, dict] = {}
    for row in rows:
        if row["protocol"] == "calibrate" and row["cells_seen"] == "unseen" and row["group"] in (*GROUPS, "all"):
            panels.setdefault(row["group"], {})[row["model"]] = np.array([row["mae_median"]])
    for row in rows:
        if row["protocol"].startswith("transfer"):
            panels.setdefault(f"{row['group']}, {row['protocol']}", {})[row["model"]] = np.array([row["mae_median"]])
    return Picture(
        "groups",
        f"Median voltage MAE by group, next discharge of unseen cells ({cells.source})",
        "Calibrated on the first clean discharge of a cell; transfer: the random walk and square waves.",
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


def _course_pictures(cells: Cells, store: Store, seeds: int) -> list[Picture]:
    settings = [cells.source, seeds, str(MODELS["hrpinn"].loss), str(MODELS["hrpinn"].method)]
    made = kept(store, "battery-courses", settings, lambda: courses(cells, seeds))
    return [
        Picture(
            "courses",
            f"The next discharge of one cell of each group ({cells.source})",
            "Points: measured. Below: predicted minus measured.",
            lambda: voltage_courses(made["cells"]),
        ),
        Picture(
            "interaction",
            f"V_INT of the positive electrode: expansion and what was learned ({cells.source})",
            "At 2 A and 25 degrees; a line for each seed. Grey: beyond the mole fractions that the data reach.",
            lambda: learned_interaction(made["interaction"]),
        ),
    ]


BATTERY = Experiment(
    "battery",
    "Case Study 1: the battery",
    "A partially observed DAE on NASA's cells: the paper's protocol, calibration, transfer to other loads, ageing.",
    full=Options(models=ALL_MODELS, seeds=25, protocols=PROTOCOLS),
    quick=Options(models=QUICK_MODELS, seeds=1, protocols=("transfer",)),
    wanted=lambda options: [],
    find=find,
    models=ALL_MODELS,
    protocols=PROTOCOLS,
)
