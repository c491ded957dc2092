"""Protocol `ageing`: the twin of a cell when it was new, beside the same cell for the rest of its life.

The residual of that nominal twin shows what has changed: an alarm when it is more than a stated loss, capacity from
parameters that are estimated again in every cycle, and the cycles that are left. Everything said about a cycle is
computed from that cycle and those before it; measured capacity is only what it is compared with.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.report import number
from twinfold.train import Fit
from twinfold_studies.battery import ageing_figures as figures
from twinfold_studies.battery import watch
from twinfold_studies.battery.cells import Cells, group_of, runs_of
from twinfold_studies.battery.fleet import healthy_fleet
from twinfold_studies.battery.lives import (
    Lives,
    curves_of,
    features_of,
    followed,
    nominal_twin,
    others,
    tell_loss,
    tell_parameters,
    tell_residuals,
)
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.kept import kept
from twinfold_studies.bench.store import Store
from twinfold_studies.nasa import Discharge

HEALTHY_CELLS, HEALTHY_CYCLES = 20, 40  # of the synthetic cells that do not age
STRICT = 0.01  # false alarms per cycle where no loss at all is allowed
FADED = 0.1  # of capacity, before which an alarm should have come
Rows = list[dict[str, Any]]


def ageing(
    cells: Cells, nominal: Callable[[], Fit], store: Store, tell: Callable[[str], None], *, made_of: Any = None
) -> Findings:
    """Follow the cells through their lives.

    **Arguments:** `cells`; `nominal`, a fit of the residual model on first discharges, asked for only where nothing is
    kept; `store`; `tell`; `made_of`, what decides about that fit, so that another one is not mistaken for it.
    """
    lives = followed(cells)
    if not lives:
        return Findings(["Protocol ageing: no cell among these has enough discharges to be followed."], [])
    nominal = functools.cache(nominal)
    settings = [made_of, runs_of([each for one in lives.values() for each in one]).fingerprint(), watch.LOSS]
    tell(f"battery ageing: {', '.join(lives)}")
    found = kept(store, "battery-ageing-cells", settings, lambda: _followed(nominal, lives))
    tell("battery ageing: SYNTHETIC cells that do not age")
    still = [made_of, HEALTHY_CELLS, HEALTHY_CYCLES, settings[1]]
    healthy = kept(store, "battery-ageing-healthy", still, lambda: _healthy(nominal))
    rest = others(cells)
    unseen: Rows = []
    if rest:
        tell(f"battery ageing: alarms of {len(rest)} other cells")
        data = runs_of([each for one in rest.values() for each in one]).fingerprint()
        unseen = elsewhere(rest, kept(store, "battery-ageing-others", [made_of, data], lambda: _judged(nominal, rest)))
    tell("battery ageing: monitor")
    watched = [watch.RATE, watch.SMOOTHING, watch.AGREED, watch.LEVEL]
    rows = {
        cell: kept(
            store, f"battery-ageing-{cell}", settings + watched, lambda cell=cell: _cycles(lives[cell], found[cell])
        )
        for cell in lives
    }
    summary = [watch.summary(cell, rows[cell], _worn(lives[cell]), found[cell]["lost"]) for cell in lives]
    ahead = [row for cell in lives for row in _ahead(cell, rows[cell], lives[cell], watch.SHARES)]
    quiet = false_alarms(summary, healthy)
    tables = [
        Table("ageing", f"Whole lives beside the twin of the new cell ({cells.source})", summary, caption=CAPTION),
        Table("remaining_life", f"Cycles that are left ({cells.source})", ahead, caption=AHEAD),
        Table("false_alarms", "Alarms of cells that are healthy", quiet, caption=QUIET),
        *(
            [Table("ageing_others", f"Alarms of all other cells ({cells.source})", unseen, caption=OTHERS)]
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
    return Findings(words(summary, ahead, quiet, unseen, cells), tables, _pictures(cells, rows, summary, curves))


CAPTION = (
    "rank_*: Spearman's correlation with measured fade, of each cycle's score and of the running score that is judged "
    "(both from cycle 11 on), and of the residual's level (all cycles). allowed_*: how a loss of 3 % of charge would "
    "show in the residual, by the twin's own sensitivity. false: alarms of cells that had lost less than that since "
    "cycles 1-10. capacity_error: relative, against published capacity. life_*: mean over 40 to 95 % of life, in parts "
    "of it. That the level is judged, and not the mean or the slope, was decided with NASA's cells in view."
)
AHEAD = (
    "Cycles until measured capacity passes the threshold (three in a row); what the monitor said then from estimated "
    "capacity, with its 90 % interval; and a straight line through all estimates."
)
QUIET = (
    "stated: the rate of false alarms per cycle that the levels are set for, at most. Measured cells age, so that only "
    "alarms before a loss of 3 % count as false."
)
OTHERS = (
    "With the same settings. fade_at_10: what was lost while levels were set; where that is much, there was no healthy "
    "cell to learn from. Some had loads and temperatures changed under way. false: alarms at less than 3 % loss of "
    "capacity since cycles 1-10; resistance may have risen all the same."
)


def _followed(nominal: Callable[[], Fit], lives: Lives) -> dict[str, Any]:
    twin = nominal_twin(nominal().twin, lives)
    residuals = tell_residuals(twin, lives)
    told = {
        "features": features_of(residuals),
        "curves": curves_of(residuals),
        "readings": tell_parameters(twin, lives),
        "lost": tell_loss(twin, lives, watch.LOSS),
    }
    return {cell: {name: each[cell] for name, each in told.items()} for cell in lives}


def _healthy(nominal: Callable[[], Fit]) -> dict[str, Any]:
    made = healthy_fleet(cells=HEALTHY_CELLS, cycles=HEALTHY_CYCLES)
    return _judged(nominal, made.by_cell())


def _judged(nominal: Callable[[], Fit], lives: Lives) -> dict[str, Any]:
    """Only what alarms need."""
    twin = nominal_twin(nominal().twin, lives)
    features, lost = features_of(tell_residuals(twin, lives)), tell_loss(twin, lives, watch.LOSS)
    return {cell: {"features": features[cell], "lost": lost[cell]} for cell in lives}


def elsewhere(lives: Lives, judged: Mapping[str, Any]) -> Rows:
    """The same alarm on cells that nothing was chosen on."""
    rows = []
    for cell, discharges in lives.items():
        features, capacity = judged[cell]["features"], np.array([each.capacity for each in discharges])
        alarm = watch.alarms(features, judged[cell]["lost"], watch.RATE, watch.AGREED)
        fade = 1 - capacity / capacity[0]
        rows.append(
            {"cell": cell, "group": group_of(discharges[0]) or "other", "cycles": len(capacity)}
            | {"fade_at_10": float(fade[watch.HEALTHY - 1]), "greatest_fade": float(fade.max())}
            | {"rank_level": watch.rank_correlation([-each["shape_0"] for each in features], fade.tolist())}
            | watch.alarm_numbers(capacity, [False] * watch.HEALTHY + alarm)
        )
    return rows


def _worn(discharges: Sequence[Discharge]) -> float:
    return watch.worn_at(discharges[0].capacity)


def _cycles(discharges: Sequence[Discharge], found: Mapping[str, Any]) -> Rows:
    """All that is known about each cycle of a cell, and what the monitor said then."""
    features, readings = found["features"], found["readings"]
    capacity = [float(each.capacity) for each in discharges]
    said = watch.watch(features, readings, capacity[: watch.HEALTHY], found["lost"], _worn(discharges))
    return [
        {"cycle": k + 1, "capacity_Ah": capacity[k]} | features[k] | readings[k] | said[k]
        for k in range(len(discharges))
    ]


def _ahead(cell: str, rows: Rows, discharges: Sequence[Discharge], shares: Sequence[float]) -> Rows:
    capacity = np.array([row["capacity_Ah"] for row in rows])
    return watch.life_rows(cell, rows, capacity, _worn(discharges), shares)


def false_alarms(summary: Rows, healthy: Mapping[str, Any]) -> Rows:
    """How many of the cycles of healthy cells were alarms, beside the stated rate."""
    judged = (watch.JUDGED - watch.HEALTHY) * len(summary)
    rows = [
        {
            "cells": "followed, cycles 11-20",
            "allowed": f"{watch.LOSS:.0%}",
            "stated": watch.RATE,
            "cycles": judged,
            "alarms": sum(row["alarms_11_20"] for row in summary),
            "false": sum(row["false_11_20"] for row in summary),
        }
    ]
    for loss, rate, agreed in ((watch.LOSS, watch.RATE, watch.AGREED), (0.0, STRICT, (1, 1))):
        said = [
            watch.alarms(each["features"], each["lost"] if loss else None, rate, agreed) for each in healthy.values()
        ]
        count = sum(sum(each) for each in said)
        rows.append(
            {
                "cells": f"{len(healthy)} SYNTHETIC, without ageing",
                "allowed": f"{loss:.0%}",
                "stated": rate,
                "cycles": sum(len(each) for each in said),
                "alarms": count,
                "false": count,
            }
        )
    return [row | {"false_rate": row["false"] / row["cycles"]} for row in rows]


def words(summary: Rows, ahead: Rows, quiet: Rows, unseen: Rows, cells: Cells) -> list[str]:
    """What was found, cell by cell."""
    said = [
        f"Protocol ageing ({cells.source}): levels from cycles 1-{watch.HEALTHY}, a loss of {watch.LOSS:.0%} allowed."
    ]
    for row in summary:
        alarm = (
            "no alarm"
            if row["first_alarm"] is None
            else (f"first alarm at cycle {row['first_alarm']}, {row['fade_at_alarm']:.1%} faded")
        )
        said.append(
            f"{row['cell']}: rank correlation of score and fade {row['rank_score']:.3f}; {alarm}; capacity within "
            f"{row['capacity_error_max']:.1%} (mean {row['capacity_error_mean']:.1%})."
        )
    said += [
        f"False alarms, {row['cells']}, {row['allowed']} allowed: {row['false']} in {row['cycles']} cycles "
        f"(stated: at most {row['stated']:g} per cycle)."
        for row in quiet
    ]
    if unseen:
        faded = [row for row in unseen if row["greatest_fade"] > FADED]
        early = [row for row in faded if row["first_alarm"] is not None and row["fade_at_alarm"] < FADED]
        lost = sum(row["fade_at_10"] > FADED for row in faded)
        false, cycles = (sum(row[name] for row in unseen) for name in ("false", "cycles"))
        said.append(
            f"The same alarm on {len(unseen)} other cells: before {FADED:.0%} fade in {len(early)} of {len(faded)} "
            f"that fade so far ({lost} of these do so in their first ten cycles); {false} alarms in {cycles} cycles at "
            f"less than {watch.LOSS:.0%} loss, in {sum(row['false'] > 0 for row in unseen)} cells."
        )
    if ahead:
        said.append(
            f"Remaining life at 50, 70 and 90 %: wrong by {_middle(ahead, 'error')}; a straight line by "
            f"{_middle(ahead, 'line_error')}; {sum(row['covered'] for row in ahead)} of {len(ahead)} intervals "
            f"({watch.LEVEL:.0%}) hold the true end."
        )
    return said


def _middle(rows: Rows, name: str) -> str:
    values = [row[name] for row in rows]
    return f"{number(float(np.mean(values)))} cycles on average ({number(float(np.median(values)))} in the median)"


def _pictures(cells: Cells, rows: Mapping[str, Rows], summary: Rows, curves: Mapping[str, Any]) -> list[Picture]:
    worn = {row["cell"]: row["worn_Ah"] for row in summary}
    where = f"({cells.source})"
    return [
        Picture(
            "ageing_score",
            f"Residual score and alarm over the life of a cell {where}",
            "How far the level of the residual is below that of cycles 1-10 (grey band), beyond what is allowed. "
            "Line: the running mean that is judged (wild values are held in it); grey points: each cycle.",
            lambda: figures.scores(rows, where),
        ),
        Picture(
            "ageing_capacity",
            f"Capacity and remaining life {where}",
            "Points: measured. Line: estimated by the twin from each cycle, with two standard errors. Fans: 90 % "
            "intervals of the end of life as seen at 50, 70 and 90 % of it.",
            lambda: figures.capacity(rows, worn, watch.SHARES, where),
        ),
        Picture(
            "ageing_parameters",
            f"Parameters estimated again in every cycle {where}",
            "With two standard errors, relative to the first cycle.",
            lambda: figures.parameters(rows, where),
        ),
        Picture(
            "ageing_residuals",
            f"Measured minus predicted by the twin of the new cell {where}",
            "From the first cycle to the last.",
            lambda: figures.residuals(curves, where),
        ),
    ]
