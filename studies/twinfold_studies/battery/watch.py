"""The monitor, cycle by cycle through the life of a cell, and how well it did."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.monitor import Monitor
from twinfold.monitor._life import CONFIRM

# Of the residual, its level along the charge (Huber's): it falls with charge and with resistance alike, and does not
# hang on the last rows of a discharge, where the voltage drops steeply, as the plain mean does.
FEATURES = ("shape_0",)
HEALTHY, JUDGED = 10, 20  # levels are set on cycles 1 to 10 and judged on 11 to 20
LOSS = 0.03  # of capacity, that is no alarm yet
RATE, SMOOTHING, AGREED = 0.001, 0.2, (2, 3)
LEVEL = 0.9  # of the interval for the remaining life
WORN, SHARE = 1.4, 0.8  # Ah; of its first capacity, for a cell that starts low
SHARES = (0.5, 0.7, 0.9)  # of life, at which the remaining life is judged

Row = dict[str, Any]
UNSAID = ("score", "running", "limit", "remaining", "low", "high", "line")


def watch(
    features: Sequence[Mapping[str, float]],
    readings: Sequence[Mapping[str, float]],
    new: Sequence[float],
    lost: Mapping[str, float],
    worn: float,
) -> list[Row]:
    """What the monitor said after every cycle, knowing none of the later ones.

    **Arguments:** `features` of each cycle; `readings`, the estimated capacity of each with its error; `new`, the
    capacity measured in the healthy cycles, which the estimates are made to agree with on average; `lost`, the features
    of a loss that is no alarm yet; `worn`, the capacity at which life ends.
    """
    scale = float(np.mean(new) / np.mean([each["estimated_Ah"] for each in readings[:HEALTHY]]))
    health = [(scale * each["estimated_Ah"], scale * each["estimated_error"]) for each in readings]
    monitor = _calibrated(
        features,
        lost,
        RATE,
        AGREED,
        health=[value for value, _ in health[:HEALTHY]],
        health_error=[error for _, error in health[:HEALTHY]],
        threshold=worn,
        level=LEVEL,
    )
    said: list[Row] = [
        dict.fromkeys(UNSAID, float("nan")) | {"alarm": False, "note": "calibration"} for _ in range(HEALTHY)
    ]
    for each, (value, error) in zip(features[HEALTHY:], health[HEALTHY:], strict=True):
        row = monitor.update(_judged(each), value, error).row()
        said.append({name: row[name] for name in (*UNSAID, "alarm", "note")})
    return said


def alarms(
    features: Sequence[Mapping[str, float]], lost: Mapping[str, float] | None, rate: float, agreed: tuple[int, int]
) -> list[bool]:
    """Only whether each cycle after the calibration was an alarm; `lost` as for `watch`, None to allow nothing."""
    monitor = _calibrated(features, lost, rate, agreed)
    return [monitor.update(_judged(each)).alarm for each in features[HEALTHY:]]


def _calibrated(
    features: Sequence[Mapping[str, float]],
    lost: Mapping[str, float] | None,
    rate: float,
    agreed: tuple[int, int],
    **health: Any,
) -> Monitor:
    """A monitor with its levels from the healthy cycles; `health` is what it is to know of remaining life."""
    return Monitor.calibrate(
        [_judged(each) for each in features[:HEALTHY]],
        rate=rate,
        direction=dict.fromkeys(FEATURES, -1),
        allowed=None if lost is None else {name: abs(lost[name]) for name in FEATURES},
        smoothing=SMOOTHING,
        confirm=agreed,
        **health,
    )


def _judged(features: Mapping[str, float]) -> dict[str, float]:
    return {name: features[name] for name in FEATURES}


def worn_at(first: float) -> float:
    """The capacity at which life ends: 1.4 Ah, or 80 % for a cell that starts lower."""
    return min(WORN, SHARE * first)


def end_of_life(capacity: np.ndarray, worn: float) -> int | None:
    """The cycle, from 1, of the first of three measured capacities in a row below; None while it lives."""
    below = 0
    for cycle, value in enumerate(capacity, 1):
        below = below + 1 if value < worn else 0
        if below == CONFIRM:
            return cycle - CONFIRM + 1
    return None


def life_rows(cell: str, said: Sequence[Row], capacity: np.ndarray, worn: float, shares: Sequence[float]) -> list[Row]:
    """Remaining life at these shares of it: what was true, what was said, and by a straight line."""
    end = end_of_life(capacity, worn)
    if end is None:
        return []
    rows = []
    for share in shares:
        cycle = round(share * end)
        if not HEALTHY < cycle < end:
            continue
        one, true = said[cycle - 1], end - cycle
        rows.append(
            {
                "cell": cell,
                "share_of_life": share,
                "cycle": cycle,
                "true": true,
                "remaining": one["remaining"],
                "low": one["low"],
                "high": one["high"],
                "covered": bool(one["low"] <= true <= one["high"]),
                "error": abs(one["remaining"] - true),
                "line": one["line"],
                "line_error": abs(one["line"] - true),
                "life": end,
            }
        )
    return rows


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's, of what is finite in both; equal values share their mean rank."""
    pair = np.array([a, b], np.float64)
    pair = pair[:, np.isfinite(pair).all(axis=0)]
    return float(np.corrcoef([_ranks(values) for values in pair])[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def summary(cell: str, rows: Sequence[Row], worn: float, lost: Mapping[str, float]) -> Row:
    """The numbers of one cell, from its rows of all cycles."""
    capacity = np.array([row["capacity_Ah"] for row in rows])
    fade = 1 - capacity / capacity[0]
    later = slice(HEALTHY, None)
    wrong = np.abs(np.array([row["estimated_Ah"] for row in rows]) / capacity - 1)
    whole = life_rows(cell, rows, capacity, worn, np.arange(0.4, 0.951, 0.05).tolist())

    def mean(name: str) -> float:
        return float(np.mean([row[name] / row["life"] for row in whole])) if whole else float("nan")

    found: Row = {
        "cell": cell,
        "cycles": len(rows),
        "first_Ah": float(capacity[0]),
        "last_Ah": float(capacity[-1]),
        "rank_score": rank_correlation([row["score"] for row in rows[later]], fade[later].tolist()),
        "rank_running": rank_correlation([row["running"] for row in rows[later]], fade[later].tolist()),
        "rank_level": rank_correlation([-row["shape_0"] for row in rows], fade.tolist()),
    }
    found |= {f"allowed_{name}_V": abs(lost[name]) for name in FEATURES}
    found |= alarm_numbers(capacity, [row["alarm"] for row in rows])
    return found | {
        "capacity_error_mean": float(wrong.mean()),
        "capacity_error_95": float(np.quantile(wrong, 0.95)),
        "capacity_error_max": float(wrong.max()),
        "worn_Ah": worn,
        "end_of_life": end_of_life(capacity, worn),
        "life_error": mean("error"),
        "life_line_error": mean("line_error"),
        "life_covered": float(np.mean([row["covered"] for row in whole])) if whole else float("nan"),
    }


def alarm_numbers(capacity: np.ndarray, alarm: Sequence[bool]) -> Row:
    """When the alarm came first, and how many came too early: before the loss that is allowed since cycles 1-10."""
    fade, since = 1 - capacity / capacity[0], 1 - capacity / capacity[:HEALTHY].mean()
    raised = np.flatnonzero(alarm)
    early = raised[raised < JUDGED]
    return {
        "first_alarm": int(raised[0]) + 1 if len(raised) else None,
        "fade_at_alarm": float(fade[raised[0]]) if len(raised) else float("nan"),
        "alarms_11_20": len(early),
        "false_11_20": int(np.sum(since[early] < LOSS)),
        "alarms": len(raised),
        "false": int(np.sum(since[raised] < LOSS)),
    }
