"""What a table of judged windows says, in words, beside what chance alone makes of healthy ones."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from twinfold.monitor._limits import FEWEST
from twinfold.monitor._monitor import Monitor

CHANCE = 0.01  # how unlikely alarms have to be before healthy is ruled out
FAR = 2  # times the limit: no healthy window comes there by chance
FOLDS = 5


@dataclass(frozen=True)
class Verdict:
    """`healthy`, `changed`, or `unclear` (alarms, but no more than healthy data have at the stated rate)."""

    status: Literal["healthy", "unclear", "changed", "unknown"]
    words: str
    alarms: int
    windows: int
    first: str


def verdict(rows: Sequence[Mapping[str, Any]], rate: float, smoothing: float, healthy: Mapping[str, Any]) -> Verdict:
    """Sum up the rows of a watch.

    **Arguments:** `rows`; the stated `rate` of false alarms; the `smoothing` of the running score; how the limits did
    on `healthy` windows.
    """
    judged = [row for row in rows if math.isfinite(row["score"])]
    aside = f" {len(rows) - len(judged)} windows could not be judged (too much missing, or the twin failed)."
    aside = aside if len(judged) < len(rows) else ""
    missing = sum(row["missing"] for row in rows)
    aside += f" {missing} measured values were missing." if missing else ""
    loose = _loose(healthy, rate)
    if not judged:
        return Verdict("unknown", f"No window could be judged.{aside}{loose}", 0, 0, "")
    alarms = [row["alarm"] for row in judged]
    expected = f"{rate * len(judged):.2g} expected of healthy data at the stated rate of {rate:.2g} a window"
    if not any(alarms):
        words = f"No alarm in {len(judged)} windows ({expected}).{aside}{loose}"
        return Verdict("healthy", words, 0, len(judged), "")
    first = judged[alarms.index(True)]
    episodes = _episodes(alarms)
    # Neighbouring running scores share most of their windows: alarms come in clusters, which count once.
    unlikely = at_least(len(episodes), len(judged), rate) < CHANCE or max(episodes) > 3 / smoothing
    most = max((row for row in judged if row["alarm"]), key=lambda row: row["running"] / row["limit"])
    unlikely = unlikely or most["running"] > FAR * most["limit"]
    where = f"run '{first['run']}', t = {first['from']:.6g} to {first['to']:.6g}"
    words = (
        f"{sum(alarms)} of {len(judged)} windows are alarms ({expected}), the first in {where}. What changed most is "
        f"{said(most['changed'])}, by {most['change']:+.1f} healthy standard deviations. "
    )
    words += (
        "The plant, a sensor, or what it is used for has changed."
        if unlikely
        else "Healthy data have that many now and then: keep watching."
    )
    return Verdict("changed" if unlikely else "unclear", words + aside + loose, sum(alarms), len(judged), where)


def said(feature: str) -> str:
    """A feature in words."""
    output, _, kind = feature.rpartition(".")
    names = {"size": "the size", "shape_0": "the level", "shape_1": "the slope", "shape_2": "the bend"}
    return f"{names.get(kind, kind)} of the residual of {output}"


def at_least(count: int, of: int, rate: float) -> float:
    """P(X >= count) for X binomial."""
    logs = [
        math.lgamma(of + 1)
        - math.lgamma(k + 1)
        - math.lgamma(of - k + 1)
        + k * math.log(rate)
        + (of - k) * math.log1p(-rate)
        for k in range(count)
    ]
    return max(1 - float(np.sum(np.exp(logs))), 0.0)


def crossed(features: Sequence[Mapping[str, float]], options: Mapping[str, Any]) -> dict[str, Any]:
    """How many healthy windows are alarms for limits from the others, in blocks: what the stated rate is worth here.

    **Returns:** `tried` windows, `exceeded` ones, judged one by one (the running mean would count neighbours twice).
    """
    finite = [each for each in features if all(map(math.isfinite, each.values()))]
    edges = np.linspace(0, len(finite), FOLDS + 1).astype(int)
    alone = dict(options) | {"smoothing": 1.0, "confirm": (1, 1)}
    tried = exceeded = 0
    for low, high in itertools.pairwise(edges.tolist()):
        rest = [*finite[:low], *finite[high:]]
        if len(rest) < 2 * FEWEST or high == low:
            continue
        try:
            monitor = Monitor.calibrate(rest, **alone)
        except ValueError:  # too few for this rule: nothing can be said
            continue
        tried += high - low
        exceeded += sum(monitor.update(each).alarm for each in finite[low:high])
    return {"tried": tried, "exceeded": exceeded}


def _loose(healthy: Mapping[str, Any], rate: float) -> str:
    """A word where the healthy windows themselves are too different for the stated rate."""
    tried, exceeded = healthy["tried"], healthy["exceeded"]
    if not tried or at_least(exceeded, tried, rate) >= CHANCE:
        return ""
    return (
        f" The healthy windows differ more than their limits assume: {exceeded} of {tried} would be alarms themselves, "
        f"{rate * tried:.2g} were expected. Take false alarms for as frequent as that, or give more and longer windows."
    )


def _episodes(alarms: Sequence[bool]) -> list[int]:
    """The lengths of the stretches of alarms."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], alarms, [False]]).astype(int)))
    return (edges[1::2] - edges[::2]).tolist()
