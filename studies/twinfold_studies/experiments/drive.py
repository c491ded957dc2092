"""Drive cycles of a Panasonic 18650PF cell: equivalent circuits, alone and with a learned residual, in free runs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, INK, subplots
from twinfold.report import format_number
from twinfold_studies.bench.cache import Skipped, cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.drive.models import Design
from twinfold_studies.drive.records import FOLDER
from twinfold_studies.drive.scores import PUBLISHED, score_baselines, score_model, validate
from twinfold_studies.real.location import find_real
from twinfold_studies.real.sources import folder_fingerprint

SEEDS = 5
CIRCUITS = [
    Design(knots=knots, kinetics=kinetics)
    for knots in ("7 knots", "10 knots")
    for kinetics in ("linear", "butler-volmer")
]
DESIGNS: dict[str, Sequence[Design]] = {
    "circuit, 1 RC": [dataclasses.replace(each, pairs=1) for each in CIRCUITS],
    "circuit, 2 RC": CIRCUITS,
    "circuit twin": [
        Design(knots="7 knots", width=width, l2=l2) for width, l2 in ((6, 1e-6), (12, 1e-6), (6, 1e-5), (12, 1e-5))
    ],
}
CAPTION = (
    "One free run over each whole cycle, at ten rows a second or one (rate_hz), state of charge counted from full. "
    "Trained on Cycle_1 to Cycle_4 and NN at 25 degrees. temperature: that of the cell, measured or predicted from the "
    "load and the chamber. Medians over seeds. published_rmse_mv: a hybrid in print, from windows of 1024 samples with "
    "the state of charge given, trained on a cycle that is not among these records."
)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Choose the designs on held-out training cycles, fit, and open the test cycles."""
    try:
        folder = find_real(FOLDER, options.data)
    except FileNotFoundError as error:
        raise Skipped("drive", str(error)) from None
    files = folder_fingerprint(folder)
    quick = options.quick
    rows = cached(store, "drive-baselines", [files, quick], lambda: score_baselines(folder, quick))
    designs: list[dict[str, Any]] = []
    for model, candidates in DESIGNS.items():
        with record_skips(store):
            tried = candidates[:1] if quick else candidates
            errors = []
            for design in tried:
                log(f"drive: {model}, {describe_design(design)}")
                settings = [files, dataclasses.asdict(design), quick]
                errors.append(cached(store, "drive-design", settings, lambda d=design: validate(folder, d, quick)))
            best = int(np.argmin(errors))
            designs += [
                {
                    "model": model,
                    "design": describe_design(design),
                    "validation_rmse_mv": error,
                    "chosen": index == best,
                }
                for index, (design, error) in enumerate(zip(tried, errors, strict=True))
            ]
            chosen, seeds = tried[best], (options.seeds or SEEDS) if tried[best].width else 1
            settings = [files, model, dataclasses.asdict(chosen), seeds, quick]
            rows += cached(
                store,
                "drive-model",
                settings,
                lambda m=model, d=chosen, s=seeds: score_model(folder, m, d, s, quick, log),
            )
    table = medians(rows)
    return Findings(
        sentences(table),
        [
            Table("drive", "Voltage errors of free runs", table, caption=CAPTION, digits=3),
            Table("designs", "Designs, and their errors on training cycles that were held out", designs, digits=3),
            Table("seeds", "All seeds", [{k: v for k, v in row.items() if k != "course"} for row in rows], digits=3),
        ],
        [
            Picture(
                "courses",
                "Voltage of the test cycles at ten rows a second",
                "Points: measured. Lower row: predicted minus measured, with the temperature predicted.",
                lambda: draw_courses(rows),
            )
        ],
    )


def describe_design(design: Design) -> str:
    residual = f", residual of width {design.width}, l2 {design.l2:g}" if design.width else ""
    return f"{design.knots}, {design.kinetics}{residual}"


def medians(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each cycle, model and source of the temperature, with the median over seeds."""
    keys = ("cycle", "temperature_c", "model", "temperature")
    grouped: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(tuple(row[key] for key in keys), []).append(row)
    order = {key[:2]: index for index, key in enumerate(dict.fromkeys(key[:2] for key in grouped))}
    return [
        dict(zip(keys, key, strict=True))
        | {
            "rmse_mv": float(np.median([row["rmse_mv"] for row in found])),
            "mae_mv": float(np.median([row["mae_mv"] for row in found])),
            "published_rmse_mv": PUBLISHED.get((key[0], key[1]), float("nan")),
            "rate_hz": found[0]["rate_hz"],
            "seeds": len(found),
            "failures": sum(row["failed"] for row in found),
        }
        for key, found in sorted(grouped.items(), key=lambda item: order[item[0][:2]])
    ]


def sentences(table: Sequence[Mapping[str, Any]]) -> list[str]:
    """The models of each published cycle in the order of their error."""
    found = []
    for cycle, celsius in PUBLISHED:
        here = [row for row in table if (row["cycle"], row["temperature_c"]) == (cycle, celsius)]
        if here:
            ordered = sorted(here, key=lambda row: row["rmse_mv"])
            listed = ", ".join(
                f"{row['model']}"
                + ("" if row["temperature"] == "none" else f" (T {row['temperature']})")
                + f" {format_number(row['rmse_mv'], 3)}"
                for row in ordered
            )
            found.append(f"{cycle} at {celsius} C: RMSE [mV] {listed}; published {PUBLISHED[cycle, celsius]}.")
    return found


def draw_courses(rows: Sequence[Mapping[str, Any]]) -> Any:
    shown = [row for row in rows if row["rate_hz"] == 10 and row["seed"] == 0 and row["temperature"] == "predicted"]
    names = list(dict.fromkeys((row["cycle"], row["temperature_c"]) for row in shown))
    with subplots(2, max(len(names), 1), width=max(4.2 * len(names), 6.0), height=2.4) as (figure, axes):
        for index, name in enumerate(names):
            above, below = axes[index], axes[index + len(names)]
            for colour, row in enumerate(r for r in shown if (r["cycle"], r["temperature_c"]) == name):
                ts, measured, error = (np.array(each, float) for each in row["course"])
                if colour == 0:
                    above.plot(ts / 60, measured, ".", color=INK, markersize=2)
                above.plot(ts / 60, measured + error / 1e3, color=COLOURS[colour], linewidth=0.7)
                below.plot(ts / 60, error, color=COLOURS[colour], linewidth=0.7, label=row["model"])
            above.set_title(f"{name[0]}, {name[1]} C")
            above.set_ylabel("V")
            below.set_ylabel("error / mV")
            below.set_xlabel("minutes")
            below.legend(fontsize=7)
        return figure


DRIVE = Experiment(
    "drive",
    "Drive cycles of a lithium-ion cell",
    "Equivalent circuits of a Panasonic 18650PF cell, alone and with a learned residual, over unseen drive cycles and "
    "temperatures.",
    full=Options(seeds=SEEDS),
    quick=Options(seeds=1),
    requests=lambda options: [],
    analyse=analyse,
)
