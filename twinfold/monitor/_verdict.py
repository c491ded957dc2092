"""The verdict on a table of judged windows, compared with the alarms that healthy windows have by chance."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import special

from twinfold.monitor._limits import MIN_HEALTHY
from twinfold.monitor._monitor import Monitor

SIGNIFICANCE = 0.01  # probability of as many alarms in healthy data below which the plant has changed
CERTAIN_CHANGE = 2  # times the limit: no healthy window exceeds this by chance
FOLDS = 5


@dataclass(frozen=True)
class Verdict:
    """The conclusion of a `Watch`.

    `status`: `"healthy"`, `"changed"`, `"unclear"` (alarms, but no more than healthy data have at the stated rate), or
    `"unknown"` (no window could be judged). `message` explains it; `alarms` of `windows` judged; `first`, where the
    first alarm is.

    **Example:**

    ```python
    verdict = tw.monitor.Verdict("healthy", "No alarm in 40 windows.", alarms=0, windows=40, first="")
    verdict.status == "changed"  # False
    ```
    """

    status: Literal["healthy", "unclear", "changed", "unknown"]
    message: str
    alarms: int
    windows: int
    first: str


def judge_windows(
    rows: Sequence[Mapping[str, Any]],
    false_alarm_rate: float,
    smoothing: float,
    healthy: Mapping[str, Any],
    findings: Sequence[str] = (),
) -> Verdict:
    """Return the verdict on the rows of a watch.

    **Arguments:** `rows`; the stated `false_alarm_rate`; the `smoothing` of the running score; `healthy`, the result
    of `cross_validate`; `findings` of the monitor.
    """
    judged = [row for row in rows if math.isfinite(row["score"])]
    remarks = ""
    if len(judged) < len(rows):
        remarks = (
            f" {len(rows) - len(judged)} windows could not be judged (too many values missing, or the twin failed)."
        )
    missing = sum(row["missing"] for row in rows)
    remarks += f" {missing} measured values were missing." if missing else ""
    remarks += _warn_of_loose_limits(healthy, false_alarm_rate)
    remarks += "".join(f" {finding}" for finding in findings)
    if not judged:
        return Verdict("unknown", f"No window could be judged.{remarks}", 0, 0, "")
    alarms = [row["alarm"] for row in judged]
    expected = (
        f"{false_alarm_rate * len(judged):.2g} expected in healthy data at the stated rate of {false_alarm_rate:.2g} "
        "per window"
    )
    if not any(alarms):
        return Verdict("healthy", f"No alarm in {len(judged)} windows ({expected}).{remarks}", 0, len(judged), "")
    first = judged[alarms.index(True)]
    largest = max((row for row in judged if row["alarm"]), key=lambda row: row["running"] / row["limit"])
    # Neighbouring running scores share most of their windows: alarms come in clusters, each of which counts once.
    clusters = [sum(1 for _ in group) for alarm, group in itertools.groupby(alarms) if alarm]
    changed = (
        binomial_tail(len(clusters), len(judged), false_alarm_rate) < SIGNIFICANCE
        or max(clusters) > 3 / smoothing
        or largest["running"] > CERTAIN_CHANGE * largest["limit"]
    )
    where = f"run '{first['run']}', t = {first['from']:.6g} to {first['to']:.6g}"
    conclusion = (
        "The plant, a sensor, or the operating conditions have changed."
        if changed
        else "Healthy data have this many now and then: keep monitoring."
    )
    message = (
        f"{sum(alarms)} of {len(judged)} windows are alarms ({expected}), the first in {where}. The largest change is "
        f"in {describe_feature(largest['changed'])}: {largest['change']:+.1f} healthy standard deviations. {conclusion}"
    )
    return Verdict("changed" if changed else "unclear", message + remarks, sum(alarms), len(judged), where)


def describe_feature(feature: str) -> str:
    """Return "the slope of the residual of level" for "level.shape_1"."""
    output, _, kind = feature.rpartition(".")
    names = {"size": "the size", "shape_0": "the mean", "shape_1": "the slope", "shape_2": "the curvature"}
    return f"{names.get(kind, kind)} of the residual of {output}"


def binomial_tail(count: int, trials: int, probability: float) -> float:
    """Return P(X >= count) for a binomial X."""
    return float(special.bdtrc(count - 1, trials, probability))


def cross_validate(features: Sequence[Mapping[str, float]], options: Mapping[str, Any]) -> dict[str, Any]:
    """Count the healthy windows that exceed limits computed from the others, in blocks.

    **Returns:** the number of windows `tried` and `exceeded`, each judged alone (running means share their windows).
    """
    finite = [each for each in features if all(map(math.isfinite, each.values()))]
    edges = np.linspace(0, len(finite), FOLDS + 1).astype(int)
    alone = dict(options) | {"smoothing": 1.0, "confirm": (1, 1)}
    tried = exceeded = 0
    for low, high in itertools.pairwise(edges.tolist()):
        rest = [*finite[:low], *finite[high:]]
        if len(rest) < 2 * MIN_HEALTHY or high == low:
            continue
        try:
            monitor = Monitor.calibrate(rest, **alone)
        except ValueError:  # too few windows for these limits
            continue
        tried += high - low
        exceeded += sum(monitor.update(each).alarm for each in finite[low:high])
    return {"tried": tried, "exceeded": exceeded}


def _warn_of_loose_limits(healthy: Mapping[str, Any], false_alarm_rate: float) -> str:
    """A sentence if the healthy windows vary too much for the stated rate."""
    tried, exceeded = healthy["tried"], healthy["exceeded"]
    if not tried or binomial_tail(exceeded, tried, false_alarm_rate) >= SIGNIFICANCE:
        return ""
    return (
        f" The healthy windows vary more than the limits assume: {exceeded} of {tried} would be alarms themselves, "
        f"with {false_alarm_rate * tried:.2g} expected. Expect false alarms at that rate, or calibrate with more "
        "and longer windows."
    )
