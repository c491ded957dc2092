"""Protocol `ageing`: the residual of the twin of a new cell over the life of the cell.

It gives an alarm when the loss of capacity exceeds a limit, the capacity from parameters that are estimated anew in
every cycle, and the remaining life. All of these use the present and earlier cycles only; the measured capacity serves
for comparison.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.report import format_number
from twinfold.train import Fit
from twinfold_studies.battery import ageing_figures as figures
from twinfold_studies.battery import monitoring
from twinfold_studies.battery.cells import Cells, load_group, runs_of
from twinfold_studies.battery.fleet import healthy_fleet
from twinfold_studies.battery.lives import (
    Lives,
    cycle_features,
    loss_features,
    nominal_twin,
    other_lives,
    reestimated_readings,
    residual_curves,
    studied_lives,
    voltage_residuals,
)
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.nasa import Discharge

HEALTHY_CELLS, HEALTHY_CYCLES = 20, 40  # of the synthetic fleet that does not age
STRICT_RATE = 0.01  # false alarms per cycle if no loss is allowed
FADED = 0.1  # of capacity, before which the alarm should come
Rows = list[dict[str, Any]]


def ageing(
    cells: Cells, nominal: Callable[[], Fit], store: Store, log: Callable[[str], None], *, fit_settings: Any = None
) -> Findings:
    """Alarms, capacity and remaining life of the cells.

    **Arguments:** `cells`; `nominal`, which fits the residual model to first discharges and is called only if results
    are not cached; `store`; `log`; `fit_settings`, the settings of that fit, as part of the key of cached results.
    """
    lives = studied_lives(cells)
    if not lives:
        return Findings(["Protocol ageing: no cell has enough discharges."], [])
    nominal = functools.cache(nominal)
    settings = [fit_settings, runs_of([each for one in lives.values() for each in one]).fingerprint(), monitoring.LOSS]
    log(f"battery ageing: {', '.join(lives)}")
    found = cached(store, "battery-ageing-cells", settings, lambda: _study(nominal, lives))
    log("battery ageing: SYNTHETIC cells without ageing")
    healthy_settings = [fit_settings, HEALTHY_CELLS, HEALTHY_CYCLES, settings[1]]
    healthy = cached(store, "battery-ageing-healthy", healthy_settings, lambda: _healthy(nominal))
    rest = other_lives(cells)
    others: Rows = []
    if rest:
        log(f"battery ageing: alarms of {len(rest)} other cells")
        data = runs_of([each for one in rest.values() for each in one]).fingerprint()
        judged = cached(store, "battery-ageing-others", [fit_settings, data], lambda: _features(nominal, rest))
        others = other_rows(rest, judged)
    log("battery ageing: monitor")
    monitor_settings = [monitoring.RATE, monitoring.SMOOTHING, monitoring.CONFIRM, monitoring.LEVEL]
    rows = {
        cell: cached(
            store,
            f"battery-ageing-{cell}",
            settings + monitor_settings,
            lambda cell=cell: _cycles(lives[cell], found[cell]),
        )
        for cell in lives
    }
    summary = [monitoring.cell_summary(cell, rows[cell], _worn(lives[cell]), found[cell]["lost"]) for cell in lives]
    ahead = [row for cell in lives for row in _ahead(cell, rows[cell], lives[cell], monitoring.SHARES)]
    quiet = false_alarms(summary, healthy)
    tables = [
        Table("ageing", f"Lives of cells and the twin of the new cell ({cells.source})", summary, caption=CAPTION),
        Table("ageing_life", f"Remaining cycles ({cells.source})", ahead, caption=AHEAD),
        Table("false_alarms", "Alarms of healthy cells", quiet, caption=QUIET),
        *(
            [Table("ageing_others", f"Alarms of all other cells ({cells.source})", others, caption=OTHERS)]
            if rest
            else []
        ),
        Table(
            "ageing_cycles",
            f"Every cycle ({cells.source})",
            [{"cell": cell} | row for cell in lives for row in rows[cell]],
            (
                "cell",
                "cycle",
                "shape_0",
                "running",
                "limit",
                "alarm",
                "q_max",
                "R_o",
                "capacity_Ah",
                "estimated_Ah",
                "remaining",
            ),
        ),
    ]
    curves = {cell: found[cell]["curves"] for cell in lives}
    return Findings(summarise(summary, ahead, quiet, others, cells), tables, _pictures(cells, rows, summary, curves))


CAPTION = (
    "rank_*: Spearman's correlation with the measured fade, of the score of a cycle and of the running score (both "
    "from cycle 11 on), and of the level of the residual (all cycles). allowed_*: the residual that a loss of 3 % of "
    "charge would cause, by the sensitivity of the twin. false: alarms at a smaller loss since cycles 1-10. "
    "capacity_error: relative, against the published capacity. life_*: mean over 40 to 95 % of life, relative to it. "
    "The level of the residual was chosen over its mean and slope on NASA's cells."
)
AHEAD = (
    "Cycles until the measured capacity stays below the threshold (three in a row), the prediction of the monitor from "
    "the estimated capacity with its 90 % interval, and the extrapolation of a straight line through all estimates."
)
QUIET = (
    "stated: the rate of false alarms per cycle for which the limits are set. Measured cells age, so only alarms "
    "before a loss of 3 % count as false."
)
OTHERS = (
    "With the same settings. fade_at_10: the loss during calibration; if it is large, the cell was not healthy. The "
    "loads and temperatures of some cells were changed. false: alarms at less than 3 % loss of capacity since cycles "
    "1-10; the resistance may have risen nevertheless."
)


def _study(nominal: Callable[[], Fit], lives: Lives) -> dict[str, Any]:
    twin = nominal_twin(nominal().twin, lives)
    residuals = voltage_residuals(twin, lives)
    results = {
        "features": cycle_features(residuals),
        "curves": residual_curves(residuals),
        "readings": reestimated_readings(twin, lives),
        "lost": loss_features(twin, lives, monitoring.LOSS),
    }
    return {cell: {name: each[cell] for name, each in results.items()} for cell in lives}


def _healthy(nominal: Callable[[], Fit]) -> dict[str, Any]:
    return _features(nominal, healthy_fleet(cells=HEALTHY_CELLS, cycles=HEALTHY_CYCLES).by_cell())


def _features(nominal: Callable[[], Fit], lives: Lives) -> dict[str, Any]:
    """The inputs of alarms."""
    twin = nominal_twin(nominal().twin, lives)
    features, lost = cycle_features(voltage_residuals(twin, lives)), loss_features(twin, lives, monitoring.LOSS)
    return {cell: {"features": features[cell], "lost": lost[cell]} for cell in lives}


def other_rows(lives: Lives, judged: Mapping[str, Any]) -> Rows:
    """Alarms of cells on which no setting was chosen."""
    rows = []
    for cell, discharges in lives.items():
        features, capacity = judged[cell]["features"], np.array([each.capacity for each in discharges])
        alarm = monitoring.alarms(features, judged[cell]["lost"], monitoring.RATE, monitoring.CONFIRM)
        fade = 1 - capacity / capacity[0]
        rows.append(
            {"cell": cell, "group": load_group(discharges[0]) or "other", "cycles": len(capacity)}
            | {"fade_at_10": float(fade[monitoring.HEALTHY - 1]), "greatest_fade": float(fade.max())}
            | {"rank_level": monitoring.rank_correlation([-each["shape_0"] for each in features], fade.tolist())}
            | monitoring.alarm_numbers(capacity, [False] * monitoring.HEALTHY + alarm)
        )
    return rows


def _worn(discharges: Sequence[Discharge]) -> float:
    return monitoring.worn_capacity(discharges[0].capacity)


def _cycles(discharges: Sequence[Discharge], found: Mapping[str, Any]) -> Rows:
    """Features, readings and verdict of the monitor for each cycle of a cell."""
    features, readings = found["features"], found["readings"]
    capacity = [float(each.capacity) for each in discharges]
    verdicts = monitoring.monitor_cycles(
        features, readings, capacity[: monitoring.HEALTHY], found["lost"], _worn(discharges)
    )
    return [
        {"cycle": k + 1, "capacity_Ah": capacity[k]} | features[k] | readings[k] | verdicts[k]
        for k in range(len(discharges))
    ]


def _ahead(cell: str, rows: Rows, discharges: Sequence[Discharge], shares: Sequence[float]) -> Rows:
    capacity = np.array([row["capacity_Ah"] for row in rows])
    return monitoring.life_rows(cell, rows, capacity, _worn(discharges), shares)


def false_alarms(summary: Rows, healthy: Mapping[str, Any]) -> Rows:
    """Number and rate of false alarms of healthy cells, and the stated rate."""
    judged = (monitoring.EARLY - monitoring.HEALTHY) * len(summary)
    rows = [
        {
            "cells": "followed, cycles 11-20",
            "allowed": f"{monitoring.LOSS:.0%}",
            "stated": monitoring.RATE,
            "cycles": judged,
            "alarms": sum(row["alarms_11_20"] for row in summary),
            "false": sum(row["false_11_20"] for row in summary),
        }
    ]
    for loss, rate, confirm in ((monitoring.LOSS, monitoring.RATE, monitoring.CONFIRM), (0.0, STRICT_RATE, (1, 1))):
        raised = [
            monitoring.alarms(each["features"], each["lost"] if loss else None, rate, confirm)
            for each in healthy.values()
        ]
        count = sum(sum(each) for each in raised)
        rows.append(
            {
                "cells": f"{len(healthy)} SYNTHETIC, without ageing",
                "allowed": f"{loss:.0%}",
                "stated": rate,
                "cycles": sum(len(each) for each in raised),
                "alarms": count,
                "false": count,
            }
        )
    return [row | {"false_rate": row["false"] / row["cycles"]} for row in rows]


def summarise(summary: Rows, ahead: Rows, quiet: Rows, others: Rows, cells: Cells) -> list[str]:
    """The main numbers of each cell, false alarms and remaining life."""
    sentences = [
        f"Protocol ageing ({cells.source}): calibrated on cycles 1-{monitoring.HEALTHY}, a loss of "
        f"{monitoring.LOSS:.0%} is allowed."
    ]
    for row in summary:
        alarm = (
            "no alarm"
            if row["first_alarm"] is None
            else (f"first alarm at cycle {row['first_alarm']}, fade {row['fade_at_alarm']:.1%}")
        )
        sentences.append(
            f"{row['cell']}: rank correlation of score and fade {row['rank_score']:.3f}; {alarm}; largest error of the "
            f"capacity {row['capacity_error_max']:.1%} (mean {row['capacity_error_mean']:.1%})."
        )
    sentences += [
        f"False alarms, {row['cells']}, {row['allowed']} allowed: {row['false']} in {row['cycles']} cycles "
        f"(stated: at most {row['stated']:g} per cycle)."
        for row in quiet
    ]
    if others:
        faded = [row for row in others if row["greatest_fade"] > FADED]
        early = [row for row in faded if row["first_alarm"] is not None and row["fade_at_alarm"] < FADED]
        lost = sum(row["fade_at_10"] > FADED for row in faded)
        false, cycles = (sum(row[name] for row in others) for name in ("false", "cycles"))
        sentences.append(
            f"The same alarm on {len(others)} other cells: it comes before a fade of {FADED:.0%} in {len(early)} of "
            f"the {len(faded)} cells that reach it ({lost} of them within ten cycles); {false} alarms in {cycles} "
            f"cycles are at less than {monitoring.LOSS:.0%} loss, in {sum(row['false'] > 0 for row in others)} cells."
        )
    if ahead:
        sentences.append(
            f"Remaining life at 50, 70 and 90 % of life: error {_mean_and_median(ahead, 'error')}, with a straight "
            f"line {_mean_and_median(ahead, 'line_error')}; {sum(row['covered'] for row in ahead)} of {len(ahead)} "
            f"intervals ({monitoring.LEVEL:.0%}) contain the true end of life."
        )
    return sentences


def _mean_and_median(rows: Rows, name: str) -> str:
    values = [row[name] for row in rows]
    mean, median = format_number(float(np.mean(values))), format_number(float(np.median(values)))
    return f"{mean} cycles on average (median {median})"


def _pictures(cells: Cells, rows: Mapping[str, Rows], summary: Rows, curves: Mapping[str, Any]) -> list[Picture]:
    worn = {row["cell"]: row["worn_Ah"] for row in summary}
    where = f"({cells.source})"
    return [
        Picture(
            "ageing_score",
            f"Residual score and alarm over the life of a cell {where}",
            "Decrease of the level of the residual since cycles 1-10 (grey band), beyond the allowed one. Line: the "
            "running mean, with outliers clipped, on which alarms are based; grey points: single cycles.",
            lambda: figures.scores(rows, where),
        ),
        Picture(
            "ageing_capacity",
            f"Capacity and remaining life {where}",
            "Points: measured. Line: estimate of the twin from each cycle, with two standard errors. Fans: 90 % "
            "intervals of the end of life, predicted at 50, 70 and 90 % of it.",
            lambda: figures.capacity(rows, worn, monitoring.SHARES, where),
        ),
        Picture(
            "ageing_parameters",
            f"Parameters estimated anew in every cycle {where}",
            "With two standard errors, relative to the first cycle.",
            lambda: figures.parameters(rows, where),
        ),
        Picture(
            "ageing_residuals",
            f"Measured voltage minus prediction of the twin of the new cell {where}",
            "From the first cycle to the last.",
            lambda: figures.residuals(curves, where),
        ),
    ]
