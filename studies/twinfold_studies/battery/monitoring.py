"""The monitor over the life of a cell, cycle by cycle, and how accurate it was."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from twinfold.monitor import Monitor

# The robust level of the residual: it falls with a loss of charge and with a rising resistance. Unlike the mean it does
# not depend on the last rows of a discharge, where the voltage drops steeply.
FEATURES = ("shape_0",)
HEALTHY, EARLY = 10, 20  # the monitor is calibrated on cycles 1 to 10; alarms in 11 to 20 are counted separately
LOSS = 0.03  # of capacity, that shall not cause an alarm
RATE, SMOOTHING, CONFIRM = 0.001, 0.2, (2, 3)  # false alarms per cycle; smoothing; alarms out of cycles to confirm
LEVEL = 0.9  # of the interval of the remaining life
WORN, WORN_SHARE = 1.4, 0.8  # capacity at the end of life: Ah, or share of the first capacity if that is lower
WORN_CYCLES = 3  # successive readings below the threshold that end a life, as in `Monitor`
SHARES = (0.5, 0.7, 0.9)  # of life, at which the remaining life is evaluated

Row = dict[str, Any]
VERDICT = ("score", "running", "limit", "remaining", "low", "high", "line")


def monitor_cycles(
    features: Sequence[Mapping[str, float]],
    readings: Sequence[Mapping[str, float]],
    new: Sequence[float],
    lost: Mapping[str, float],
    worn: float,
) -> list[Row]:
    """The verdict of the monitor after every cycle, from that cycle and earlier ones.

    **Arguments:** `features` of each cycle; `readings`, its estimated capacity with standard error; `new`, the measured
    capacities of the healthy cycles, to which the estimates are scaled on average; `lost`, the features of the largest
    loss without an alarm; `worn`, the capacity at the end of life.
    """
    scale = float(np.mean(new) / np.mean([each["estimated_Ah"] for each in readings[:HEALTHY]]))
    health = [(scale * each["estimated_Ah"], scale * each["estimated_error"]) for each in readings]
    monitor = _calibrated(
        features,
        lost,
        RATE,
        CONFIRM,
        health=[value for value, _ in health[:HEALTHY]],
        health_error=[error for _, error in health[:HEALTHY]],
        threshold=worn,
        confidence=LEVEL,
    )
    rows: list[Row] = [
        dict.fromkeys(VERDICT, float("nan")) | {"alarm": False, "note": "calibration"} for _ in range(HEALTHY)
    ]
    for each, (value, error) in zip(features[HEALTHY:], health[HEALTHY:], strict=True):
        row = monitor.update(_selected(each), value, error).row()
        rows.append({name: row[name] for name in (*VERDICT, "alarm", "note")})
    return rows


def alarms(
    features: Sequence[Mapping[str, float]], lost: Mapping[str, float] | None, rate: float, confirm: tuple[int, int]
) -> list[bool]:
    """Whether each cycle after the calibration is an alarm; `lost` as for `monitor_cycles`, None to allow no loss."""
    monitor = _calibrated(features, lost, rate, confirm)
    return [monitor.update(_selected(each)).alarm for each in features[HEALTHY:]]


def _calibrated(
    features: Sequence[Mapping[str, float]],
    lost: Mapping[str, float] | None,
    rate: float,
    confirm: tuple[int, int],
    **health: Any,
) -> Monitor:
    """A monitor calibrated on the healthy cycles; `health`: further arguments, for the remaining life."""
    return Monitor.calibrate(
        [_selected(each) for each in features[:HEALTHY]],
        false_alarm_rate=rate,
        direction=dict.fromkeys(FEATURES, -1),
        allowed=None if lost is None else {name: abs(lost[name]) for name in FEATURES},
        smoothing=SMOOTHING,
        confirm=confirm,
        **health,
    )


def _selected(features: Mapping[str, float]) -> dict[str, float]:
    return {name: features[name] for name in FEATURES}


def worn_capacity(first: float) -> float:
    """The capacity at the end of life: 1.4 Ah, or 80 % of the first capacity if that is lower."""
    return min(WORN, WORN_SHARE * first)


def end_of_life(capacity: np.ndarray, worn: float) -> int | None:
    """The cycle, from 1, of the first of three successive capacities below the threshold; None if there is none."""
    below = 0
    for cycle, value in enumerate(capacity, 1):
        below = below + 1 if value < worn else 0
        if below == WORN_CYCLES:
            return cycle - WORN_CYCLES + 1
    return None


def life_rows(
    cell: str, verdicts: Sequence[Row], capacity: np.ndarray, worn: float, shares: Sequence[float]
) -> list[Row]:
    """True and predicted remaining life at these shares of the life, and the extrapolation by a straight line."""
    end = end_of_life(capacity, worn)
    if end is None:
        return []
    rows = []
    for share in shares:
        cycle = round(share * end)
        if not HEALTHY < cycle < end:
            continue
        verdict, true = verdicts[cycle - 1], end - cycle
        rows.append(
            {
                "cell": cell,
                "share_of_life": share,
                "cycle": cycle,
                "true": true,
                "remaining": verdict["remaining"],
                "low": verdict["low"],
                "high": verdict["high"],
                "covered": bool(verdict["low"] <= true <= verdict["high"]),
                "error": abs(verdict["remaining"] - true),
                "line": verdict["line"],
                "line_error": abs(verdict["line"] - true),
                "life": end,
            }
        )
    return rows


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation over the pairs that are finite."""
    pair = np.array([a, b], np.float64)
    first, second = pair[:, np.isfinite(pair).all(axis=0)]
    return float(spearmanr(first, second).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def cell_summary(cell: str, rows: Sequence[Row], worn: float, lost: Mapping[str, float]) -> Row:
    """The numbers of one cell, from the rows of all its cycles."""
    capacity = np.array([row["capacity_Ah"] for row in rows])
    fade = 1 - capacity / capacity[0]
    later = slice(HEALTHY, None)
    error = np.abs(np.array([row["estimated_Ah"] for row in rows]) / capacity - 1)
    evaluated = life_rows(cell, rows, capacity, worn, np.arange(0.4, 0.951, 0.05).tolist())

    def mean(name: str) -> float:
        return float(np.mean([row[name] / row["life"] for row in evaluated])) if evaluated else float("nan")

    numbers: Row = {
        "cell": cell,
        "cycles": len(rows),
        "first_Ah": float(capacity[0]),
        "last_Ah": float(capacity[-1]),
        "rank_score": rank_correlation([row["score"] for row in rows[later]], fade[later].tolist()),
        "rank_running": rank_correlation([row["running"] for row in rows[later]], fade[later].tolist()),
        "rank_level": rank_correlation([-row["shape_0"] for row in rows], fade.tolist()),
    }
    numbers |= {f"allowed_{name}_V": abs(lost[name]) for name in FEATURES}
    numbers |= alarm_numbers(capacity, [row["alarm"] for row in rows])
    return numbers | {
        "capacity_error_mean": float(error.mean()),
        "capacity_error_95": float(np.quantile(error, 0.95)),
        "capacity_error_max": float(error.max()),
        "worn_Ah": worn,
        "end_of_life": end_of_life(capacity, worn),
        "life_error": mean("error"),
        "life_line_error": mean("line_error"),
        "life_covered": float(np.mean([row["covered"] for row in evaluated])) if evaluated else float("nan"),
    }


def alarm_numbers(capacity: np.ndarray, alarm: Sequence[bool]) -> Row:
    """First alarm, number of alarms, and of false ones: those at less than the allowed loss since cycles 1-10."""
    fade, since = 1 - capacity / capacity[0], 1 - capacity / capacity[:HEALTHY].mean()
    raised = np.flatnonzero(alarm)
    early = raised[raised < EARLY]
    return {
        "first_alarm": int(raised[0]) + 1 if len(raised) else None,
        "fade_at_alarm": float(fade[raised[0]]) if len(raised) else float("nan"),
        "alarms_11_20": len(early),
        "false_11_20": int(np.sum(since[early] < LOSS)),
        "alarms": len(raised),
        "false": int(np.sum(since[raised] < LOSS)),
    }
