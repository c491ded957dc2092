"""Remaining life over many cells, thresholds and moments; what does not end within its record is censored."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.monitor import Monitor
from twinfold_studies.battery.monitoring import HEALTHY, LEVEL, SHARES, WORN, end_of_life
from twinfold_studies.nasa import Discharge

THRESHOLDS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7)  # of the capacity of the healthy cycles
MIN_STEADY = 25  # cycles under one load
LOAD_CHANGE, AMBIENT_CHANGE = 0.1, 3.0  # A, degrees: more is another load
HORIZON = 1000
Rows = list[dict[str, Any]]


def steady_stretch(discharges: Sequence[Discharge]) -> slice:
    """The longest stretch of discharges under one load at one temperature: a capacity depends on both."""
    loads = np.array([each.load_current for each in discharges])
    ambient = np.array([each.ambient for each in discharges])
    changes = (np.abs(np.diff(loads)) > LOAD_CHANGE) | (np.abs(np.diff(ambient)) > AMBIENT_CHANGE)
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(discharges)]
    start, end = max(itertools.pairwise(edges), key=lambda stretch: stretch[1] - stretch[0])
    return slice(start, end)


def remaining_rows(
    cell: str, measured: np.ndarray, readings: Mapping[str, tuple[np.ndarray, np.ndarray | None]]
) -> Rows:
    """A row for each threshold, moment and kind of reading.

    **Arguments:** `cell`; `measured` capacities in Ah, which decide when life ended; `readings`, capacities and their
    standard errors by kind, scaled on average to the measured ones of the healthy cycles.
    """
    if len(measured) < MIN_STEADY:
        return []
    new = float(np.median(measured[:HEALTHY]))
    levels = {f"{share:.0%}": share * new for share in THRESHOLDS} | ({f"{WORN} Ah": WORN} if new > WORN else {})
    rows: Rows = []
    for name, threshold in levels.items():
        end = end_of_life(measured, threshold)
        last = len(measured) if end is None else end
        moments = [(share, round(share * last)) for share in SHARES]
        moments = [(share, cycle) for share, cycle in moments if HEALTHY < cycle < last]
        for kind, (values, errors) in readings.items():
            scaled, spread = _scaled(values, errors, new)
            said = _predictions(scaled, spread, threshold, [cycle for _, cycle in moments])
            for (share, cycle), row in zip(moments, said, strict=True):
                rows.append(
                    {"cell": cell, "threshold": name, "threshold_Ah": threshold, "capacity": kind, "cycle": cycle}
                    | {"share": share, "reached": end is not None, "true": last - cycle}
                    | row
                    | _judged(row, last - cycle, end is not None)
                )
    return rows


def _scaled(values: np.ndarray, errors: np.ndarray | None, new: float) -> tuple[np.ndarray, np.ndarray]:
    """Readings whose median over the healthy cycles is that of the measured ones, and their errors."""
    factor = new / float(np.nanmedian(values[:HEALTHY]))
    return factor * values, np.zeros_like(values) if errors is None else factor * errors


def _predictions(values: np.ndarray, errors: np.ndarray, threshold: float, cycles: Sequence[int]) -> Rows:
    """What the monitor says after each of these cycles."""
    features = [{"cycle": float(index)} for index in range(HEALTHY)]  # no alarm is asked for
    monitor = Monitor.calibrate(
        features,
        health=values[:HEALTHY],
        health_error=errors[:HEALTHY],
        threshold=threshold,
        confidence=LEVEL,
        horizon=HORIZON,
    )
    assert monitor.life is not None
    life, rows = monitor.life, []
    for cycle in range(HEALTHY + 1, max(cycles, default=0) + 1):
        life = life.update(float(values[cycle - 1]), float(errors[cycle - 1]))
        if cycle in cycles:
            rest = life.remaining(confidence=LEVEL, horizon=HORIZON)
            rows += [{"remaining": rest.median, "low": rest.low, "high": rest.high, "line": rest.line}] * cycles.count(
                cycle
            )
    return rows


def _judged(row: Mapping[str, float], true: int, reached: bool) -> dict[str, Any]:
    """Whether the interval holds the truth, and the errors relative to it; of a censored case, what can be said."""
    if not reached:
        return {"covered": row["high"] >= true, "relative_error": float("nan"), "line_error": float("nan")}
    bounded = [min(row[name], HORIZON) for name in ("remaining", "line")]
    errors = [(value - true) / true for value in bounded]
    return {"covered": row["low"] <= true <= row["high"], "relative_error": errors[0], "line_error": errors[1]}


def summarise_remaining(rows: Rows) -> list[str]:
    """Coverage, bias and size of the errors, for each kind of capacity."""
    sentences = []
    for kind in dict.fromkeys(row["capacity"] for row in rows):
        mine = [row for row in rows if row["capacity"] == kind]
        said = [row for row in mine if not np.isnan(row["remaining"])]
        ended = [row for row in said if row["reached"]]
        open_ = [row for row in said if not row["reached"]]
        if not ended:
            continue
        error, line = (np.array([row[name] for row in ended]) for name in ("relative_error", "line_error"))
        held = np.mean([row["covered"] for row in ended])
        contradicted = np.mean([not row["covered"] for row in open_]) if open_ else 0.0
        sentences.append(
            f"Remaining life, capacity {kind}: {len(ended)} cases of {len({row['cell'] for row in ended})} cells reach "
            f"the threshold; {held:.1%} of the {LEVEL:.0%} intervals hold the truth; relative error of the prediction "
            f"{np.median(error):+.2f} in the median, {np.median(np.abs(error)):.2f} in size "
            f"(straight line {np.median(line):+.2f} and {np.median(np.abs(line)):.2f}). {len(open_)} cases are "
            f"censored; in {contradicted:.1%} of them the interval ends before the record does. Without a prediction: "
            f"{len(mine) - len(said)} cases."
        )
    return sentences
